//! Threads in the store: admission of a message, children, promotion, and which run may hold a thread.

use std::sync::Arc;

use machine::delivery::Spawn;
use machine::event::{Event, Fact, InterruptCause, Parent, RunRequest, UserMessage};
use machine::id::{Principal, RunId, ThreadId};
use machine::inbox::Item;
use machine::policy::{
    LooseningRefused, OnBlock, OnBusy, OnReject, Policy, PolicyRequest, ResolvedPolicy, WhileWaiting,
    for_child, resolve,
};
use machine::suspension::SuspensionKind;
use machine::thread::{
    Admission, FrontState, IfBusy, QUEUE_MAX, QUEUE_WITH_SUPERSEDING_MAX, RunActivity, ThreadState,
    UnendedRun, admit, promote, to_supersede,
};
use machine::{Control, Timestamp, fold, queue};
use serde_json::Value;

use crate::judge::grants::rank;
use crate::judge::invariant::{Checked, Invariant, breach, ensure};
use crate::judge::ledger::{Announced, RunLedger};
use crate::world::setup::{Agent, CLERK};
use crate::world::store::{RunIndex, Store, StoredRun, ThreadIndex, ThreadRow};

/// A message as it reaches the store.
#[derive(Clone, Debug)]
pub struct Posted {
    pub by: Principal,
    pub may_approve: bool,
    pub asked: Option<OnBusy>,
    pub request: PolicyRequest,
    pub text: &'static str,
}

/// What happened to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Met {
    LooseningRefused,
    Admitted(Admission),
}

impl Store {
    pub fn new_thread(&mut self, name: &str) -> ThreadIndex {
        self.threads.push(ThreadRow { id: Some(ThreadId::from(name)), ..ThreadRow::default() });
        self.threads.len() - 1
    }

    /// One transaction: resolve the policy, ask for admission, create the run.
    pub fn post(
        &mut self,
        thread: ThreadIndex,
        agent_index: usize,
        agent: &Agent,
        posted: &Posted,
        now: Timestamp,
    ) -> Checked<Met> {
        let own = &agent.revision.policy;
        let resolved = resolve(own, &posted.request, &posted.by, posted.may_approve);
        check_resolved(own, posted, &resolved)?;
        let Ok(resolved) = resolved else { return Ok(Met::LooseningRefused) };
        let state = self.thread_state(thread);
        let admission = admit(&state, IfBusy::resolve(posted.asked, &posted.request, own));
        self.check_front(thread, &state)?;
        check_admission(&state, posted, own, &admission)?;
        if let Admission::Refuse(_) = &admission {
            return Ok(Met::Admitted(admission));
        }
        let number = self.runs.len() + 1;
        let order = RunRequest {
            run_id: RunId::from(format!("run_{number}")),
            thread_id: self.thread_id(thread),
            agent: agent.name.clone(),
            revision: agent.digest,
            policy: resolved.policy,
            loosened_by: resolved.loosened_by,
            message: Some(UserMessage {
                id: format!("msg_user_{number}").as_str().into(),
                content: Arc::new(Value::from(posted.text)),
                by: None,
            }),
            parent: None,
        };
        let run = self.create(thread, agent_index, agent, order, now)?;
        match &admission {
            Admission::Hold => self.threads[thread].holder = Some(run),
            Admission::Enqueue => self.threads[thread].queue.push(run),
            Admission::Supersede => {
                self.supersede(thread, run)?;
                self.threads[thread].queue.push(run);
            }
            Admission::Refuse(_) => {}
        }
        Ok(Met::Admitted(admission))
    }

    /// Interrupts every unended run of the thread. After they end, the run that superseded them is promoted.
    fn supersede(&mut self, thread: ThreadIndex, by: RunIndex) -> Checked {
        let row = &self.threads[thread];
        let unended: Vec<RunIndex> = row.holder.iter().chain(&row.queue).copied().collect();
        let superseded: Vec<RunId> = to_supersede(self.line(&unended)).cloned().collect();
        let cause = InterruptCause::Superseded(self.runs[by].id.clone());
        for run in superseded {
            let Some(run) = self.by_id.get(&run).copied() else { continue };
            ensure(!self.runs[run].interrupt_accepted, Invariant::LastMessageRuns, || {
                format!("{} is interrupted twice", self.runs[run].id)
            })?;
            self.put(run, Item::Interrupt { cause: cause.clone() });
            self.runs[run].interrupt_accepted = true;
        }
        let left = unended.into_iter().find(|run| !self.runs[*run].interrupt_accepted);
        ensure(left.is_none(), Invariant::LastMessageRuns, || {
            format!("{cause:?} leaves {:?} of its thread", left.map(|run| &self.runs[run].id))
        })
    }

