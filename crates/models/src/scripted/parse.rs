//! Parses scripts, so that every error names its location and how to fix it.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use engine::model::{ModelAnswer, ModelCall};
use machine::json_text::{self, Bounds};
use regex::Regex;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Reply, Rule, Script, When};

/// Why a text is not a valid script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// A path such as `rules[0].replies[2].text`; empty for the whole script.
    pub path: String,
    /// What is wrong there and how to fix it.
    pub what: String,
}

impl ScriptError {
    fn at(path: &str, what: impl fmt::Display) -> Self {
        Self { path: path.to_owned(), what: what.to_string() }
    }

    /// Line numbers are relative to the parsed fragment and would mislead, so the path is reported instead.
    fn from_serde(path: &str, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        Self::at(path, text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what))
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the script" } else { &self.path };
        write!(f, "{path}: {}", self.what)
    }
}

impl Error for ScriptError {}

pub(super) fn script(text: &str) -> Result<Script, ScriptError> {
    let whole: &RawValue = serde_json::from_str(text)
        .map_err(|error| ScriptError::at("", format!("this is not JSON: {error}; correct it there")))?;
    let mut fields = Fields::read(whole, String::new(), &["rules"])?;
    let rules = fields.items("rules")?.unwrap_or_default();
    if rules.is_empty() {
        return Err(ScriptError::at(
            "rules",
            "there is no rule; write {\"rules\": [{\"when\": \".*\", \"replies\": [{\"text\": \"…\"}]}]}",
        ));
    }
    let rules = rules.into_iter().map(|(path, part)| rule(part, path)).collect::<Result<_, _>>()?;
    Ok(Script { rules })
}

fn rule(part: &RawValue, path: String) -> Result<Rule, ScriptError> {
    let mut fields = Fields::read(part, path, &["when", "replies"])?;
    let at_when = fields.path_of("when");
    let pattern: String = fields
        .value("when")?
        .ok_or_else(|| ScriptError::at(&at_when, "it is missing; \".*\" matches every user message"))?;
    let when = Regex::new(&pattern).map_err(|error| {
        ScriptError::at(&at_when, format!("this is not a regular expression: {error}; correct the pattern"))
    })?;
    let replies = fields.items("replies")?.unwrap_or_default();
    if replies.is_empty() {
        let what = "the rule has no reply; give it one, for example {\"text\": \"…\"}";
        return Err(ScriptError::at(&fields.path_of("replies"), what));
    }
    let replies = replies.into_iter().map(|(path, part)| reply(part, path)).collect::<Result<_, _>>()?;
    Ok(Rule { when: When::Matches(when), replies })
}

const REPLY_KEYS: [&str; 7] =
    ["text", "reasoning", "tool_calls", "usage", "delta_chars", "delay_ms", "error"];

fn reply(part: &RawValue, path: String) -> Result<Reply, ScriptError> {
    let mut fields = Fields::read(part, path, &REPLY_KEYS)?;
    let delay = Duration::from_millis(fields.value("delay_ms")?.unwrap_or_default());
    if let Some((path, error)) = fields.part("error") {
        if let Some(other) = fields.first_key() {
            let what =
                format!("`{other}` is set beside `error`, but a reply that fails says nothing; keep one");
            return Err(ScriptError::at(&fields.path, what));
        }
        return Ok(failure(error, path)?.after(delay));
    }
    let text: Option<String> = fields.value("text")?;
    let calls = fields.items("tool_calls")?.unwrap_or_default();
    if text.is_none() && calls.is_empty() {
        let what = "the reply has neither `text` nor `tool_calls` nor `error`; give it one of them";
        return Err(ScriptError::at(&fields.path, what));
    }
    let mut answer = ModelAnswer::text(text.unwrap_or_default());
    answer.reasoning = fields.value("reasoning")?;
    answer.calls = calls.into_iter().map(|(path, part)| call(part, path)).collect::<Result<_, _>>()?;
    if let Some((path, usage)) = fields.part("usage") {
        let mut usage = Fields::read(usage, path, &["input_tokens", "output_tokens"])?;
        answer.usage.input_tokens = usage.value("input_tokens")?.unwrap_or_default();
        answer.usage.output_tokens = usage.value("output_tokens")?.unwrap_or_default();
    }
    let delta_chars = match fields.value::<usize>("delta_chars")? {
        Some(count) => Some(NonZeroUsize::new(count).ok_or_else(|| {
            let what = "a delta has at least 1 character; without `delta_chars` each part is one delta";
            ScriptError::at(&fields.path_of("delta_chars"), what)
        })?),
        None => None,
    };
    Ok(Reply::answer(answer, delta_chars).after(delay))
}

