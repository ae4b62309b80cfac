//! Text and reasoning of the model's answer in one step: every character is sent exactly once, live or at the end.

use crate::ai_sdk::chunk::Chunk;
use crate::ai_sdk::seen::Seen;

/// The chunks of one answer. Deltas can repeat text, skip text or stop early; the event with the whole answer supplies
/// what is missing.
///
/// Early clients cannot remove text that they have shown. If the model starts over, the part with the text so far ends
/// with a mark in its provider metadata, and the new attempt begins a part of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct StepAnswer {
    step: u32,
    /// Identifies the deltas of this answer.
    message_id: String,
    /// None until a delta has arrived.
    attempt: Option<u32>,
    reasoning: PartProgress,
    text: PartProgress,
    /// Number of parts that have begun.
    part_count: u32,
    /// The client has all of it.
    is_complete: bool,
}

#[derive(Clone, Debug, Default)]
struct PartProgress {
    /// What the client has of the current attempt.
    sent: String,
    sent_chars: u64,
    /// The id of the part in the stream.
    open: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerPart {
    Reasoning,
    Text,
}

impl StepAnswer {
    pub(super) fn new(step: u32, message_id: &str) -> Self {
        Self { step, message_id: message_id.into(), ..Self::default() }
    }

    /// For a step that the client has. Only its last step can lack text, and only if no call follows the text.
    pub(super) fn for_seen_step(step: u32, message_id: &str, seen: &Seen) -> Self {
        let is_complete = step < seen.steps || seen.tool_in_last_step();
        let (reasoning, text) =
            (PartProgress::with_sent(&seen.reasoning), PartProgress::with_sent(&seen.text));
        Self { reasoning, text, is_complete, ..Self::new(step, message_id) }
    }

    /// Whether a message of this id is the answer.
    pub(super) fn is_of(&self, message_id: &str) -> bool {
        self.message_id == message_id
    }

    /// `of`: the message id and the attempt.
    pub(super) fn delta(
        &mut self,
        part: AnswerPart,
        of: (&str, u32),
        offset: u64,
        text: &str,
        out: &mut Vec<Chunk>,
    ) {
        let (message_id, attempt) = of;
        if self.is_complete || !self.is_of(message_id) || self.attempt.is_some_and(|known| attempt < known) {
            return;
        }
        // A reset is not announced to a reader that had received nothing.
        if self.attempt.is_some_and(|known| attempt > known) {
            self.discard(out);
        }
        self.attempt = Some(attempt);
        // Front ends show that the model is reasoning until that part ends.
        if part == AnswerPart::Text {
            self.close(AnswerPart::Reasoning, false, out);
        }
        if let Some(news) = self.progress(part).missing_from(offset, text) {
            self.send(part, news, out);
        }
    }

    /// The model starts over.
    pub(super) fn reset(&mut self, message_id: &str, attempt: u32, out: &mut Vec<Chunk>) {
        if !self.is_complete && self.is_of(message_id) && self.attempt.is_none_or(|known| known < attempt) {
            self.discard(out);
            self.attempt = Some(attempt);
        }
    }

    /// Sends what the client lacks of the whole answer.
    pub(super) fn finish(&mut self, reasoning: &str, text: &str, out: &mut Vec<Chunk>) {
        if self.is_complete {
            return;
        }
        self.finish_part(AnswerPart::Reasoning, reasoning, out);
        self.finish_part(AnswerPart::Text, text, out);
        self.is_complete = true;
    }

    /// Ends what is open. The whole answer may still follow.
    pub(super) fn close_open(&mut self, out: &mut Vec<Chunk>) {
        self.close(AnswerPart::Reasoning, false, out);
        self.close(AnswerPart::Text, false, out);
    }

    fn finish_part(&mut self, part: AnswerPart, whole: &str, out: &mut Vec<Chunk>) {
        match whole.strip_prefix(&*self.progress(part).sent) {
            Some(rest) => self.send(part, rest, out),
            None => {
                // The deltas were of another answer.
                self.close(part, true, out);
                *self.progress(part) = PartProgress::default();
                self.send(part, whole, out);
            }
        }
        self.close(part, false, out);
    }

    fn discard(&mut self, out: &mut Vec<Chunk>) {
        for part in [AnswerPart::Reasoning, AnswerPart::Text] {
            self.close(part, true, out);
            *self.progress(part) = PartProgress::default();
        }
    }

    fn send(&mut self, part: AnswerPart, news: &str, out: &mut Vec<Chunk>) {
        if news.is_empty() {
            return;
        }
        let id = match self.progress(part).open.clone() {
            Some(id) => id,
            None => {
                self.part_count = self.part_count.saturating_add(1);
                let id = format!("{}-{}.{}", part.id_prefix(), self.step, self.part_count);
                out.push(part.start(id.clone()));
                self.progress(part).open = Some(id.clone());
                id
            }
        };
        let progress = self.progress(part);
        progress.sent.push_str(news);
        progress.sent_chars = progress.sent_chars.saturating_add(news.chars().count() as u64);
        out.push(part.delta(id, news.into()));
    }

    fn close(&mut self, part: AnswerPart, discarded: bool, out: &mut Vec<Chunk>) {
        if let Some(id) = self.progress(part).open.take() {
            out.push(part.end(id, discarded));
        }
    }

    const fn progress(&mut self, part: AnswerPart) -> &mut PartProgress {
        match part {
            AnswerPart::Reasoning => &mut self.reasoning,
            AnswerPart::Text => &mut self.text,
        }
    }
}

impl PartProgress {
    fn with_sent(sent: &str) -> Self {
        Self { sent: sent.into(), sent_chars: sent.chars().count() as u64, open: None }
    }

    /// The part of a delta that was not sent yet. None if text before it is missing.
    fn missing_from<'t>(&self, offset: u64, text: &'t str) -> Option<&'t str> {
        let known = usize::try_from(self.sent_chars.checked_sub(offset)?).ok()?;
        let begin = text.char_indices().nth(known).map_or(text.len(), |(begin, _)| begin);
        text.get(begin..)
    }
}

impl AnswerPart {
    const fn id_prefix(self) -> &'static str {
        match self {
            Self::Reasoning => "rsn",
            Self::Text => "txt",
        }
    }

    const fn start(self, id: String) -> Chunk {
        match self {
            Self::Reasoning => Chunk::ReasoningStart { id },
            Self::Text => Chunk::TextStart { id },
        }
    }

    const fn delta(self, id: String, delta: String) -> Chunk {
        match self {
            Self::Reasoning => Chunk::ReasoningDelta { id, delta },
            Self::Text => Chunk::TextDelta { id, delta },
        }
    }

    const fn end(self, id: String, discarded: bool) -> Chunk {
        match self {
            Self::Reasoning => Chunk::ReasoningEnd { id, discarded },
            Self::Text => Chunk::TextEnd { id, discarded },
        }
    }
}
