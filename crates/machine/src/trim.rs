//! How much of a long thread the model sees: the newest turns that fit. The log keeps everything.

use alloc::format;
use alloc::string::ToString;
use serde::{Deserialize, Serialize};

use crate::tool::Arguments;
use crate::transcript::{Messages, ModelMessage};

/// The limits of one model call. If none is set, the model sees everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trim {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages_max: Option<u64>,
    /// Total characters of texts and arguments. The instructions are not counted, and are never omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chars_max: Option<u64>,
}

impl Trim {
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        self.messages_max.is_none() && self.chars_max.is_none()
    }

    /// The newest turns that fit, with a line that says how many messages are missing. A turn is a user message, a
    /// note, or an answer with the results of its calls: it is kept whole or omitted. The newest turn and the last user
    /// message are kept even if they exceed the limits.
    #[must_use]
    pub fn apply(&self, messages: &Messages) -> Messages {
        if self.is_unlimited() {
            return messages.clone();
        }
        let asked = messages.last_user();
        let mut shown = asked.map_or_else(Amount::default, |index| Amount::at(messages, index));
        let mut from = messages.len();
        // Works backwards from the newest turn, so that the cost does not grow with the thread.
        while from > 0 {
            let begins = turn_before(messages, from);
            let turn = (begins..from).filter(|index| Some(*index) != asked);
            let more = turn.fold(shown, |sum, index| sum.plus(Amount::at(messages, index)));
            if from < messages.len() && !self.has_room_for(more) {
                break;
            }
            (shown, from) = (more, begins);
        }
        // The last user message directly precedes the kept turns, so no omission line is needed between them.
        if from > 0 && asked == Some(from - 1) {
            from -= 1;
        }
        shortened(messages, from, asked.filter(|index| *index < from))
    }

    /// Nothing before the part that was read can ever be shown, no matter what is added after it.
    #[must_use]
    pub fn is_filled_by(&self, read: &ReadBack) -> bool {
        read.has_user && !self.has_room_for(read.amount)
    }

    fn has_room_for(&self, amount: Amount) -> bool {
        self.messages_max.is_none_or(|max| amount.messages <= max)
            && self.chars_max.is_none_or(|max| amount.chars <= max)
    }
}

/// How much of a thread was read, from its end backwards.
#[derive(Clone, Copy, Default)]
pub struct ReadBack {
    amount: Amount,
    has_user: bool,
}

impl ReadBack {
    /// Adds the messages that directly precede the part already read.
    pub fn add(&mut self, messages: &Messages) {
        let all = (0..messages.len()).map(|index| Amount::at(messages, index));
        self.amount = all.fold(self.amount, Amount::plus);
        self.has_user |= messages.last_user().is_some();
    }
}

/// Index of the first message of the turn that ends before `end`.
fn turn_before(messages: &Messages, end: usize) -> usize {
    let mut begins = end.saturating_sub(1);
    while begins > 0 && messages.get(begins).is_some_and(|message| continues_turn(message)) {
        begins -= 1;
    }
    begins
}

const fn continues_turn(message: &ModelMessage) -> bool {
    match message {
        ModelMessage::Tool { .. } | ModelMessage::Notice { .. } => true,
        ModelMessage::User { .. } | ModelMessage::Assistant { .. } | ModelMessage::Note { .. } => false,
    }
}

/// The messages from `from` on, preceded by the user message at `asked` if that is earlier.
fn shortened(messages: &Messages, from: usize, asked: Option<usize>) -> Messages {
    let left_out = messages.left_out() + from - usize::from(asked.is_some());
    if left_out == 0 {
        return messages.clone();
    }
    let mut shown = Messages::default();
    if let Some(question) = asked.and_then(|index| messages.get(index)) {
        shown.push_shared(question.clone());
    }
    let noun = if left_out == 1 { "message" } else { "messages" };
    shown.push(ModelMessage::Notice { text: format!("[{left_out} earlier {noun} left out]") });
    for message in (from..messages.len()).filter_map(|index| messages.get(index)) {
        shown.push_shared(message.clone());
    }
    shown
}

#[derive(Clone, Copy, Default)]
struct Amount {
    messages: u64,
    chars: u64,
}

impl Amount {
    fn at(messages: &Messages, index: usize) -> Self {
        let chars = messages.get(index).map_or(0, |message| char_count(message));
        Self { messages: 1, chars: u64::try_from(chars).unwrap_or(u64::MAX) }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_add(other.messages),
            chars: self.chars.saturating_add(other.chars),
        }
    }
}

/// Characters that the model reads. Markup around the text, and reasoning that is not sent, do not count.
#[must_use]
pub fn char_count(message: &ModelMessage) -> usize {
    match message {
        ModelMessage::User { content, .. } => match content.as_str() {
            Some(text) => text.chars().count(),
            None => content.to_string().chars().count(),
        },
        ModelMessage::Assistant { text, calls, .. } => {
            let arguments = |arguments: &Arguments| match arguments {
                Arguments::Valid { value, .. } => value.to_string().chars().count(),
                Arguments::Invalid { raw, .. } => raw.chars().count(),
            };
            let calls =
                calls.iter().map(|call| call.tool.as_str().chars().count() + arguments(&call.arguments));
            text.chars().count() + calls.sum::<usize>()
        }
        ModelMessage::Tool { text, .. } | ModelMessage::Note { text, .. } | ModelMessage::Notice { text } => {
            text.chars().count()
        }
    }
}
