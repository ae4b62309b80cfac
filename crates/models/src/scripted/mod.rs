//! A model that follows a script: for demos, for tests, and for trying an agent without an API key.
//!
//! A script is a JSON file of rules. A run uses the first rule whose `when`, a regular expression, matches the last
//! user message. The rule's k-th reply answers the run's k-th model call, and its last reply repeats.
//!
//! ```
//! use models::scripted::{Script, ScriptedModel};
//!
//! let script = Script::from_json(r#"{"rules": [
//!     {"when": "(?i)pay", "replies": [
//!         {"tool_calls": [{"id": "call_0", "name": "transfer", "arguments": {"to": "bob", "amount": 5}}],
//!          "usage": {"input_tokens": 10, "output_tokens": 5}},
//!         {"error": {"status": 503, "message": "overloaded", "retry_after_ms": 20}},
//!         {"text": "Paid.", "delta_chars": 2, "delay_ms": 10}]},
//!     {"when": ".*", "replies": [{"text": "I can only pay."}]}]}"#)?;
//! let model = ScriptedModel::new(script);
//!
//! let mistake = Script::from_json(r#"{"rules": [{"when": ".*", "replies": [{"txet": "Hello"}]}]}"#);
//! assert!(mistake.unwrap_err().to_string().starts_with("rules[0].replies[0]: unknown key `txet`"));
//! # Ok::<(), models::scripted::ScriptError>(())
//! ```
//!
//! | key of a reply | meaning |
//! |---|---|
//! | `text` | the model's text |
//! | `reasoning` | the model's reasoning before the text |
//! | `tool_calls` | `[{id?, name, arguments?}]`; `arguments_text`, if given instead, is sent verbatim, JSON or not |
//! | `usage` | `{input_tokens?, output_tokens?}`; 0 if absent |
//! | `delta_chars` | characters of one delta; without it each part is one delta |
//! | `delay_ms` | the delay before each delta, or before the answer if there is none |
//! | `error` | `{status, message, retry_after_ms?}`, combined only with `delay_ms`; 429 and 500 and up are retryable |
//!
//! In Rust the replies can be given directly:
//!
//! ```
//! use models::scripted::{Reply, ScriptedModel};
//! use serde_json::json;
//!
//! let model = ScriptedModel::replying([
//!     Reply::call("call_0", "echo", json!({"text": "a"})).and_call("call_1", "echo", json!({"text": "b"})),
//!     Reply::error(500, "overloaded"),
//!     Reply::text("Done."),
//! ]);
//! ```

mod parse;
mod reply;
#[cfg(test)]
mod tests;

use std::time::Duration;

use engine::live::{Deltas, Part};
use engine::model::{Model, ModelAnswer, ModelFailure, ModelMessage, ModelRequest};
use engine::store::BoxFuture;
use regex::Regex;
use serde_json::Value;

pub use parse::ScriptError;
pub use reply::Reply;

/// Rules. A run uses the first one that matches.
#[derive(Clone, Debug)]
pub struct Script {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    when: When,
    replies: Vec<Reply>,
}

#[derive(Clone, Debug)]
enum When {
    Always,
    Matches(Regex),
}

impl Script {
    /// Parses a script. An error names the location of the mistake and what to write there.
    pub fn from_json(text: &str) -> Result<Self, ScriptError> {
        parse::script(text)
    }

    /// The reply to model call number `ordinal`, starting at 1, of a run with this user message.
    fn reply(&self, said: &str, ordinal: u32) -> Result<&Reply, ModelFailure> {
        let serves = |rule: &&Rule| match &rule.when {
            When::Always => true,
            When::Matches(pattern) => pattern.is_match(said),
        };
        let Some(rule) = self.rules.iter().find(serves) else {
            return Err(permanent(
                "no rule of the script matches the last user message; add a rule with \"when\": \".*\" at its end",
            ));
        };
        let index = usize::try_from(ordinal).unwrap_or(usize::MAX).saturating_sub(1);
        let reply = rule.replies.get(index).or(rule.replies.last());
        reply.ok_or_else(|| permanent("the script has no reply; give it one"))
    }
}

/// A model that follows a [`Script`].
#[derive(Clone, Debug)]
pub struct ScriptedModel {
    script: Script,
}

impl ScriptedModel {
    #[must_use]
    pub const fn new(script: Script) -> Self {
        Self { script }
    }

    /// Gives these replies to every run, regardless of the user message.
    #[must_use]
    pub fn replying(replies: impl IntoIterator<Item = Reply>) -> Self {
        let rule = Rule { when: When::Always, replies: replies.into_iter().collect() };
        Self::new(Script { rules: vec![rule] })
    }
}

impl Model for ScriptedModel {
    fn answers_at_once(&self) -> bool {
        true
    }

    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        Box::pin(async move {
            let reply = self.script.reply(&last_user_text(&request), request.ordinal)?;
            let pieces = reply.deltas();
            if pieces.is_empty() {
                pause(reply.delay()).await;
            }
            for (part, text) in pieces {
                pause(reply.delay()).await;
                match part {
                    Part::Text => deltas.text(text),
                    Part::Reasoning => deltas.reasoning(text),
                    Part::Arguments { index, call_id } => deltas.arguments(index, call_id.as_deref(), text),
                }
            }
            reply.outcome()
        })
    }
}

/// A timer rounds up to its tick, so a zero delay must not start one.
async fn pause(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

fn permanent(message: &str) -> ModelFailure {
    ModelFailure { message: message.to_owned(), retryable: false, retry_after_ms: None }
}

/// The concatenated texts of a message with several parts. Empty if there is no text, which `.*` matches.
fn last_user_text(request: &ModelRequest) -> String {
    if let Some(text) = request.last_user_text() {
        return text.to_owned();
    }
    let content = request.messages.iter().rev().find_map(|message| match message {
        ModelMessage::User { content, .. } => Some(content),
        ModelMessage::Assistant { .. }
        | ModelMessage::Tool { .. }
        | ModelMessage::Note { .. }
        | ModelMessage::Notice { .. } => None,
    });
    let parts = match content.map(|content| &**content) {
        Some(Value::Array(parts)) => parts.as_slice(),
        Some(part) => std::slice::from_ref(part),
        None => &[],
    };
    let texts: Vec<&str> =
        parts.iter().filter_map(|part| part.get("text").unwrap_or(part).as_str()).collect();
    texts.join("\n")
}
