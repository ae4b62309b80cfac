//! Compares a run's log with the ledger: what was done, with whose permission, and whether the results agree.

use std::collections::{BTreeMap, BTreeSet};

use machine::event::{CallErrorCode, CancelReason, Event, Fact, ResultFrom};
use machine::id::{CallId, Principal, SuspensionId, ToolName};
use machine::suspension::{Held, ResumeMode};
use machine::termination::Termination;
use machine::tool::{Arguments, EffectClass};

use super::{Moment, Objections, Rule};
use crate::evidence::{Evidence, RunEvidence};
use crate::ledger::Act;
use crate::payment_server::Manner;
use crate::stories::{GATE, Gate, Story, tools};

/// What one log says about one call.
#[derive(Debug, Default)]
struct CallRecord {
    tool: Option<ToolName>,
    /// As requested, or as the approver changed them.
    arguments: Option<Arguments>,
    attempts: BTreeMap<u32, EffectClass>,
    /// Attempts that were lost with a process.
    lost: BTreeSet<u32>,
    /// Approvals that have not started an attempt yet.
    unused_leave: u32,
    /// How often a person wanted the act: an approval, or a retry of a call in doubt.
    requested: u32,
    doubts: BTreeSet<SuspensionId>,
    /// Attempts that were followed by another although they were not lost with a process.
    followed: BTreeSet<u32>,
    /// An approver gave up a call in doubt, or did not answer in time.
    given_up: bool,
    /// An attempt in doubt answered late. Its answer may come from outside, without an entry in the ledger.
    settled_late: bool,
    end: Option<CallEnd>,
}

impl CallRecord {
    /// What the hook says about it.
    fn gate(&self) -> Option<Gate> {
        let gate = self.arguments.as_ref()?.value()?.get(GATE)?;
        serde_json::from_value(gate.clone()).ok()
    }

    /// Whether the outcome of each attempt is compared with the payment service's ledger.
    fn charges(&self) -> bool {
        self.tool.as_ref().is_some_and(|tool| tool.as_str() == tools::CHARGE)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallEnd {
    SucceededBy(ResultFrom),
    /// Nothing was sent: the lease was too old.
    NotSent,
    Failed,
    Denied,
    Cancelled {
        outcome_unknown: bool,
    },
}

/// The error of a call whose worker checked its lease too late.
const LEASE_TOO_OLD: &str = "another worker may hold the run by now";

pub(super) fn judge(
    evidence: &Evidence,
    story: &Story,
    run: &RunEvidence,
    moment: Moment,
    objections: &mut Objections,
) {
    let in_cluster = evidence.shared_store.is_some();
    let mut accounts: BTreeMap<CallId, CallRecord> = BTreeMap::new();
    for event in &run.log {
        if let Fact::RunRecovered { lost, .. } = &event.fact {
            for lost in lost {
                accounts.entry(lost.call_id.clone()).or_default().lost.insert(lost.attempt);
            }
        }
        enter(&mut accounts, event, objections);
    }
    for (call, account) in &accounts {
        let acts: Vec<&Act> =
            evidence.acts.iter().filter(|act| act.run == run.view.id && act.call == *call).collect();
        match_attempts(call, account, &acts, objections);
        match_repeats(call, account, &acts, in_cluster, objections);
        if moment == Moment::End {
            match_end(call, account, &acts, in_cluster, objections);
        }
        if moment == Moment::End && run.control.ended() == Some(&Termination::NaturalEnd) {
            match_request(call, account, &acts, story, objections);
        }
    }
}

/// Objects to acts whose start is in no stored log.
pub(super) fn judge_strangers(evidence: &Evidence, objections: &mut Objections) {
    for act in &evidence.acts {
        let known = evidence.runs.iter().any(|run| {
            let is_start = |event: &Event| {
                if let Fact::ExecutionStarted { call_id, attempt, .. } = &event.fact {
                    *call_id == act.call && *attempt == act.attempt
                } else {
                    false
                }
            };
            run.view.id == act.run && run.log.iter().any(|event| is_start(event))
        });
        objections.ensure(known, Rule::ActsOnlyAsStored, || format!("no log has the start of {act:?}"));
    }
}

fn record_for<'a>(accounts: &'a mut BTreeMap<CallId, CallRecord>, call: &CallId) -> &'a mut CallRecord {
    accounts.entry(call.clone()).or_default()
}

