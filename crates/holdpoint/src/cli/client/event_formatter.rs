//! Formats the log of a run for people: a short sentence for each event, with the time since the start.
//!
//! Pure: the same events always give the same text. An event of an unknown type is shown by its name only.

use std::collections::BTreeMap;

use serde_json::Value;

use super::terminal_text::{compact, cut, escaped, lines};
use super::times;
use super::wire::{Event, with_via};

/// Limit for an argument, a result or a message. `--json` prints all of it.
const TEXT_CHARS_MAX: usize = 2_000;
/// Comes after the column of times, before every further line of a text.
pub(super) const MARGIN: &str = "              | ";

/// Takes every event in order.
#[derive(Debug, Default)]
pub(super) struct EventFormatter {
    start: Option<i64>,
    last: i64,
    /// The tool of every call that has not ended.
    tools: BTreeMap<String, String>,
}

impl EventFormatter {
    /// Without a known start, the first event is the start.
    pub(super) fn starting_at(start: Option<i64>) -> Self {
        Self { start, last: start.unwrap_or_default(), tools: BTreeMap::new() }
    }

    /// None if the event only repeats what other events have reported.
    pub(super) fn format_event(&mut self, event: &Event) -> Option<String> {
        if let Some(at) = event.ts.as_deref().and_then(times::parse_ms) {
            self.start.get_or_insert(at);
            self.last = at;
        }
        let sentence = self.sentence(event)?;
        Some(format!("{}  {sentence}", self.time()))
    }

    /// The time of the last event.
    pub(super) fn time(&self) -> String {
        times::elapsed(self.start.unwrap_or(self.last), self.last)
    }

    fn sentence(&mut self, event: &Event) -> Option<String> {
        let payload = &event.payload;
        let call = self.note_call(payload);
        Some(match event.kind.as_str() {
            "event.unreadable" => "An event of the run cannot be decoded.".to_owned(),
            "run.queued" => "The run is queued.".to_owned(),
            "run.started" => "The run begins.".to_owned(),
            "run.resumed" => "The run no longer waits.".to_owned(),
            "run.interrupting" => match payload["by"].as_str() {
                Some(by) => format!("{} interrupts the run.", with_via(by, payload["via"].as_str())),
                None => "The run is being interrupted.".to_owned(),
            },
            "run.waiting" => format!("The run waits for {}.", describe_pending(&payload["pending"])),
            "run.ending" => format!("The run is about to end: {}.", termination(&payload["termination"])),
            "run.completed" | "run.failed" | "run.interrupted" => ended(payload),
            "run.recovered" => self.recovered(payload),
            "step.started" => format!("Step {}: the model is asked.", payload["step"]),
            "step.ended" => return None,
            "message.added" => return message(&payload["message"]),
            "model.retrying" => {
                let why = text(&payload["error"]);
                format!(
                    "The model did not answer ({why}); it is asked again, attempt {}.",
                    payload["attempt"]
                )
            }
            "phase.answered" => plugin(payload),
            "state.changed" => {
                format!("A plugin keeps something new at {}.", text(&payload["patch"][0]["path"]))
            }
            "child.started" => format!("{call} becomes a run of its own: {}.", text(&payload["run_id"])),
            "child.ended" => format!("The run {} of {call} has ended.", text(&payload["run_id"])),
            other if other.starts_with("tool.") => self.call_sentence(other, payload, &call),
            other => format!("{}.", escaped(other)),
        })
    }

