//! Events and what is said on the way as one text that grows: the pieces of an answer are joined to one line.

use serde_json::Value;

use super::plain::plain;
use super::story::{MARGIN, Story};
use super::wire::Event;

/// Hears every frame of a stream, also over several connections.
#[derive(Debug)]
pub(super) struct Live {
    story: Story,
    saying: Option<Saying>,
}

/// An answer on its way.
#[derive(Debug)]
struct Saying {
    message: String,
    attempt: u64,
    /// Characters that were told.
    told: u64,
    /// The line has no end yet.
    open: bool,
}

impl Live {
    pub(super) fn beginning(start: Option<i64>) -> Self {
        Self { story: Story::beginning(start), saying: None }
    }

    /// What is added to the text.
    pub(super) fn hear(&mut self, event: &Event) -> String {
        let payload = &event.payload;
        match event.kind.as_str() {
            "text.delta" => self.hear_words(payload),
            // They come whole with the event that asks for the call; what a model thinks is its own affair.
            "reasoning.delta" | "tool.arguments_delta" => String::new(),
            "step.reset" => {
                let end = self.end_of_line();
                self.saying = None;
                format!(
                    "{end}{}  What the model said counts for nothing; it begins again.\n",
                    self.story.time()
                )
            }
            "tool.log" => self.note(payload, "says", &plain(payload["text"].as_str().unwrap_or_default())),
            "tool.progress" => self.note(payload, "is at", &super::plain::compact(&payload["progress"])),
            _ => self.hear_event(event),
        }
    }

    /// What has to come before anything else can be said.
    pub(super) fn end_of_line(&mut self) -> &'static str {
        match &mut self.saying {
            Some(saying) if saying.open => {
                saying.open = false;
                "\n"
            }
            Some(_) | None => "",
        }
    }

    fn hear_words(&mut self, payload: &Value) -> String {
        let message = payload["message_id"].as_str().unwrap_or_default();
        let attempt = payload["attempt"].as_u64().unwrap_or_default();
        let offset = payload["offset"].as_u64().unwrap_or_default();
        let text = payload["text"].as_str().unwrap_or_default();
        let mut added = String::new();
        let is_same =
            self.saying.as_ref().is_some_and(|known| known.message == message && known.attempt == attempt);
        if !is_same {
            added.push_str(self.end_of_line());
            self.saying = Some(Saying { message: message.to_owned(), attempt, told: 0, open: false });
        }
        let time = self.story.time();
        let Some(saying) = &mut self.saying else { return added };
        // After a reconnect the text so far comes again.
        let known = usize::try_from(saying.told.saturating_sub(offset)).unwrap_or(usize::MAX);
        let words: String = text.chars().skip(known).collect();
        if words.is_empty() {
            return added;
        }
        if !saying.open {
            let begin = if saying.told == 0 { "The model says: " } else { "The model goes on: " };
            added.push_str(&format!("{time}  {begin}"));
            saying.open = true;
        }
        saying.told = offset.max(saying.told) + words.chars().count() as u64;
        added + &behind_margin(&words)
    }

    fn hear_event(&mut self, event: &Event) -> String {
        let message = &event.payload["message"];
        let content = message["content"].as_str();
        if let (Some(saying), Some(content)) = (&self.saying, content)
            && saying.open
            && message["id"] == saying.message.as_str()
        {
            // Only what has not been told yet.
            let told = usize::try_from(saying.told).unwrap_or(usize::MAX);
            let rest: String = content.chars().skip(told).collect();
            self.saying = None;
            self.story.tell(event);
            return behind_margin(&rest) + "\n";
        }
        let end = self.end_of_line();
        match self.story.tell(event) {
            Some(line) => format!("{end}{line}\n"),
            None => end.to_owned(),
        }
    }

    fn note(&mut self, payload: &Value, verb: &str, what: &str) -> String {
        let call = self.story.called(payload["call_id"].as_str().unwrap_or_default());
        format!("{}{}  {call} {verb}: {what}\n", self.end_of_line(), self.story.time())
    }
}

fn behind_margin(words: &str) -> String {
    let lines: Vec<String> = words.split('\n').map(plain).collect();
    lines.join(&format!("\n{MARGIN}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(events: &[Value]) -> String {
        let mut live = Live::beginning(Some(1_767_225_600_000));
        let hear = |event: &Value| live.hear(&serde_json::from_value(event.clone()).expect("a frame"));
        events.iter().map(hear).collect()
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
    fn pieces_are_joined_and_the_message_adds_only_what_is_missing() {
        let text = told(&[words(0, "Hel"), words(3, "lo,\n"), words(7, "Bob"), added("Hello,\nBob.")]);
        assert_eq!(text, "+0:00:00.000  The model says: Hello,\n              | Bob.\n");
    }

    #[test]
    fn what_comes_again_after_a_reconnect_is_not_told_again() {
        let text = told(&[words(0, "Hel"), words(0, "Hello"), words(2, "llo, Bob"), added("Hello, Bob.")]);
        assert_eq!(text, "+0:00:00.000  The model says: Hello, Bob.\n");
    }

    #[test]
    fn an_event_in_between_ends_the_line_and_the_message_is_told_whole() {
        let waiting =
            json!({"seq": 4, "type": "run.resumed", "ts": "2026-01-01T00:00:00.500Z", "payload": {}});
        let text = told(&[words(0, "Hel"), waiting, added("Hello.")]);
        assert_eq!(
            text,
            "+0:00:00.000  The model says: Hel\n+0:00:00.500  The run no longer waits.\n+0:00:01.000  The model says: Hello.\n"
        );
    }

    #[test]
    fn an_answer_that_begins_again_is_told_again_and_escapes_stay_escaped() {
        let reset = json!({"type": "step.reset", "payload": {"message_id": "m", "attempt": 2}});
        let again = json!({"type": "text.delta", "payload":
            {"message_id": "m", "attempt": 2, "index": 0, "offset": 0, "text": "B\u{1b}[2J"}});
        assert_eq!(
            told(&[words(0, "A"), reset, again, added("B\u{1b}[2J")]),
            "+0:00:00.000  The model says: A\n\
             +0:00:00.000  What the model said counts for nothing; it begins again.\n\
             +0:00:00.000  The model says: B\\u001b[2J\n"
        );
    }

    #[test]
    fn what_a_tool_reports_is_told_and_what_is_thought_is_not() {
        let log = json!({"type": "tool.log", "payload": {"call_id": "c", "attempt": 1, "text": "half\n"}});
        let progress =
            json!({"type": "tool.progress", "payload": {"call_id": "c", "attempt": 1, "progress": 50}});
        let thought = json!({"type": "reasoning.delta", "payload": {"message_id": "m", "text": "hm"}});
        assert_eq!(
            told(&[log, progress, thought]),
            "+0:00:00.000  c says: half\\n\n+0:00:00.000  c is at: 50\n"
        );
    }
}
