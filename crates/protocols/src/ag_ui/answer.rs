//! The answer that the model is writing: what of it the client has, and what is still to be sent.

use super::event::AgUiKind;
use super::message::reasoning_id;

#[derive(Clone, Debug)]
pub(super) struct AgUiAnswer {
    pub(super) message_id: String,
    /// A delta of an earlier attempt does not count any more.
    pub(super) attempt: u32,
    text: AgUiPart,
    reasoning: AgUiPart,
}

#[derive(Clone, Debug, Default)]
struct AgUiPart {
    sent: String,
    sent_chars: u64,
    is_open: bool,
}

impl AgUiPart {
    /// What of this delta the client does not have. A delta behind a gap is left out: the whole text follows later.
    fn unsent<'t>(&self, offset: u64, text: &'t str) -> &'t str {
        let Some(skip) = self.sent_chars.checked_sub(offset).and_then(|skip| usize::try_from(skip).ok())
        else {
            return "";
        };
        let rest = text.char_indices().nth(skip).map(|(at, _)| at);
        rest.and_then(|at| text.get(at..)).unwrap_or_default()
    }

    fn record(&mut self, text: &str) {
        self.sent.push_str(text);
        self.sent_chars += text.chars().count() as u64;
    }
}

impl AgUiAnswer {
    pub(super) fn new(message_id: &str, attempt: u32) -> Self {
        let (text, reasoning) = (AgUiPart::default(), AgUiPart::default());
        Self { message_id: message_id.to_owned(), attempt, text, reasoning }
    }

    pub(super) fn shows_text(&self) -> bool {
        !self.text.sent.is_empty()
    }

    /// The id of the reasoning that the client has a part of.
    pub(super) fn shown_reasoning(&self) -> Option<String> {
        (!self.reasoning.sent.is_empty()).then(|| reasoning_id(&self.message_id))
    }

    pub(super) fn text_delta(&mut self, offset: u64, text: &str, out: &mut Vec<AgUiKind>) {
        let unsent = self.text.unsent(offset, text);
        self.send_text(unsent, out);
    }

    pub(super) fn reasoning_delta(&mut self, offset: u64, text: &str, out: &mut Vec<AgUiKind>) {
        let unsent = self.reasoning.unsent(offset, text);
        self.send_reasoning(unsent, out);
    }

    /// Sends what is missing of the whole answer and closes it. Returns false if what was sent is not how the answer
    /// begins, so that the client has to be corrected. Reasoning that the log does not keep stays as it was shown.
    pub(super) fn complete(mut self, text: &str, reasoning: Option<&str>, out: &mut Vec<AgUiKind>) -> bool {
        let thought = reasoning.unwrap_or(&self.reasoning.sent).to_owned();
        let missing = (thought.strip_prefix(&self.reasoning.sent), text.strip_prefix(&self.text.sent));
        if let (Some(thought), Some(text)) = missing {
            self.send_reasoning(thought, out);
            self.send_text(text, out);
        }
        let is_right = missing.0.is_some() && missing.1.is_some();
        self.close(out);
        is_right
    }

    pub(super) fn close(&mut self, out: &mut Vec<AgUiKind>) {
        self.close_reasoning(out);
        if self.text.is_open {
            self.text.is_open = false;
            out.push(AgUiKind::TextMessageEnd { message_id: self.message_id.clone() });
        }
    }

    /// The first text ends the reasoning for the client, which shows it as finished.
    fn send_text(&mut self, delta: &str, out: &mut Vec<AgUiKind>) {
        if delta.is_empty() {
            return;
        }
        self.close_reasoning(out);
        let message_id = self.message_id.clone();
        if !self.text.is_open {
            self.text.is_open = true;
            out.push(AgUiKind::TextMessageStart { message_id: message_id.clone(), role: "assistant" });
        }
        self.text.record(delta);
        out.push(AgUiKind::TextMessageContent { message_id, delta: delta.to_owned() });
    }

    fn send_reasoning(&mut self, delta: &str, out: &mut Vec<AgUiKind>) {
        if delta.is_empty() {
            return;
        }
        let message_id = reasoning_id(&self.message_id);
        if !self.reasoning.is_open {
            self.reasoning.is_open = true;
            out.push(AgUiKind::ReasoningStart { message_id: message_id.clone() });
            out.push(AgUiKind::ReasoningMessageStart { message_id: message_id.clone(), role: "reasoning" });
        }
        self.reasoning.record(delta);
        out.push(AgUiKind::ReasoningMessageContent { message_id, delta: delta.to_owned() });
    }

    fn close_reasoning(&mut self, out: &mut Vec<AgUiKind>) {
        if self.reasoning.is_open {
            self.reasoning.is_open = false;
            let message_id = reasoning_id(&self.message_id);
            out.push(AgUiKind::ReasoningMessageEnd { message_id: message_id.clone() });
            out.push(AgUiKind::ReasoningEnd { message_id });
        }
    }
}
