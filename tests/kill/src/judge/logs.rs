//! Each log on its own: dense, legal, folds to the stored state, valid for a model at every point, and ended.

use machine::Input;
use machine::apply::apply;
use machine::event::Fact;
use machine::fold;
use machine::id::MessageId;
use machine::status::{CallStatus, RunStatus};
use machine::thread::ThreadState;
use machine::transcript::Transcript;
use sim::judge::events::Cause;
use sim::judge::ledger::RunLedger;
use sim::judge::model_input;

use super::{Moment, Objections, Rule};
use crate::evidence::{Evidence, RunEvidence};

pub(super) fn judge(evidence: &Evidence, run: &RunEvidence, moment: Moment, objections: &mut Objections) {
    let id = &run.view.id;
    for (event, number) in run.log.iter().zip(1..) {
        let seq = event.seq;
        objections.ensure(seq == number, Rule::SeqIsDense, || format!("{id}: event {number} has seq {seq}"));
    }
    let folded = fold(run.log.iter().map(|event| &**event));
    objections.ensure(folded.as_ref().ok() == Some(&run.control), Rule::FoldIsControl, || {
        format!("{id} is stored as {:?}, its log folds to {folded:?}", run.control)
    });
    if let Err(why) = check_fold(evidence, run) {
        objections.ensure(false, Rule::LogIsLegal, || format!("{id}: {why}"));
    }
    if let Err(why) = transcripts(evidence, run) {
        objections.ensure(false, Rule::TranscriptIsValid, || format!("{id}: {why}"));
    }
    resting(run, objections);
    if moment == Moment::End {
        ended(evidence, run, objections);
    }
}

/// Replays the events through the simulator's ledger, and returns its objection.
fn check_fold(evidence: &Evidence, run: &RunEvidence) -> Result<(), String> {
    let (first, rest) = run.log.split_first().ok_or("it has no log")?;
    let Fact::RunQueued(order) = &first.fact else {
        return Err(format!("it begins with {:?}", first.fact));
    };
    let revision = evidence.revisions.get(&order.revision);
    let revision = revision.ok_or_else(|| format!("its revision {:?} is not stored", order.revision))?;
    let mut ledger = RunLedger::new(order, revision.clone(), first);
    for event in rest {
        // The log does not record which input caused an event.
        let heard = ledger.hear(event, Cause { input: &Input::InboxDrained, ticket: None });
        heard.map_err(|breach| breach.to_string())?;
    }
    Ok(())
}

/// The model input of every prefix, after the history that the run continues.
fn transcripts(evidence: &Evidence, run: &RunEvidence) -> Result<(), String> {
    let mut transcript = Transcript::default();
    for event in &run.log {
        if let Fact::RunStarted { after } = &event.fact {
            let mut before = before(evidence, after.as_ref())?;
            run.log.iter().take_while(|earlier| earlier.seq < event.seq).for_each(|event| before.push(event));
            transcript = before;
        }
        transcript.push(event);
        model_input::check(&transcript.model_input())
            .map_err(|breach| format!("after event {}: {breach}", event.seq))?;
    }
    Ok(())
}

fn before(evidence: &Evidence, after: Option<&MessageId>) -> Result<Transcript, String> {
    let mut logs = Vec::new();
    let mut next = after;
    while let Some(message) = next {
        let place = evidence.runs.iter().find_map(|run| {
            let at = run.log.iter().position(|event| {
                if let Fact::MessageAdded(said) = &event.fact { said.id() == message } else { false }
            })?;
            Some((run, at))
        });
        let Some((run, at)) = place else {
            return Err(format!("it begins after {message}, which is nowhere"));
        };
        logs.push(&run.log[..=at]);
        next = run.control.after.as_ref();
    }
    let mut transcript = Transcript::default();
    logs.iter().rev().flat_map(|log| log.iter()).for_each(|event| transcript.push(event));
    Ok(transcript)
}

/// A waiting run has no half-made decision.
fn resting(run: &RunEvidence, objections: &mut Objections) {
    let Some((first, rest)) = run.log.split_first() else { return };
    let Ok(mut control) = fold([&**first]) else { return };
    for event in rest {
        if apply(&mut control, event).is_err() {
            return;
        }
        if matches!(control.status, RunStatus::Waiting(_)) && matches!(event.fact, Fact::RunWaiting { .. }) {
            for call in control.calls.iter().filter(|call| call.status() == CallStatus::Resuming) {
                objections.ensure(false, Rule::NoCallIsLeftResuming, || {
                    format!("{} waits at event {} with {} decided", run.view.id, event.seq, call.id)
                });
            }
        }
    }
}

fn ended(evidence: &Evidence, run: &RunEvidence, objections: &mut Objections) {
    let id = &run.view.id;
    let ends = run.log.iter().filter(|event| matches!(event.fact, Fact::RunEnded { .. })).count();
    let last = run.log.last().is_some_and(|event| matches!(event.fact, Fact::RunEnded { .. }));
    objections.ensure(ends == 1 && last, Rule::NothingIsStuck, || format!("{id} has {ends} ends"));
    for call in &run.control.calls {
        let status = call.status();
        let rule = match status {
            CallStatus::Resuming => Rule::NoCallIsLeftResuming,
            CallStatus::New
            | CallStatus::Running
            | CallStatus::Suspended
            | CallStatus::Succeeded
            | CallStatus::Failed
            | CallStatus::Cancelled => Rule::NothingIsStuck,
        };
        objections.ensure(status.terminal(), rule, || format!("{id} ended, and {} is {status}", call.id));
    }
    let thread = evidence.threads.get(&run.view.thread);
    objections.ensure(thread == Some(&ThreadState::Free), Rule::NothingIsStuck, || {
        format!("everything ended, and {} is {thread:?}", run.view.thread)
    });
}
