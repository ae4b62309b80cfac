//! The simulator's own validator of model inputs.

use std::collections::BTreeSet;

use machine::event::Fact;
use machine::transcript::{Messages, ModelMessage};

use crate::judge::invariant::{Checked, Invariant, ensure};

/// Facts that do not change the transcript need no new check.
#[must_use]
pub fn is_changed_by(fact: &Fact) -> bool {
    matches!(fact, Fact::MessageAdded(_)) || fact.call_change().is_some()
}

/// Exactly one result per call, in call order, directly after the message that requested the calls.
pub fn check(messages: &Messages) -> Checked {
    let mut seen = BTreeSet::new();
    let mut rest = messages.iter();
    while let Some(message) = rest.next() {
        match message {
            ModelMessage::User { .. } | ModelMessage::Note { .. } | ModelMessage::Notice { .. } => {}
            ModelMessage::Tool { call, .. } => {
                return ensure(false, Invariant::ModelInputIsValid, || {
                    format!("the input has a result of {call} that follows no request")
                });
            }
            ModelMessage::Assistant { id, text, calls, .. } => {
                ensure(!text.is_empty() || !calls.is_empty(), Invariant::ModelInputIsValid, || {
                    format!("{id} says nothing")
                })?;
                for call in calls {
                    let fresh = seen.insert(call.id.clone());
                    let answered = match rest.next() {
                        Some(ModelMessage::Tool { call: answered, .. }) => *answered == call.id,
                        Some(
                            ModelMessage::User { .. }
                            | ModelMessage::Note { .. }
                            | ModelMessage::Notice { .. }
                            | ModelMessage::Assistant { .. },
                        )
                        | None => false,
                    };
                    ensure(fresh && answered, Invariant::ModelInputIsValid, || {
                        format!("{id} asks for {}: fresh {fresh}, answered {answered}", call.id)
                    })?;
                }
            }
        }
    }
    Ok(())
}
