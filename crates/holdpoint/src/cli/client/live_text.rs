//! Joins events and deltas to one growing text: the deltas of an answer form one line.

use serde_json::Value;

use super::event_formatter::{EventFormatter, MARGIN};
use super::terminal_text::escaped;
use super::wire::Event;

/// Takes every frame of a stream, even across several connections.
#[derive(Debug)]
pub(super) struct LiveText {
    formatter: EventFormatter,
    answer: Option<PartialAnswer>,
}

/// An answer that is still streaming.
#[derive(Debug)]
struct PartialAnswer {
    message: String,
    attempt: u64,
    /// How many characters of it were printed.
    printed: u64,
    /// The line is not terminated yet.
    line_is_open: bool,
}

impl LiveText {
    pub(super) fn starting_at(start: Option<i64>) -> Self {
        Self { formatter: EventFormatter::starting_at(start), answer: None }
    }

    /// Returns the text to append.
    pub(super) fn process(&mut self, event: &Event) -> String {
        let payload = &event.payload;
        match event.kind.as_str() {
            "text.delta" => self.process_text_delta(payload),
            // Arguments come complete with the event that requests the call; reasoning is not shown.
            "reasoning.delta" | "tool.arguments_delta" => String::new(),
            "step.reset" => {
                let end = self.finish_line();
                self.answer = None;
                format!(
                    "{end}{}  The text so far is discarded; the model starts again.\n",
                    self.formatter.time()
                )
            }
            "tool.log" => self.note(payload, "says", &escaped(payload["text"].as_str().unwrap_or_default())),
            "tool.progress" => {
                self.note(payload, "is at", &super::terminal_text::compact(&payload["progress"]))
            }
            _ => self.process_event(event),
        }
    }

    /// What to print before any other output: ends an unfinished line.
    pub(super) fn finish_line(&mut self) -> &'static str {
        match &mut self.answer {
            Some(answer) if answer.line_is_open => {
                answer.line_is_open = false;
                "\n"
            }
            Some(_) | None => "",
        }
    }

    fn process_text_delta(&mut self, payload: &Value) -> String {
        let message = payload["message_id"].as_str().unwrap_or_default();
        let attempt = payload["attempt"].as_u64().unwrap_or_default();
        let offset = payload["offset"].as_u64().unwrap_or_default();
        let text = payload["text"].as_str().unwrap_or_default();
        let mut added = String::new();
        let is_same =
            self.answer.as_ref().is_some_and(|known| known.message == message && known.attempt == attempt);
        if !is_same {
            added.push_str(self.finish_line());
            self.answer =
                Some(PartialAnswer { message: message.to_owned(), attempt, printed: 0, line_is_open: false });
        }
        let time = self.formatter.time();
        let Some(answer) = &mut self.answer else { return added };
        // After a reconnect the server repeats the text so far.
        let known = usize::try_from(answer.printed.saturating_sub(offset)).unwrap_or(usize::MAX);
        let words: String = text.chars().skip(known).collect();
        if words.is_empty() {
            return added;
        }
        if !answer.line_is_open {
            let begin = if answer.printed == 0 { "The model says: " } else { "The model continues: " };
            added.push_str(&format!("{time}  {begin}"));
            answer.line_is_open = true;
        }
        answer.printed = offset.max(answer.printed) + words.chars().count() as u64;
        added + &with_margin(&words)
    }

    fn process_event(&mut self, event: &Event) -> String {
        let message = &event.payload["message"];
        let content = message["content"].as_str();
        if let (Some(answer), Some(content)) = (&self.answer, content)
            && answer.line_is_open
            && message["id"] == answer.message.as_str()
        {
            // Print only the part that was not printed yet.
            let printed = usize::try_from(answer.printed).unwrap_or(usize::MAX);
            let rest: String = content.chars().skip(printed).collect();
            self.answer = None;
            self.formatter.format_event(event);
            return with_margin(&rest) + "\n";
        }
        let end = self.finish_line();
        match self.formatter.format_event(event) {
            Some(line) => format!("{end}{line}\n"),
            None => end.to_owned(),
        }
    }

    fn note(&mut self, payload: &Value, verb: &str, what: &str) -> String {
        let call = self.formatter.call_label(payload["call_id"].as_str().unwrap_or_default());
        format!("{}{}  {call} {verb}: {what}\n", self.finish_line(), self.formatter.time())
    }
}

