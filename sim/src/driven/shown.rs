//! Nothing starts and nothing is shown before it is stored.

use engine::model::ModelRequest;
use engine::tool::ToolRequest;
use machine::Timestamp;
use machine::control::Stage;
use machine::event::{Event, Fact};
use machine::id::{RunId, idempotency_key};
use machine::status::CallStatus;
use machine::tool::Arguments;
use machine::transcript::{Messages, ModelMessage};

use super::book::Book;
use super::context::Life;
use crate::judge::invariant::{Checked, Invariant, breach, ensure};
use crate::judge::model_input;

/// The message that hooks replace in the model input.
pub(crate) const REPLACED: &str = "msg_1";

impl Book {
    /// An attempt is about to act: its start must be stored, it must be the current attempt, and it must not have run
    /// before.
    pub(crate) fn tool_started(&mut self, life: &Life, request: &ToolRequest, now: Timestamp) -> Checked {
        let (call, attempt) = (&request.call, request.attempt);
        let name = self.name(&request.run);
        self.tell(now, || {
            format!("process {} sends attempt {attempt} of call {call} of {name}", life.number)
        });
        self.tally.count("tool", "started");
        let what = || format!("attempt {attempt} of call {call} of {name} is sent");
        ensure(!life.is_fenced() && !life.is_dead(), Invariant::NothingStartsUnstored, || {
            format!("{} by process {}, which has lost the store", what(), life.number)
        })?;
        let Some(run) = self.find(&request.run) else {
            return breach(Invariant::NothingStartsUnstored, what());
        };
        let known = &mut self.runs[run];
        let started = known.log.iter().rev().find_map(|event| {
            let Fact::ExecutionStarted { call_id, attempt: number, not_before, .. } = &event.fact else {
                return None;
            };
            (call_id == call && *number == attempt).then_some(*not_before)
        });
        ensure(
            started.is_some_and(|not_before| not_before <= now),
            Invariant::NothingStartsUnstored,
            || format!("{}, and the log says {started:?} about its start", what()),
        )?;
        let Some(entry) = known.ledger.call(call) else {
            return breach(Invariant::NothingStartsUnstored, what());
        };
        let current = entry.status == CallStatus::Running && entry.attempt == attempt;
        ensure(current || known.is_ahead_of_its_worker(), Invariant::NothingStartsUnstored, || {
            format!("{} while the call is {} in attempt {}", what(), entry.status, entry.attempt)
        })?;
        let key = idempotency_key(&request.run, call, &entry.arguments.digest());
        let same = match &entry.arguments {
            Arguments::Valid { value, .. } => **value == *request.arguments && key == request.idempotency_key,
            Arguments::Invalid { .. } => false,
        };
        ensure(same, Invariant::DispatchComparesDigests, || {
            format!("{} with {}", what(), request.arguments)
        })?;
        let fresh = known.tool_starts.insert((call.clone(), attempt));
        ensure(fresh, Invariant::NothingStartsUnstored, || format!("{} again", what()))
    }

    /// A model is about to be called: the attempt must be stored, and its input must match the log.
    pub(crate) fn model_started(&mut self, life: &Life, request: &ModelRequest, now: Timestamp) -> Checked {
        let (step, attempt) = (request.step, request.attempt);
        let name = self.name(&request.run);
        self.tell(now, || {
            format!("process {} calls the model: {name}, step {step}, attempt {attempt}", life.number)
        });
        self.tally.count("model", "started");
        let what = || format!("model attempt {attempt} of step {step} of {name} is made");
        let Some(run) = self.find(&request.run) else {
            return breach(Invariant::NothingStartsUnstored, what());
        };
        let known = &mut self.runs[run];
        let current = match &known.folded.stage {
            Stage::Inferring(inferring) => known.folded.step == step && inferring.attempt == attempt,
            Stage::Queued
            | Stage::Starting
            | Stage::Acting
            | Stage::StepEnding
            | Stage::BetweenSteps
            | Stage::Ending(_)
            | Stage::Ended => false,
        };
        // A model call is not stopped while its worker does not know yet what is stored, or that it has lost the run.
        ensure(
            current || known.is_ahead_of_its_worker() || life.is_fenced(),
            Invariant::NothingStartsUnstored,
            || {
                format!(
                    "{} while the run is in {:?} of step {}",
                    what(),
                    known.folded.stage,
                    known.folded.step
                )
            },
        )?;
        let fresh = known.model_starts.insert((step, attempt));
        ensure(fresh, Invariant::NothingStartsUnstored, || format!("{} again", what()))?;
        model_input::check(&request.messages)?;
        let stored = known.transcript.model_input();
        let is_behind = life.is_fenced() || known.is_ahead_of_its_worker();
        ensure(is_behind || reads_alike(&stored, &request.messages), Invariant::ModelInputIsValid, || {
            format!("{}; it reads {:?}, stored is {stored:?}", what(), request.messages)
        })
    }

    /// A watcher is shown an event. `last` is the sequence number of the event before it.
    pub(crate) fn shown(&mut self, run: &RunId, last: u64, event: &Event) -> Checked {
        let known = self.of(run)?;
        let place = usize::try_from(event.seq).unwrap_or(0).wrapping_sub(1);
        let is_stored = known.log.get(place).is_some_and(|stored| **stored == *event);
        ensure(is_stored, Invariant::OnlyStoredIsShown, || {
            format!("event {} of {run} is shown, {} are stored", event.seq, known.log.len())
        })?;
        ensure(event.seq == last + 1, Invariant::WatchersMissNothing, || {
            format!("event {} of {} is shown behind event {last}", event.seq, self.name(run))
        })
    }

    /// The watcher's feed has ended: there is nothing more to see.
    pub(crate) fn watched(&mut self, run: &RunId, last: u64) -> Checked {
        self.tally.count("run", "watched to its end");
        let known = self.of(run)?;
        ensure(known.ledger.ended() && known.ledger.seq == last, Invariant::WatchersMissNothing, || {
            format!("watching {} ends after event {last} of {}", self.name(run), known.ledger.seq)
        })
    }
}

/// Whether both have the same messages. Hooks may have replaced the text of one.
fn reads_alike(stored: &Messages, read: &Messages) -> bool {
    let replaced = |message: &ModelMessage| match message {
        ModelMessage::User { id, .. } => id.as_str() == REPLACED,
        ModelMessage::Assistant { .. }
        | ModelMessage::Tool { .. }
        | ModelMessage::Note { .. }
        | ModelMessage::Notice { .. } => false,
    };
    stored.len() == read.len()
        && stored
            .iter()
            .zip(read.iter())
            .all(|(stored, read)| stored == read || (replaced(stored) && replaced(read)))
}