    fn call_sentence(&mut self, kind: &str, payload: &Value, call: &str) -> String {
        if matches!(
            kind,
            "tool.execution_succeeded" | "tool.execution_failed" | "tool.cancelled" | "tool.denied"
        ) {
            self.tools.remove(payload["call_id"].as_str().unwrap_or_default());
        }
        let by = match payload["by"].as_str() {
            Some(by) => cut(&with_via(by, payload["via"].as_str()), TEXT_CHARS_MAX),
            None => text(&payload["by"]),
        };
        match kind {
            "tool.requested" => format!("The model wants {call} with {}.", json_text(&payload["arguments"])),
            "tool.approval_requested" => {
                let until = payload["expires_at"].as_str().map(|at| format!(", until {}", escaped(at)));
                let until = until.unwrap_or_default();
                format!("{call} is held for approval {}{until}.", text(&payload["approval_id"]))
            }
            "tool.approval_voided" => {
                format!(
                    "Approval {} of {call} counts for nothing: the tool changed.",
                    text(&payload["approval_id"])
                )
            }
            "tool.approved" => match payload.get("arguments") {
                Some(edited) => format!("{by} approves {call}, but with {}.", json_text(edited)),
                None => format!("{by} approves {call}."),
            },
            "tool.denied" => match payload["reason"].as_str() {
                Some(reason) => format!("{by} denies {call}: {}.", bounded(reason)),
                None => format!("{by} denies {call}."),
            },
            "tool.suspended" => suspended(payload, call),
            "tool.resumed" => match payload["mode"].as_str() {
                Some("use_decision_as_tool_result") => format!("{by} gives the result of {call}."),
                Some("pass_decision_to_tool") => format!("{by} answers {call}, which runs with the answer."),
                _ => format!("{by} answers {call}, which may run again."),
            },
            "tool.execution_started" => started(payload, call),
            "tool.execution_succeeded" => {
                let warning = payload["warning"].as_str().map(|text| format!(" Warning: {}", bounded(text)));
                format!("{call} succeeded: {}{}", json_text(&payload["result"]), warning.unwrap_or_default())
            }
            "tool.execution_failed" => {
                let error = &payload["error"];
                let (code, why) = (text(&error["code"]), text(&error["message"]));
                format!("{call} failed ({code}): {why}{}", unknown_outcome(payload))
            }
            "tool.cancelled" => {
                format!("{call} is cancelled: {}{}", text(&payload["reason"]), unknown_outcome(payload))
            }
            other => format!("{} of {call}.", escaped(other)),
        }
    }

    /// The tool and the call, as far as they are known.
    fn note_call(&mut self, payload: &Value) -> String {
        let Some(id) = payload["call_id"].as_str() else { return "a call".to_owned() };
        if let Some(tool) = payload["tool"].as_str().filter(|tool| !tool.is_empty()) {
            self.tools.insert(id.to_owned(), tool.to_owned());
        }
        self.call_label(id)
    }

    pub(super) fn call_label(&self, id: &str) -> String {
        match self.tools.get(id) {
            Some(tool) => format!("{} ({})", escaped(tool), escaped(id)),
            None => escaped(id),
        }
    }

    fn recovered(&self, payload: &Value) -> String {
        let lost: Vec<String> = entries(&payload["lost"])
            .map(|lost| {
                let call = self.call_label(lost["call_id"].as_str().unwrap_or_default());
                format!("attempt {} of {call}", lost["attempt"])
            })
            .collect();
        match lost.as_slice() {
            [] => "The process died; another one continues the run.".to_owned(),
            lost => format!("The process died with {}; another one continues.", lost.join(" and ")),
        }
    }
}

fn entries(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

/// A text by a person, a model or a tool, in one line.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| json_text(value), bounded)
}

fn bounded(text: &str) -> String {
    cut(&escaped(text), TEXT_CHARS_MAX)
}

fn json_text(value: &Value) -> String {
    cut(&compact(value), TEXT_CHARS_MAX)
}

fn describe_pending(pending: &Value) -> String {
    let waits: Vec<String> = entries(pending)
        .map(|held| describe_wait(text(&held["kind"]), text(&held["tool"]), held["approval_id"].as_str()))
        .collect();
    if waits.is_empty() { "a decision".to_owned() } else { waits.join(" and ") }
}

/// What a held call waits for. `tool` is already escaped.
pub(super) fn describe_wait(kind: String, tool: String, approval: Option<&str>) -> String {
    let what = match kind.as_str() {
        "approval" => format!("the approval of {tool}"),
        "question" => format!("an answer to {tool}"),
        "in_doubt" => format!("a person to say what happened to {tool}"),
        "client_tool" => format!("the front end to do {tool}"),
        "external" => format!("the result of {tool} from outside"),
        "child_run" => format!("the run of {tool}"),
        _ => format!("{tool} ({kind})"),
    };
    approval.map_or(what.clone(), |id| format!("{what}, {}", escaped(id)))
}