    fn line<'s>(&'s self, runs: &'s [RunIndex]) -> impl Iterator<Item = UnendedRun<'s>> {
        runs.iter()
            .map(|run| &self.runs[*run])
            .map(|stored| UnendedRun { run: &stored.id, interrupted: stored.interrupt_accepted })
    }

    fn thread_id(&self, thread: ThreadIndex) -> ThreadId {
        self.threads[thread].id.clone().unwrap_or_else(|| ThreadId::from("thr"))
    }

    pub(crate) fn create(
        &mut self,
        thread: ThreadIndex,
        agent_index: usize,
        agent: &Agent,
        order: RunRequest,
        now: Timestamp,
    ) -> Checked<RunIndex> {
        let id = order.run_id.clone();
        let first: Event = queue(order.clone(), now);
        let folded = match fold([&first]) {
            Ok(folded) => folded,
            Err(impossible) => return breach(Invariant::NothingIsBroken, impossible.to_string()),
        };
        let ledger = RunLedger::new(&order, agent.revision.clone(), &first);
        self.runs.push(StoredRun {
            id: id.clone(),
            thread,
            agent: agent_index,
            revision: agent.revision.clone(),
            log: vec![first],
            control: encode(&folded)?,
            folded,
            inbox: Vec::new(),
            version: 0,
            ledger,
            epoch: 0,
            leased: false,
            interrupt_accepted: false,
            decisions: std::collections::BTreeMap::new(),
            wake_at: None,
            end_delivered: false,
        });
        let index = self.runs.len() - 1;
        let taken = self.by_id.insert(id, index);
        ensure(taken.is_none(), Invariant::ChildEndIsDeliveredOnce, || "two runs share an id".into())?;
        Ok(index)
    }

    /// A thread as admission sees it.
    #[must_use]
    pub fn thread_state(&self, thread: ThreadIndex) -> ThreadState {
        let row = &self.threads[thread];
        let Some(front) = row.holder.or_else(|| row.queue.first().copied()) else { return ThreadState::Free };
        let below = self.open_descendants(front);
        let descendants = below.iter().map(|run| activity(&self.runs[*run]));
        let RunActivity { state, in_doubt } = activity(&self.runs[front]).with_descendants(descendants);
        let front = self.runs[front].id.clone();
        ThreadState::Busy { front, front_is: state, in_doubt, queued: row.queue.len() }
    }

    /// The unended runs that work for a run, directly or through others.
    fn open_descendants(&self, run: RunIndex) -> Vec<RunIndex> {
        let mut found = Vec::new();
        let mut ahead = vec![run];
        while let Some(run) = ahead.pop() {
            let children = self.runs[run].ledger.calls.iter().filter_map(|call| call.child.as_ref());
            let children = children.filter_map(|id| self.by_id.get(id).copied());
            let open = children.filter(|run| !matches!(self.runs[*run].ledger.status, Announced::Done(_)));
            let open: Vec<RunIndex> = open.collect();
            found.extend(&open);
            ahead.extend(open);
        }
        found
    }

    /// A run that executes anywhere below the front, and a doubt there, count as the front's own.
    fn check_front(&self, thread: ThreadIndex, state: &ThreadState) -> Checked {
        let ThreadState::Busy { front, front_is, in_doubt, .. } = state else { return Ok(()) };
        let Some(run) = self.by_id.get(front).copied() else { return Ok(()) };
        let mut tree = self.open_descendants(run);
        tree.push(run);
        let all_wait = tree.iter().all(|run| matches!(self.runs[*run].ledger.status, Announced::Waiting(_)));
        let doubts = tree.iter().any(|run| is_in_doubt(&self.runs[*run]));
        ensure(
            all_wait == (*front_is == FrontState::Waiting) && doubts == *in_doubt,
            Invariant::AdmissionIsRight,
            || format!("thread {thread}: {state:?}, although all wait: {all_wait}, in doubt: {doubts}"),
        )
    }
}

