//! Runs that must end with an output: which ones, how their models miss it, and what must follow.

use std::sync::{Arc, LazyLock};

use machine::event::Message;
use machine::id::correction_message_id;
use machine::output::OutputFit;
use machine::revision::Revision;
use machine::termination::{ErrorCode, Termination};
use serde_json::{Value, json};

use crate::judge::invariant::{Checked, Invariant, ensure};
use crate::judge::ledger::RunLedger;

/// The output schema of every agent that wants an output.
pub static SCHEMA: LazyLock<Arc<Value>> =
    LazyLock::new(|| Arc::new(json!({"type": "object", "required": ["said"]})));

/// Derived from values that are drawn anyway, so that stored tapes still give the same worlds.
#[must_use]
pub const fn are_wanted(revision: &Revision) -> bool {
    revision.limits.children_max == 2
}

/// The text of a model that should end with an output. Every other answer is plain text instead.
#[must_use]
pub fn spoken(revision: &Revision, words: &str, tokens: u64) -> String {
    let fits = are_wanted(revision) && tokens % 2 == 1 && !words.is_empty();
    if fits { json!({"said": words}).to_string() } else { words.to_owned() }
}

/// The verdict of a schema validator.
#[must_use]
pub fn judged(revision: &Revision, text: &str) -> Option<OutputFit> {
    let fault = |value: &Value| value.get("said").is_none().then(|| "\"said\" is missing".to_owned());
    are_wanted(revision).then(|| OutputFit::check(text, fault))
}

/// What the log says about the last answer.
#[derive(Clone, Debug, Default)]
pub struct OutputBook {
    /// The verdict on an answer without calls, with its event's sequence number.
    last: Option<(u64, OutputFit)>,
    /// The step whose answer was corrected.
    corrected: Option<u32>,
}

impl RunLedger {
    /// Processes an answer or a correction. `seq` is the sequence number of the event that adds the message.
    pub(crate) fn hear_output(&mut self, message: &Message, seq: u64) -> Checked {
        match message {
            Message::Assistant { text, calls, output, .. } => {
                let judged = judged(&self.revision, text).filter(|_| calls.is_empty());
                let alike = match (output, &judged) {
                    (Some(OutputFit::Fits), Some(OutputFit::Fits))
                    | (Some(OutputFit::Unfit { .. }), Some(OutputFit::Unfit { .. }))
                    | (None, None) => true,
                    (Some(_) | None, _) => false,
                };
                ensure(alike, Invariant::OutputIsTheOneWanted, || {
                    format!("{text:?} is judged as {output:?} and not as {judged:?}")
                })?;
                self.output.last = output.clone().map(|fit| (seq, fit));
                Ok(())
            }
            Message::Correction { id, why } => {
                let due = self.output.corrected.is_none()
                    && self.last_fault() == Some(why)
                    && *id == correction_message_id(&self.run, self.step);
                ensure(due && !self.step_open, Invariant::OutputIsTheOneWanted, || {
                    format!("{id} corrects {:?} with {why:?}", self.output)
                })?;
                self.output.corrected = Some(self.step);
                Ok(())
            }
            Message::User { .. }
            | Message::Tool { .. }
            | Message::Note { .. }
            | Message::CallsDropped { .. }
            | Message::Interruption { .. } => Ok(()),
        }
    }

    fn last_fault(&self) -> Option<&String> {
        match &self.output.last {
            Some((_, OutputFit::Unfit { why })) => Some(why),
            Some((_, OutputFit::Fits)) | None => None,
        }
    }

    /// After an answer that is not a valid output, the model continues only because of a correction or a late result.
    pub(crate) fn check_output_at_step(&mut self, step: u32) -> Checked {
        let has_reason = self.output.corrected == Some(self.step) || self.untold_news;
        ensure(self.last_fault().is_none() || has_reason, Invariant::OutputIsTheOneWanted, || {
            format!("step {step} starts, and the model was not corrected: {:?}", self.output)
        })?;
        self.output.last = None;
        Ok(())
    }

    pub(crate) fn check_output_at_end(&self, how: &Termination, output: Option<u64>) -> Checked {
        let expected = match (&self.output.last, how) {
            (Some((seq, OutputFit::Fits)), Termination::NaturalEnd) => Some(*seq),
            (Some(_) | None, _) => None,
        };
        ensure(output == expected, Invariant::OutputIsTheOneWanted, || {
            format!("the run ends as {how:?} with output {output:?}, not {expected:?}")
        })?;
        let right = match how {
            Termination::NaturalEnd => self.last_fault().is_none(),
            Termination::Error(error) if error.code == ErrorCode::Output => {
                self.output.corrected.is_some() && self.last_fault() == Some(&error.text)
            }
            Termination::BehaviorRequested
            | Termination::Stopped(_)
            | Termination::Cancelled(_)
            | Termination::Blocked(_)
            | Termination::Error(_) => true,
        };
        ensure(right, Invariant::OutputIsTheOneWanted, || format!("{how:?} after {:?}", self.output))
    }
}