fn with_margin(words: &str) -> String {
    let lines: Vec<String> = words.split('\n').map(escaped).collect();
    lines.join(&format!("\n{MARGIN}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn printed_text(events: &[Value]) -> String {
        let mut live = LiveText::starting_at(Some(1_767_225_600_000));
        let process = |event: &Value| live.process(&serde_json::from_value(event.clone()).expect("a frame"));
        events.iter().map(process).collect()
    }

    fn words(offset: u64, text: &str) -> Value {
        json!({"type": "text.delta", "payload":
            {"message_id": "m", "attempt": 1, "index": 0, "offset": offset, "text": text}})
    }

    fn added(text: &str) -> Value {
        json!({"seq": 5, "type": "message.added", "ts": "2026-01-01T00:00:01.000Z", "payload":
            {"message": {"id": "m", "role": "assistant", "content": text}}})
    }

    #[test]
    fn deltas_are_joined_and_the_message_adds_only_what_is_missing() {
        let text =
            printed_text(&[words(0, "Hel"), words(3, "lo,\n"), words(7, "Bob"), added("Hello,\nBob.")]);
        assert_eq!(text, "+0:00:00.000  The model says: Hello,\n              | Bob.\n");
    }

    #[test]
    fn text_repeated_after_a_reconnect_is_printed_once() {
        let text =
            printed_text(&[words(0, "Hel"), words(0, "Hello"), words(2, "llo, Bob"), added("Hello, Bob.")]);
        assert_eq!(text, "+0:00:00.000  The model says: Hello, Bob.\n");
    }

    #[test]
    fn an_event_in_between_ends_the_line_and_the_message_is_printed_whole() {
        let waiting =
            json!({"seq": 4, "type": "run.resumed", "ts": "2026-01-01T00:00:00.500Z", "payload": {}});
        let text = printed_text(&[words(0, "Hel"), waiting, added("Hello.")]);
        assert_eq!(
            text,
            "+0:00:00.000  The model says: Hel\n+0:00:00.500  The run no longer waits.\n+0:00:01.000  The model says: Hello.\n"
        );
    }

    #[test]
    fn a_restarted_answer_is_printed_again_and_escapes_stay_escaped() {
        let reset = json!({"type": "step.reset", "payload": {"message_id": "m", "attempt": 2}});
        let again = json!({"type": "text.delta", "payload":
            {"message_id": "m", "attempt": 2, "index": 0, "offset": 0, "text": "B\u{1b}[2J"}});
        assert_eq!(
            printed_text(&[words(0, "A"), reset, again, added("B\u{1b}[2J")]),
            "+0:00:00.000  The model says: A\n\
             +0:00:00.000  The text so far is discarded; the model starts again.\n\
             +0:00:00.000  The model says: B\\u001b[2J\n"
        );
    }

    #[test]
    fn tool_reports_are_printed_and_reasoning_is_not() {
        let log = json!({"type": "tool.log", "payload": {"call_id": "c", "attempt": 1, "text": "half\n"}});
        let progress =
            json!({"type": "tool.progress", "payload": {"call_id": "c", "attempt": 1, "progress": 50}});
        let thought = json!({"type": "reasoning.delta", "payload": {"message_id": "m", "text": "hm"}});
        assert_eq!(
            printed_text(&[log, progress, thought]),
            "+0:00:00.000  c says: half\\n\n+0:00:00.000  c is at: 50\n"
        );
    }
}