fn is_in_doubt(stored: &StoredRun) -> bool {
    stored.ledger.open_suspensions().any(|(_, open)| open.kind == SuspensionKind::InDoubt)
}

fn activity(stored: &StoredRun) -> RunActivity {
    let state = match stored.ledger.status {
        Announced::Waiting(_) => FrontState::Waiting,
        Announced::Queued => FrontState::Queued,
        Announced::Running | Announced::Interrupting | Announced::Done(_) => FrontState::Executing,
    };
    RunActivity { state, in_doubt: is_in_doubt(stored) }
}

pub(crate) fn encode(control: &Control) -> Checked<Vec<u8>> {
    match control.encode() {
        Ok(bytes) => Ok(bytes),
        Err(why) => breach(Invariant::FoldIsControl, why),
    }
}

/// Every field is the request's or the agent's, and fewer calls wait only if the sender may approve.
fn check_resolved(
    own: &Policy,
    posted: &Posted,
    resolved: &Result<ResolvedPolicy, LooseningRefused>,
) -> Checked {
    let request = &posted.request;
    let approval = request.approval.unwrap_or(own.approval);
    let continues =
        request.on_reject == Some(OnReject::Continue) && own.on_reject != Some(OnReject::Continue);
    let only_fails = request.on_block == Some(OnBlock::FailCall) && own.on_block == OnBlock::EndRun;
    let loosens = rank(approval) < rank(own.approval) || continues || only_fails;
    let Ok(resolved) = resolved else {
        return ensure(loosens && !posted.may_approve, Invariant::LooseningNeedsTheRole, || {
            format!("{request:?} was refused to a sender who may ask for it")
        });
    };
    ensure(!loosens || posted.may_approve, Invariant::LooseningNeedsTheRole, || {
        format!("{own:?} was loosened by {request:?} for a sender who may not approve")
    })?;
    let expected = Policy {
        continuation: request.continuation.unwrap_or(own.continuation),
        on_reject: request.on_reject.or(own.on_reject),
        on_block: request.on_block.unwrap_or(own.on_block),
        step_end: request.step_end.unwrap_or(own.step_end),
        decisions: request.decisions.unwrap_or(own.decisions),
        execution: request.execution.unwrap_or(own.execution),
        approval,
        while_waiting: request.while_waiting.unwrap_or(own.while_waiting),
        on_busy: request.on_busy.unwrap_or(own.on_busy),
        max_result_chars: own.max_result_chars.min(request.max_result_chars.unwrap_or(u32::MAX)),
        descendants_max: own.descendants_max.min(request.descendants_max.unwrap_or(u32::MAX)),
    };
    let named = resolved.loosened_by == loosens.then(|| posted.by.clone());
    ensure(resolved.policy == expected && named, Invariant::LooseningNeedsTheRole, || {
        format!("{:?} is not what was asked for, {expected:?}", resolved.policy)
    })
}

fn check_admission(state: &ThreadState, posted: &Posted, own: &Policy, admission: &Admission) -> Checked {
    let right = match state {
        ThreadState::Free => *admission == Admission::Hold,
        ThreadState::Busy { front_is, queued, in_doubt, .. } => {
            let wish = match (front_is, posted.asked) {
                (_, Some(asked)) => asked,
                (FrontState::Executing | FrontState::Queued, None) => {
                    posted.request.on_busy.unwrap_or(own.on_busy)
                }
                (FrontState::Waiting, None) => {
                    match posted.request.while_waiting.unwrap_or(own.while_waiting) {
                        WhileWaiting::Reject => OnBusy::Reject,
                        WhileWaiting::Enqueue => OnBusy::Enqueue,
                        WhileWaiting::Supersede => OnBusy::Interrupt,
                    }
                }
            };
            match wish {
                OnBusy::Reject => is_refused(admission),
                OnBusy::Enqueue if *queued >= QUEUE_MAX => is_refused(admission),
                OnBusy::Enqueue => *admission == Admission::Enqueue,
                OnBusy::Interrupt if *in_doubt || *queued >= QUEUE_WITH_SUPERSEDING_MAX => {
                    is_refused(admission)
                }
                OnBusy::Interrupt => *admission == Admission::Supersede,
            }
        }
    };
    ensure(right, Invariant::AdmissionIsRight, || {
        format!("{state:?} meets {posted:?} with the agent's {own:?}: {admission:?}")
    })
}

