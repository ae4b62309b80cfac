//! Signed or encrypted reasoning that a provider wants back, at its position between text and calls.

use std::collections::BTreeMap;

use engine::model::{AssistantCall, Messages, ModelMessage, Sealed};
use machine::id::MessageId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An answer in its original order. Text and calls are already in the message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Piece {
    /// In the provider's own format.
    Sealed(Value),
    /// Number of bytes of the text.
    Text(usize),
    /// The call's index among the calls.
    Call(u16),
}

/// Sealed content that is sent back with the answers of one turn.
#[derive(Debug)]
pub(super) struct Seals {
    /// Keyed by message.
    pieces: BTreeMap<MessageId, Vec<Piece>>,
    /// Every answer of the turn is from this provider.
    pub(super) cover_all: bool,
}

impl Seals {
    /// Only those that this provider made: it cannot read others, and a finished turn needs none.
    pub(super) fn for_open_turn(messages: &Messages, by: &str) -> Self {
        let mut seals = Self { pieces: BTreeMap::new(), cover_all: true };
        for (id, sealed) in open_turn(messages) {
            let own = sealed.filter(|sealed| sealed.by == by);
            match own.and_then(|sealed| serde_json::from_str(&sealed.content).ok()) {
                Some(pieces) => drop(seals.pieces.insert(id.clone(), pieces)),
                None => seals.cover_all = false,
            }
        }
        seals
    }

    pub(super) fn pieces(&self, message: &MessageId) -> &[Piece] {
        self.pieces.get(message).map_or(&[], Vec::as_slice)
    }
}

/// The answers with calls of the current turn. The turn began with a user message, and its last answer asks for calls.
/// Messages after those calls do not end it, because results and text reach a provider as one message.
fn open_turn(messages: &Messages) -> Vec<(&MessageId, Option<&Sealed>)> {
    let mut answers = Vec::new();
    for message in messages.iter().rev() {
        match message {
            ModelMessage::Assistant { id, calls, sealed, .. } if !calls.is_empty() => {
                answers.push((id, sealed.as_ref()));
            }
            ModelMessage::Assistant { .. } if answers.is_empty() => break,
            ModelMessage::User { .. } if !answers.is_empty() => break,
            ModelMessage::User { .. }
            | ModelMessage::Assistant { .. }
            | ModelMessage::Tool { .. }
            | ModelMessage::Note { .. }
            | ModelMessage::Notice { .. } => {}
        }
    }
    answers
}

/// A part of an answer that is sent back to the provider that gave it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AnswerPart<'a> {
    Sealed(&'a Value),
    Text(&'a str),
    Call(&'a AssistantCall),
}

/// The answer in its original order. If the order is unknown or does not match, sealed content comes first.
pub(super) fn ordered_parts<'a>(
    pieces: &'a [Piece],
    text: &'a str,
    calls: &'a [AssistantCall],
) -> Vec<AnswerPart<'a>> {
    in_order(pieces, text, calls).unwrap_or_else(|| {
        let sealed = pieces.iter().filter_map(|piece| match piece {
            Piece::Sealed(value) => Some(AnswerPart::Sealed(value)),
            Piece::Text(_) | Piece::Call(_) => None,
        });
        let said = Some(AnswerPart::Text(text)).filter(|_| !text.is_empty());
        sealed.chain(said).chain(calls.iter().map(AnswerPart::Call)).collect()
    })
}

fn in_order<'a>(
    pieces: &'a [Piece],
    text: &'a str,
    calls: &'a [AssistantCall],
) -> Option<Vec<AnswerPart<'a>>> {
    let (mut parts, mut rest, mut left) = (Vec::new(), text, calls.iter());
    for piece in pieces {
        parts.push(match piece {
            Piece::Sealed(value) => AnswerPart::Sealed(value),
            Piece::Text(length) => {
                let (said, behind) = rest.split_at_checked(*length)?;
                rest = behind;
                AnswerPart::Text(said)
            }
            Piece::Call(index) => {
                let call = left.next()?;
                std::ptr::eq(call, calls.get(usize::from(*index))?).then_some(AnswerPart::Call(call))?
            }
        });
    }
    (rest.is_empty() && left.next().is_none()).then_some(parts)
}

#[cfg(test)]
mod tests {
    use machine::tool::Arguments;
    use serde_json::json;

    use super::*;

    fn calls() -> Vec<AssistantCall> {
        let arguments = Arguments::Invalid { raw: String::new(), why: String::new() };
        let call =
            |id: &str| AssistantCall { id: id.into(), tool: "echo".into(), arguments: arguments.clone() };
        vec![call("a"), call("b")]
    }

    #[test]
    fn an_answer_goes_back_in_the_order_in_which_it_came() {
        let (calls, one, two) = (calls(), json!("one"), json!("two"));
        let pieces = [
            Piece::Sealed(one.clone()),
            Piece::Text(3),
            Piece::Call(0),
            Piece::Sealed(two.clone()),
            Piece::Call(1),
            Piece::Text(1),
        ];
        let stored = serde_json::to_string(&pieces).expect("pieces are JSON");
        let pieces: Vec<Piece> = serde_json::from_str(&stored).expect("what was written is read");
        assert_eq!(
            ordered_parts(&pieces, "Hé!", &calls),
            [
                AnswerPart::Sealed(&one),
                AnswerPart::Text("Hé"),
                AnswerPart::Call(&calls[0]),
                AnswerPart::Sealed(&two),
                AnswerPart::Call(&calls[1]),
                AnswerPart::Text("!")
            ]
        );
    }

    #[test]
    fn an_order_that_does_not_match_the_answer_is_ignored() {
        let (calls, sealed) = (calls(), json!("sealed"));
        let plain = [
            AnswerPart::Sealed(&sealed),
            AnswerPart::Text("Hé!"),
            AnswerPart::Call(&calls[0]),
            AnswerPart::Call(&calls[1]),
        ];
        let all_calls = [Piece::Call(0), Piece::Call(1)];
        for order in [
            vec![Piece::Text(2)],
            [vec![Piece::Text(3)], all_calls.to_vec()].concat(),
            [vec![Piece::Text(9)], all_calls.to_vec()].concat(),
            vec![Piece::Text(4), Piece::Call(1), Piece::Call(0)],
            vec![Piece::Text(4), Piece::Call(0), Piece::Call(0)],
            Vec::new(),
        ] {
            let pieces = [vec![Piece::Sealed(sealed.clone())], order].concat();
            assert_eq!(ordered_parts(&pieces, "Hé!", &calls), plain, "{pieces:?}");
        }
        assert_eq!(
            ordered_parts(&[], "", &calls),
            [AnswerPart::Call(&calls[0]), AnswerPart::Call(&calls[1])]
        );
    }
}