fn suspended(payload: &Value, call: &str) -> String {
    let question = payload["question"].as_str().map(bounded);
    let kind = text(&payload["kind"]);
    let what = match kind.as_str() {
        "question" => match &question {
            Some(question) => return format!("{call} asks: {question}"),
            None => "asks something",
        },
        "in_doubt" => {
            let why = question.map(|why| format!(" ({why})")).unwrap_or_default();
            return format!("{call} is in doubt{why}: it may or may not have taken effect.");
        }
        "client_tool" => "is for the front end to do",
        "external" => "runs outside; its result will be posted",
        "child_run" => "is done by another agent",
        other => return format!("{call} is held: {other}."),
    };
    question.map_or_else(|| format!("{call} {what}."), |question| format!("{call} {what}: {question}"))
}

fn started(payload: &Value, call: &str) -> String {
    let mut sentence = format!("{call} runs");
    if payload["attempt"].as_u64().is_some_and(|attempt| attempt > 1) {
        sentence.push_str(&format!(", attempt {}", payload["attempt"]));
    }
    if let Some(rule) = payload["rule"].as_u64() {
        sentence.push_str(&format!(", allowed by rule {rule}"));
    }
    if let Some(by) = payload["let_through_by"].as_str() {
        let by = with_via(by, payload["let_through_via"].as_str());
        sentence.push_str(&format!(", let through by {by}"));
    }
    sentence + "."
}

fn unknown_outcome(payload: &Value) -> &'static str {
    if payload["outcome_unknown"] == true { "; it may have taken effect." } else { "." }
}

fn message(message: &Value) -> Option<String> {
    let content = &message["content"];
    let said = match content.as_str() {
        Some(text) => cut(&lines(text, MARGIN), TEXT_CHARS_MAX),
        None => json_text(content),
    };
    match message["role"].as_str() {
        Some("user") => Some(match message["by"].as_str() {
            Some(by) => format!("The user ({}) says: {said}", with_via(by, message["via"].as_str())),
            None => format!("The user says: {said}"),
        }),
        // A model that only asks for calls has no text to show.
        Some("assistant") if said.is_empty() => None,
        Some("assistant") => Some(match message["model"].as_str() {
            Some(model) => format!("The model ({}) says: {said}", escaped(model)),
            None => format!("The model says: {said}"),
        }),
        // The event of the result has reported it already. A placeholder has no such event.
        Some("tool") if message["status"] != "suspended" => None,
        Some(_) | None => Some(format!("The model will read: {said}")),
    }
}

fn plugin(payload: &Value) -> String {
    let (name, phase) = (text(&payload["plugin"]), text(&payload["phase"]));
    if let Some(why) = payload["failed"].as_str() {
        return format!("The plugin {name} failed in {phase}: {}", bounded(why));
    }
    let actions: Vec<String> = entries(&payload["actions"]).map(|action| text(&action["type"])).collect();
    format!("The plugin {name} acts in {phase}: {}.", actions.join(", "))
}

fn termination(how: &Value) -> String {
    let parts = [&how["reason"], &how["code"], &how["detail"]];
    let parts: Vec<String> = parts.into_iter().filter(|part| part.is_string()).map(text).collect();
    parts.join(", ")
}