fn enter(accounts: &mut BTreeMap<CallId, CallRecord>, event: &Event, objections: &mut Objections) {
    if let Fact::ToolRequested { call_id, tool, arguments, .. } = &event.fact {
        let account = record_for(accounts, call_id);
        (account.tool, account.arguments) = (Some(tool.clone()), Some(arguments.clone()));
    }
    if let Fact::ToolCancelled { call_id, reason: CancelReason::GivenUp, decision_id: Some(_), .. } =
        &event.fact
    {
        record_for(accounts, call_id).given_up = true;
    }
    // The judge of doubts checks the time and the kind of suspension.
    if let Fact::ToolCancelled { call_id, reason: CancelReason::Expired, outcome_unknown: true, .. } =
        &event.fact
    {
        record_for(accounts, call_id).given_up = true;
    }
    if let Fact::ToolApproved { call_id, arguments, .. } = &event.fact {
        let account = record_for(accounts, call_id);
        account.arguments = arguments.clone().or_else(|| account.arguments.take());
        account.unused_leave += 1;
        account.requested += 1;
    }
    if let Fact::ToolSuspended(opened) = &event.fact
        && matches!(opened.held, Held::InDoubt { .. })
    {
        record_for(accounts, &opened.call_id).doubts.insert(opened.suspension_id.clone());
    }
    if let Fact::ToolResumed { call_id, suspension_id, mode, by, late_attempt: None, .. } = &event.fact
        && *mode == ResumeMode::ReplayToolCall
        && *by != Principal::system()
    {
        let account = record_for(accounts, call_id);
        account.unused_leave += 1;
        account.requested += u32::from(account.doubts.contains(suspension_id));
    }
    if let Fact::ToolResumed { call_id, late_attempt: Some(_), .. } = &event.fact {
        record_for(accounts, call_id).settled_late = true;
    }
    if let Fact::ExecutionStarted { call_id, tool, attempt, class, let_through_by, .. } = &event.fact {
        let account = record_for(accounts, call_id);
        // A person permitted it in advance, with an earlier approval or for the whole thread.
        let is_permitted = u32::from(let_through_by.is_some());
        account.unused_leave += is_permitted;
        account.requested += is_permitted;
        account.attempts.insert(*attempt, *class);
        if tools::HELD.contains(&tool.as_str()) {
            objections.ensure(account.unused_leave > 0, Rule::WriteHasItsApproval, || {
                format!("attempt {attempt} of {call_id} starts without an approval (event {})", event.seq)
            });
            account.unused_leave = 0;
        } else {
            let before = attempt.checked_sub(1).filter(|before| *before > 0);
            account.followed.extend(before.filter(|before| !account.lost.contains(before)));
        }
    }
    if let Some((call, end)) = end_of(event) {
        record_for(accounts, call).end = Some(end);
    }
}

fn end_of(event: &Event) -> Option<(&CallId, CallEnd)> {
    if let Fact::ExecutionSucceeded { call_id, by, .. } = &event.fact {
        return Some((call_id, CallEnd::SucceededBy(*by)));
    }
    if let Fact::ExecutionFailed { call_id, error, .. } = &event.fact {
        let not_sent = error.code == CallErrorCode::NotSent && error.message == LEASE_TOO_OLD;
        return Some((call_id, if not_sent { CallEnd::NotSent } else { CallEnd::Failed }));
    }
    if let Fact::ToolDenied { call_id, .. } = &event.fact {
        return Some((call_id, CallEnd::Denied));
    }
    if let Fact::ToolCancelled { call_id, outcome_unknown, .. } = &event.fact {
        return Some((call_id, CallEnd::Cancelled { outcome_unknown: *outcome_unknown }));
    }
    None
}

fn match_attempts(call: &CallId, account: &CallRecord, acts: &[&Act], objections: &mut Objections) {
    let mut seen = BTreeSet::new();
    for act in acts {
        objections.ensure(seen.insert(act.attempt), Rule::ActsOnlyAsStored, || {
            format!("attempt {} of {call} acted twice", act.attempt)
        });
        let class = account.attempts.get(&act.attempt);
        objections.ensure(class == Some(&act.effect), Rule::ActsOnlyAsStored, || {
            format!("attempt {} of {call} acted; the log has it as {class:?}", act.attempt)
        });
    }
    let writes = acts.iter().filter(|act| act.effect == EffectClass::Write).count();
    objections.ensure(writes <= account.requested as usize, Rule::WriteHasItsApproval, || {
        format!("{call} wrote {writes} times, and people requested {}", account.requested)
    });
}