fn failure(part: &RawValue, path: String) -> Result<Reply, ScriptError> {
    let mut fields = Fields::read(part, path, &["status", "message", "retry_after_ms"])?;
    let status: u16 = fields.needed("status", "a number from 400 to 599")?;
    if !(400..=599).contains(&status) {
        let what = format!("{status} is not the status of an error; use one from 400 to 599");
        return Err(ScriptError::at(&fields.path_of("status"), what));
    }
    let message: String = fields.needed("message", "a text that says what went wrong")?;
    let reply = Reply::error(status, &message);
    Ok(match fields.value("retry_after_ms")? {
        Some(wait_ms) => reply.retry_after_ms(wait_ms),
        None => reply,
    })
}

fn call(part: &RawValue, path: String) -> Result<ModelCall, ScriptError> {
    let mut fields = Fields::read(part, path, &["id", "name", "arguments", "arguments_text"])?;
    let id: Option<String> = fields.value("id")?;
    let tool: String = fields.needed("name", "the name of the tool")?;
    let arguments = match (fields.part("arguments"), fields.value("arguments_text")?) {
        (Some(_), Some(_)) => {
            let what =
                "`arguments_text` is set beside `arguments`, but a call has one or the other; keep one";
            return Err(ScriptError::at(&fields.path, what));
        }
        // Arguments that would be invalid from a real model stay as text, for example with a duplicate key.
        (Some((_, part)), None) => match json_text::parse(part.get(), &Bounds::VALUE) {
            Ok(value) => value.to_string(),
            Err(_) => part.get().to_owned(),
        },
        (None, Some(text)) => text,
        (None, None) => "{}".to_owned(),
    };
    Ok(ModelCall { id: id.unwrap_or_default(), tool, arguments })
}

/// An object with its path. Each key is known and occurs once; reading a key removes it.
struct Fields<'a> {
    path: String,
    parts: BTreeMap<String, &'a RawValue>,
}

impl<'a> Fields<'a> {
    fn read(part: &'a RawValue, path: String, known: &[&str]) -> Result<Self, ScriptError> {
        let entries: Entries<'a> =
            serde_json::from_str(part.get()).map_err(|error| ScriptError::from_serde(&path, &error))?;
        let mut parts = BTreeMap::new();
        for (key, value) in entries.0 {
            if !known.contains(&key.as_str()) {
                let what = format!("unknown key `{key}`; the keys here are {}", known.join(", "));
                return Err(ScriptError::at(&path, what));
            }
            if parts.contains_key(&key) {
                return Err(ScriptError::at(&path, format!("the key `{key}` appears twice; keep one")));
            }
            parts.insert(key, value);
        }
        Ok(Self { path, parts })
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn part(&mut self, key: &str) -> Option<(String, &'a RawValue)> {
        let part = self.parts.remove(key)?;
        Some((self.path_of(key), part))
    }

    fn value<T: Deserialize<'a>>(&mut self, key: &str) -> Result<Option<T>, ScriptError> {
        let Some((path, part)) = self.part(key) else { return Ok(None) };
        serde_json::from_str(part.get()).map(Some).map_err(|error| ScriptError::from_serde(&path, &error))
    }

    fn needed<T: Deserialize<'a>>(&mut self, key: &str, meaning: &str) -> Result<T, ScriptError> {
        let value = self.value(key)?;
        value.ok_or_else(|| ScriptError::at(&self.path_of(key), format!("it is missing; write {meaning}")))
    }

    fn items(&mut self, key: &str) -> Result<Option<Vec<(String, &'a RawValue)>>, ScriptError> {
        let path = self.path_of(key);
        let items = self.value::<Vec<&'a RawValue>>(key)?;
        Ok(items.map(|items| {
            items.into_iter().enumerate().map(|(index, item)| (format!("{path}[{index}]"), item)).collect()
        }))
    }

    /// The first key that has not been read.
    fn first_key(&self) -> Option<&str> {
        self.parts.keys().next().map(String::as_str)
    }
}

/// The keys and values of an object as written, including repeated keys, which a map would drop.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}