fn ended(payload: &Value) -> String {
    let usage = &payload["usage"];
    let mut sentence = format!(
        "The run is {}: {}. Tokens: {} in, {} out.",
        text(&payload["status"]),
        termination(&payload["termination"]),
        usage["input_tokens"].as_u64().unwrap_or_default(),
        usage["output_tokens"].as_u64().unwrap_or_default()
    );
    if let Some(output) = payload.get("output") {
        sentence.push_str(&format!(" Output: {}", json_text(output)));
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(log: &str) -> Vec<String> {
        let mut formatter = EventFormatter::default();
        log.lines()
            .filter_map(|line| formatter.format_event(&serde_json::from_str(line).expect("an event")))
            .collect()
    }

    #[test]
    fn a_held_call_is_shown_from_the_question_to_the_final_answer() {
        let log = include_str!("../../../../http/tests/golden/one_held_call.jsonl");
        assert_eq!(
            formatted(log),
            [
                "+0:00:00.000  The run is queued.",
                "+0:00:00.010  The run begins.",
                "+0:00:00.010  The user says: Send Bob 5 euros.",
                "+0:00:00.010  Step 1: the model is asked.",
                "+0:00:00.910  The model says: I will transfer it.",
                "+0:00:00.910  The model wants transfer (call_1) with {\"amount\":5,\"to\":\"bob\"}.",
                "+0:00:00.915  transfer (call_1) is held for approval apr_1, until 2026-01-02T00:00:00.915Z.",
                "+0:00:00.915  The run waits for the approval of transfer, apr_1.",
                "+2:00:00.915  ana approves transfer (call_1).",
                "+2:00:00.915  The run no longer waits.",
                "+2:00:00.920  transfer (call_1) runs.",
                "+2:00:01.420  transfer (call_1) succeeded: {\"receipt\":\"r-77\"}",
                "+2:00:01.420  Step 2: the model is asked.",
                "+2:00:02.420  The model says: Bob has his 5 euros.",
                "+2:00:02.420  The run is completed: natural_end. Tokens: 60 in, 27 out.",
            ]
        );
    }

    #[test]
    fn a_crash_a_doubt_and_its_resolver_are_shown() {
        let log = include_str!("../../../../http/tests/golden/killed_between_commit_and_answer.jsonl");
        assert_eq!(
            formatted(log).get(5..12).expect("the story continues"),
            [
                "+0:00:00.510  post (call_1) runs, allowed by rule 0.",
                "+0:01:00.000  The process died with attempt 1 of post (call_1); another one continues.",
                "+0:01:10.000  post (call_1) is in doubt: it may or may not have taken effect.",
                "+0:01:10.000  The run waits for a person to say what happened to post, apr_1.",
                "+1:01:10.000  ana gives the result of post (call_1).",
                "+1:01:10.000  The run no longer waits.",
                "+1:01:10.000  post (call_1) succeeded: {\"post\":41}",
            ]
        );
    }

    #[test]
    fn the_caller_who_sent_a_message_or_interrupted_the_run_is_named() {
        let sent = formatted(include_str!("../../../../http/tests/golden/named_sender.jsonl"));
        assert_eq!(
            sent.get(2).map(String::as_str),
            Some("+0:00:00.040  The user (ana) says: What is the capital of France?")
        );
        let interrupted = formatted(include_str!("../../../../http/tests/golden/interrupted_write.jsonl"));
        assert!(
            interrupted.contains(&"+0:00:05.700  ana interrupts the run.".to_owned()),
            "{interrupted:#?}"
        );
        // A later message superseded the run, so there is no caller to name.
        let superseded =
            formatted(include_str!("../../../../http/tests/golden/superseded_while_waiting.jsonl"));
        assert!(
            superseded.contains(&"+0:00:30.415  The run is being interrupted.".to_owned()),
            "{superseded:#?}"
        );
    }

    #[test]
    fn every_golden_log_is_formatted_as_sentences_without_json() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../http/tests/golden");
        let mut logs = 0;
        for entry in std::fs::read_dir(folder).expect("the logs are there") {
            let path = entry.expect("an entry").path();
            let log = std::fs::read_to_string(&path).expect("a log");
            let lines = formatted(&log);
            logs += 1;
            assert!(lines.last().is_some_and(|last| last.contains("  The run is ")), "{lines:#?}");
            for line in &lines {
                let sentence = line.split_once("  ").expect("a time and a sentence").1;
                // A type without a sentence would be shown by its name.
                assert!(!sentence.starts_with("tool.") && !sentence.starts_with("run."), "{path:?}: {line}");
                assert!(!sentence.contains("null") && !sentence.contains("a call"), "{path:?}: {line}");
            }
        }
        assert!(logs > 10, "{logs}");
    }

    #[test]
    fn a_message_cannot_forge_a_line_of_the_log() {
        let forged = serde_json::json!({"seq": 1, "type": "message.added", "ts": "2026-01-01T00:00:00.000Z",
            "payload": {"message": {"role": "assistant", "content": "Hi.\n+0:00:00.000  ana approves pay\u{1b}[1A"}}});
        let event: Event = serde_json::from_value(forged).expect("an event");
        assert_eq!(
            EventFormatter::default().format_event(&event).as_deref(),
            Some(
                "+0:00:00.000  The model says: Hi.\n              | +0:00:00.000  ana approves pay\\u001b[1A"
            )
        );
    }

    #[test]
    fn an_unknown_event_type_is_shown_by_its_name() {
        let event = r#"{"seq":1,"type":"moon.risen","ts":"2026-01-01T00:00:00.000Z","payload":{}}"#;
        assert_eq!(formatted(event), ["+0:00:00.000  moon.risen."]);
    }
}