fn match_repeats(
    call: &CallId,
    account: &CallRecord,
    acts: &[&Act],
    in_cluster: bool,
    objections: &mut Objections,
) {
    for attempt in &account.followed {
        // A node whose lease is too old sends nothing, and retries after it has renewed the lease.
        let sent = acts.iter().any(|act| act.attempt == *attempt);
        objections.ensure(in_cluster && !sent, Rule::RepeatsOnlyWhatWasLost, || {
            format!("{call} is repeated after attempt {attempt}, and nothing was lost")
        });
    }
    let Some(first) = acts.first() else { return };
    let asked = account.arguments.as_ref().and_then(Arguments::value);
    for act in acts {
        objections.ensure(act.key == first.key, Rule::RepeatsOnlyWhatWasLost, || {
            format!("attempt {} of {call} has another key", act.attempt)
        });
        objections.ensure(
            asked.is_some_and(|asked| **asked == act.arguments),
            Rule::RepeatsOnlyWhatWasLost,
            || format!("attempt {} of {call} acted on {}, asked was {asked:?}", act.attempt, act.arguments),
        );
    }
}

fn match_end(
    call: &CallId,
    account: &CallRecord,
    acts: &[&Act],
    in_cluster: bool,
    objections: &mut Objections,
) {
    let Some(end) = account.end else {
        objections.ensure(false, Rule::NothingIsStuck, || format!("{call} never ended"));
        return;
    };
    let is_gated = |gate| account.gate() == Some(gate) && acts.is_empty();
    let wrote = acts.iter().any(|act| act.effect == EffectClass::Write);
    let agrees = match end {
        CallEnd::SucceededBy(ResultFrom::Tool) => account.settled_late || !acts.is_empty(),
        CallEnd::SucceededBy(ResultFrom::Decision | ResultFrom::Child) => true,
        // The payment service's ledger explains the failures of the charging tool.
        CallEnd::Failed => account.charges() || is_gated(Gate::Block),
        CallEnd::SucceededBy(ResultFrom::Hook) => is_gated(Gate::Supply),
        // In a store with one process no other worker can take over a run.
        CallEnd::NotSent => {
            let last = account.attempts.keys().next_back();
            in_cluster && !acts.iter().any(|act| Some(&act.attempt) == last)
        }
        CallEnd::Denied => acts.is_empty(),
        CallEnd::Cancelled { outcome_unknown } => outcome_unknown || !wrote,
    };
    objections.ensure(agrees, Rule::ResultAgreesWithActs, || {
        format!("{call} ended as {end:?}, and it acted {} times", acts.len())
    });
}

/// Unless something outside ended it, a call did what people wanted: what was approved or retried was done.
fn match_request(
    call: &CallId,
    account: &CallRecord,
    acts: &[&Act],
    story: &Story,
    objections: &mut Objections,
) {
    let Some(end) = account.end else { return };
    let elsewhere = account.tool.as_ref().is_some_and(|tool| tools::ELSEWHERE.contains(&tool.as_str()))
        || acts.iter().any(|act| {
            act.charge_record.is_some_and(|charge_record| charge_record.manner == Manner::Accepts)
        });
    let agrees = match end {
        CallEnd::SucceededBy(ResultFrom::Decision) => elsewhere || !account.doubts.is_empty(),
        CallEnd::Denied => story.may_deny(),
        CallEnd::Cancelled { .. } => account.given_up,
        // Other rules check whether it acted.
        CallEnd::SucceededBy(ResultFrom::Tool | ResultFrom::Child) | CallEnd::NotSent => true,
        CallEnd::Failed => account.charges() || account.gate() == Some(Gate::Block),
        CallEnd::SucceededBy(ResultFrom::Hook) => account.gate() == Some(Gate::Supply),
    };
    objections.ensure(agrees, Rule::EndsAsItsStory, || {
        format!("{call} ended as {end:?} after {} acts, which no decision asked for", acts.len())
    });
}