const fn is_refused(admission: &Admission) -> bool {
    match admission {
        Admission::Refuse(_) => true,
        Admission::Hold | Admission::Enqueue | Admission::Supersede => false,
    }
}

/// Happens in the parent's commit.
pub(crate) fn create_child(store: &mut Store, parent: RunIndex, spawn: &Spawn, clerk: &Agent) -> Checked {
    let thread = store.threads.len();
    store.threads.push(ThreadRow { id: Some(spawn.thread.clone()), ..ThreadRow::default() });
    let parent = &store.runs[parent];
    let at = parent.ledger.at;
    let own = &clerk.revision.policy;
    let policy = for_child(&parent.ledger.policy, own);
    let asks_enough = rank(policy.approval) >= rank(parent.ledger.policy.approval).max(rank(own.approval));
    let expected = Policy { approval: policy.approval, ..*own };
    ensure(asks_enough && policy == expected, Invariant::ChildAsksAsMuch, || {
        format!("{policy:?} of the child of {} under {:?}", parent.id, parent.ledger.policy)
    })?;
    let order = RunRequest {
        run_id: spawn.run.clone(),
        thread_id: spawn.thread.clone(),
        agent: spawn.agent.clone(),
        revision: clerk.digest,
        policy,
        loosened_by: None,
        message: Some(UserMessage {
            id: format!("msg_user_{}", store.runs.len() + 1).as_str().into(),
            content: Arc::new(Value::from("a part of the work")),
            by: None,
        }),
        parent: Some(Parent {
            run_id: parent.id.clone(),
            call_id: spawn.call.clone(),
            depth: spawn.depth,
            grant_tokens: spawn.grant_tokens,
            grant_descendants: Some(spawn.grant_descendants),
        }),
    };
    let run = store.create(thread, CLERK, clerk, order, at)?;
    store.threads[thread].holder = Some(run);
    Ok(())
}

/// In the commit that ends a run, the first queued run that is not interrupted gets the thread, or else the first one.
pub(crate) fn promote_next(store: &mut Store, ended: RunIndex) -> Checked {
    let thread = store.runs[ended].thread;
    store.threads[thread].queue.retain(|run| *run != ended);
    if store.threads[thread].holder != Some(ended) {
        return Ok(());
    }
    let queue = &store.threads[thread].queue;
    let next = promote(store.line(queue)).and_then(|id| store.by_id.get(id).copied());
    let stays = queue.iter().find(|run| !store.runs[**run].interrupt_accepted);
    let expected = stays.or_else(|| queue.first()).copied();
    ensure(next == expected, Invariant::OneHolderPerThread, || {
        let name = |run: Option<RunIndex>| run.map(|run| &store.runs[run].id);
        format!("{:?} follows {}, not {:?}", name(next), store.runs[ended].id, name(expected))
    })?;
    let row = &mut store.threads[thread];
    row.holder = next;
    row.queue.retain(|run| Some(*run) != next);
    Ok(())
}

/// At most one run of a thread is active, and it is the one that holds the thread.
pub(crate) fn check(store: &Store, run: RunIndex) -> Checked {
    let stored = &store.runs[run];
    let holds = store.threads[stored.thread].holder == Some(run);
    let fine = match stored.ledger.status {
        Announced::Queued | Announced::Done(_) => true,
        Announced::Running | Announced::Waiting(_) | Announced::Interrupting => holds,
    };
    ensure(fine, Invariant::OneHolderPerThread, || {
        format!("{} runs and does not hold its thread", stored.id)
    })?;
    let begun = stored
        .log
        .get(1)
        .is_none_or(|event| matches!(event.fact, Fact::RunStarted { .. } | Fact::RunInterrupting { .. }));
    ensure(begun, Invariant::RunTransitionIsLegal, || format!("{} begins strangely", stored.id))
}
