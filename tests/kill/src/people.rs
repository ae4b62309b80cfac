//! The people of a story: what they sent, the answers they got, and what they send next. They outlive every process.
//! After each loss they resend everything whose outcome they do not know.

mod outstanding;
pub mod thread_changes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use machine::event::Pending;
use machine::id::{CallId, DecisionId, MessageId, RunId, SuspensionId, ThreadId};
use machine::status::CallStatus;
use machine::suspension::SuspensionKind;
use serde_json::json;

use thread_changes::{SentChange, ThreadChange};

use crate::judge::{Rule, Violation};
use crate::ledger::{self, Act};
use crate::stories::{Doubt, Story, When};
use crate::wire::{
    CallSnapshot, Command, GivenDecision, Post, Reply, Request, Response, RunSnapshot, RunsSnapshot,
};

#[derive(Clone, Debug)]
pub struct People {
    pub story: Story,
    pub messages: Vec<Posted>,
    pub decisions: BTreeMap<SuspensionId, Decided>,
    pub interrupts: BTreeMap<RunId, Vec<Response>>,
    pub thread_changes: BTreeMap<ThreadChange, SentChange>,
    pub late_answers: BTreeMap<SuspensionId, Vec<Response>>,
    /// The answers to approvals that were sent without suspension ids.
    pub unnamed: BTreeMap<CallId, Vec<Response>>,
    /// Suspensions in doubt during which an approval without ids was resent, and its answer.
    pub resent: BTreeMap<SuspensionId, Response>,
    /// Every suspension ever shown.
    pub seen: BTreeMap<SuspensionId, SeenSuspension>,
    /// Every call ever shown as settled, as first shown.
    pub settled: BTreeMap<CallId, CallSnapshot>,
    /// The payment service's ledger, if these people may read it.
    ledger_file: Option<PathBuf>,
    /// Violations found so far.
    pub objections: Vec<Violation>,
    pub snapshot: Option<RunsSnapshot>,
    /// The event count of the newest state shown so far.
    snapshot_event_count: u64,
    /// Messages that an earlier process accepted.
    owed: BTreeSet<MessageId>,
    /// Messages that were refused. They are resent when something has changed.
    refused: BTreeSet<usize>,
    last_number: u64,
    waits_for: BTreeMap<u64, Subject>,
    /// What was sent to the current process.
    sent: BTreeSet<Subject>,
    /// Subjects for which the store failed, so that it is unknown whether they are stored.
    troubled: BTreeSet<Subject>,
}

#[derive(Clone, Debug)]
pub struct Posted {
    pub id: MessageId,
    pub responses: Vec<Response>,
}

#[derive(Clone, Debug)]
pub struct Decided {
    pub given: GivenDecision,
    pub kind: SuspensionKind,
    /// The answers in order of arrival. There may be fewer than requests.
    pub responses: Vec<Response>,
    /// How often the decision was sent.
    pub sent_count: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSuspension {
    pub run: RunId,
    pub open: Pending,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Message(usize),
    Decision(SuspensionId),
    Interrupt(RunId),
    Thread(ThreadChange),
    ReleaseTool(CallId, u32),
    LateAnswer(SuspensionId),
    /// The call, and the suspension that holds it at that time.
    Unnamed(CallId, Option<SuspensionId>),
}

impl Posted {
    #[must_use]
    pub fn accepted(&self) -> bool {
        self.responses.iter().any(|response| matches!(response, Response::Posted { .. }))
    }
}

impl Decided {
    #[must_use]
    pub fn accepted(&self) -> bool {
        self.responses.iter().any(is_accepted)
    }
}

#[must_use]
pub const fn is_accepted(response: &Response) -> bool {
    match response {
        Response::Accepted | Response::AlreadyApplied => true,
        Response::Posted { .. }
        | Response::Done
        | Response::BoundaryCount { .. }
        | Response::Refused { .. }
        | Response::Trouble { .. } => false,
    }
}

fn lost(what: String) -> Violation {
    Violation { rule: Rule::AcceptedIsKept, what }
}

impl People {
    #[must_use]
    pub fn for_story(story: &Story) -> Self {
        let messages = (1..=story.messages.len())
            .map(|number| Posted { id: MessageId::from(format!("said-{number}")), responses: Vec::new() });
        Self {
            messages: messages.collect(),
            story: story.clone(),
            decisions: BTreeMap::new(),
            interrupts: BTreeMap::new(),
            thread_changes: BTreeMap::new(),
            late_answers: BTreeMap::new(),
            unnamed: BTreeMap::new(),
            resent: BTreeMap::new(),
            seen: BTreeMap::new(),
            settled: BTreeMap::new(),
            ledger_file: None,
            objections: Vec::new(),
            snapshot: None,
            snapshot_event_count: 0,
            owed: BTreeSet::new(),
            refused: BTreeSet::new(),
            last_number: 0,
            waits_for: BTreeMap::new(),
            sent: BTreeSet::new(),
            troubled: BTreeSet::new(),
        }
    }

    /// Lets these people read the payment service's ledger.
    #[must_use]
    pub fn reading(self, ledger_file: PathBuf) -> Self {
        Self { ledger_file: Some(ledger_file), ..self }
    }

    /// A new process started: whatever the last one did not answer is unknown.
    pub fn begin_again(&mut self) {
        let accepted = self.messages.iter().filter(|posted| posted.accepted());
        self.owed = accepted.map(|posted| posted.id.clone()).collect();
        self.waits_for.clear();
        self.sent.clear();
        self.troubled.clear();
        self.snapshot = None;
    }

    /// A node was killed or paused for long: the outcome of its unanswered commands is unknown, and everything is
    /// resent.
    pub fn lose(&mut self, unanswered: impl IntoIterator<Item = u64>) {
        for number in unanswered {
            self.waits_for.remove(&number);
        }
        let waits: BTreeSet<&Subject> = self.waits_for.values().collect();
        self.sent.retain(|subject| waits.contains(subject));
    }

    /// Resends what a node answered with a store failure.
    pub fn resend_after_store_failure(&mut self) {
        for subject in std::mem::take(&mut self.troubled) {
            self.sent.remove(&subject);
        }
    }

    /// Time passes, so the last shown state is out of date.
    pub fn forget_snapshot(&mut self) {
        self.snapshot = None;
    }

    /// Takes over the state that one of several nodes shows, unless a newer one was shown already: a dead node may
    /// have been behind.
    pub fn observe_newer(&mut self, snapshot: RunsSnapshot) {
        if self.snapshot_event_count <= snapshot.event_count() {
            self.snapshot_event_count = snapshot.event_count();
            self.observe(snapshot);
        }
    }

    /// Takes over the state that the process shows.
    pub fn observe(&mut self, snapshot: RunsSnapshot) {
        for index in std::mem::take(&mut self.refused) {
            self.sent.remove(&Subject::Message(index));
        }
        for message in &self.owed {
            let is_there = snapshot.runs.iter().any(|run| run.message.as_ref() == Some(message));
            if !is_there && !self.has_deleted() {
                self.objections.push(lost(format!("{message} was accepted, and no run has it")));
            }
        }
        for (run, open) in snapshot.pending() {
            let seen = SeenSuspension { run: run.run.clone(), open: open.clone() };
            let first = self.seen.entry(open.suspension_id.clone()).or_insert_with(|| seen.clone());
            if *first != seen {
                let what = format!("{} was {first:?}, and is {seen:?}", open.suspension_id);
                self.objections.push(Violation { rule: Rule::ApprovalsStay, what });
            }
        }
        for call in snapshot.calls() {
            match self.settled.get(&call.call) {
                Some(before) if before != call => {
                    let what = format!("{before:?} had settled, and is {call:?}");
                    self.objections.push(Violation { rule: Rule::SettledStays, what });
                }
                Some(_) => {}
                None if call.status.terminal() => {
                    self.settled.insert(call.call.clone(), call.clone());
                }
                None => {}
            }
        }
        self.snapshot = Some(snapshot);
    }

    /// Processes the answer to a command.
    pub fn process_response(&mut self, number: u64, response: Response) {
        let Some(subject) = self.waits_for.remove(&number) else { return };
        if let Response::Trouble { .. } = response {
            self.troubled.insert(subject);
            return;
        }
        match subject {
            Subject::Message(index) => {
                if matches!(response, Response::Refused { .. }) {
                    self.refused.insert(index);
                }
                self.messages[index].responses.push(response);
            }
            Subject::Decision(id) => {
                let Some(decided) = self.decisions.get_mut(&id) else { return };
                if decided.accepted() && response != Response::AlreadyApplied {
                    let given = &decided.given;
                    let what = format!("{} was accepted, and then answered {response:?}", given.id);
                    self.objections.push(lost(what));
                }
                if !decided.accepted() && decided.sent_count == 1 && response == Response::AlreadyApplied {
                    let what = format!("{} was sent once and is reported as a repeat", decided.given.id);
                    self.objections.push(Violation { rule: Rule::NothingIsMadeUp, what });
                }
                decided.responses.push(response);
            }
            Subject::Thread(change) => {
                self.thread_changes.entry(change).or_default().responses.push(response)
            }
            Subject::Interrupt(run) => self.interrupts.entry(run).or_default().push(response),
            Subject::LateAnswer(id) => self.late_answers.entry(id).or_default().push(response),
            Subject::Unnamed(call, open) => {
                let doubted = |id: &SuspensionId| {
                    self.seen.get(id).is_some_and(|seen| seen.open.kind == SuspensionKind::InDoubt)
                };
                if let Some(id) = open.filter(doubted) {
                    self.resent.insert(id, response.clone());
                }
                self.unnamed.entry(call).or_default().push(response);
            }
            Subject::ReleaseTool(..) => {}
        }
    }

    /// The commands to send now.
    pub fn next_commands(&mut self) -> Vec<Command> {
        let mut commands = Vec::new();
        self.delete(&mut commands);
        if self.has_deleted() {
            return commands;
        }
        let Some(snapshot) = self.snapshot.clone() else { return commands };
        self.post(&snapshot, &mut commands);
        self.repeat(&mut commands);
        self.approve_unnamed(&snapshot, &mut commands);
        self.decide(&snapshot, &mut commands);
        self.auto_approve(&snapshot, &mut commands);
        self.interrupt(&snapshot, &mut commands);
        self.release_tool(&snapshot, &mut commands);
        commands
    }

    fn post(&mut self, snapshot: &RunsSnapshot, commands: &mut Vec<Command>) {
        for index in 0..self.messages.len() {
            let id = self.messages[index].id.clone();
            let sent = self.story.messages[index].clone();
            let there = snapshot.runs.iter().any(|run| run.message.as_ref() == Some(&id));
            if there || !self.is_time(sent.when, snapshot) {
                continue;
            }
            let post = Post {
                message: id,
                thread: ThreadId::from(sent.thread),
                content: serde_json::to_value(&sent.script).unwrap_or_default(),
                policy: sent.policy,
            };
            self.send_once(Subject::Message(index), Request::Post(post), commands);
        }
    }

    /// Resends every decision to a process that may not know it.
    fn repeat(&mut self, commands: &mut Vec<Command>) {
        let decisions: Vec<SuspensionId> = self.decisions.keys().cloned().collect();
        for id in decisions {
            self.send_decision(&id, commands);
        }
    }

    /// Sends the approval while the call is held, and again to every process and at every doubt, as a client does
    /// that never received the answer.
    fn approve_unnamed(&mut self, snapshot: &RunsSnapshot, commands: &mut Vec<Command>) {
        if !self.story.unnamed {
            return;
        }
        for run in snapshot.runs.iter().filter(|run| !run.ended) {
            for call in &run.calls {
                let open = run.pending.iter().find(|open| open.call_id == call.call);
                let asked = open.is_some_and(|open| open.kind == SuspensionKind::Approval);
                if asked {
                    self.unnamed.entry(call.call.clone()).or_default();
                }
                if self.unnamed.contains_key(&call.call) {
                    let subject =
                        Subject::Unnamed(call.call.clone(), open.map(|open| open.suspension_id.clone()));
                    let request = Request::ApproveUnnamed { run: run.run.clone(), call: call.call.clone() };
                    self.send_once(subject, request, commands);
                }
            }
        }
    }

    fn decide(&mut self, snapshot: &RunsSnapshot, commands: &mut Vec<Command>) {
        for (run, open) in snapshot.pending() {
            let is_resent_first = match open.kind {
                SuspensionKind::Approval => true,
                SuspensionKind::InDoubt => !self.resent.contains_key(&open.suspension_id),
                SuspensionKind::Question
                | SuspensionKind::ClientTool
                | SuspensionKind::External
                | SuspensionKind::ChildRun => false,
            };
            if self.story.unnamed && is_resent_first {
                continue;
            }
            if let Some(reply) = self.reply_to(open) {
                let given = GivenDecision {
                    id: DecisionId::from(format!("decision-{}", open.suspension_id)),
                    run: run.run.clone(),
                    call: open.call_id.clone(),
                    suspension: open.suspension_id.clone(),
                    reply,
                };
                self.decisions.entry(open.suspension_id.clone()).or_insert_with(|| Decided {
                    given,
                    kind: open.kind,
                    responses: Vec::new(),
                    sent_count: 0,
                });
                self.send_decision(&open.suspension_id, commands);
            } else if open.kind == SuspensionKind::InDoubt && self.story.doubt == Doubt::LateAnswer {
                self.answer_late(run, open, commands);
            }
        }
    }

    fn reply_to(&self, open: &Pending) -> Option<Reply> {
        let checks = open.kind == SuspensionKind::InDoubt && self.story.doubt == Doubt::Checked;
        if !checks {
            return self.story.reply_to(open);
        }
        let acts = self
            .ledger_file
            .as_ref()
            .and_then(|ledger_file| ledger::read(ledger_file).ok())
            .unwrap_or_default();
        let charge = |act: &&Act| {
            act.call == open.call_id && act.charge_record.is_some_and(|charge_record| charge_record.charged)
        };
        let charged = acts.iter().find(charge);
        Some(charged.map_or(Reply::Retry, |act| Reply::Result(json!({"receipt": act.key}))))
    }

    fn send_decision(&mut self, id: &SuspensionId, commands: &mut Vec<Command>) {
        let Some(decided) = self.decisions.get(id) else { return };
        let request = Request::Decide(decided.given.clone());
        if self.send_once(Subject::Decision(id.clone()), request, commands)
            && let Some(decided) = self.decisions.get_mut(id)
        {
            decided.sent_count += 1;
        }
    }

    fn answer_late(&mut self, run: &RunSnapshot, open: &Pending, commands: &mut Vec<Command>) {
        let told = self.late_answers.get(&open.suspension_id);
        // Not resent once accepted: if the engine loses it, the run gets stuck and the test fails.
        if told.is_some_and(|responses| responses.iter().any(is_accepted)) {
            return;
        }
        let Some(call) = run.calls.iter().find(|call| call.call == open.call_id) else { return };
        let request = Request::LateAnswer {
            run: run.run.clone(),
            step: call.step,
            call: call.call.clone(),
            attempt: call.attempts,
        };
        self.send_once(Subject::LateAnswer(open.suspension_id.clone()), request, commands);
    }

    fn interrupt(&mut self, snapshot: &RunsSnapshot, commands: &mut Vec<Command>) {
        let Some(when) = self.story.interrupt else { return };
        let Some(run) = snapshot.runs.first().filter(|run| !run.ended) else { return };
        if self.is_time(when, snapshot) || self.interrupts.contains_key(&run.run) {
            self.interrupts.entry(run.run.clone()).or_default();
            let request = Request::Interrupt { run: run.run.clone() };
            self.send_once(Subject::Interrupt(run.run.clone()), request, commands);
        }
    }

    fn release_tool(&mut self, snapshot: &RunsSnapshot, commands: &mut Vec<Command>) {
        let Some((id, when)) = self.story.release_tool else { return };
        if !self.is_time(when, snapshot) {
            return;
        }
        if let Some(call) = snapshot.calls().find(|call| call.call.as_str() == id).cloned()
            && call.status == CallStatus::Running
        {
            let request = Request::ReleaseTool { call: call.call.clone() };
            self.send_once(Subject::ReleaseTool(call.call, call.attempts), request, commands);
        }
    }

    /// Sends once per process. Returns whether it sent.
    fn send_once(&mut self, subject: Subject, request: Request, commands: &mut Vec<Command>) -> bool {
        if !self.sent.insert(subject.clone()) {
            return false;
        }
        self.last_number += 1;
        self.waits_for.insert(self.last_number, subject);
        commands.push(Command { number: self.last_number, request });
        true
    }

    fn is_time(&self, when: When, snapshot: &RunsSnapshot) -> bool {
        let call = |id: &str| snapshot.calls().find(|call| call.call.as_str() == id);
        let open =
            |id: &str| snapshot.pending().map(|(_, open)| open).find(|open| open.call_id.as_str() == id);
        match when {
            When::AtOnce => true,
            When::Held(id) => self
                .seen
                .values()
                .any(|seen| seen.open.call_id.as_str() == id && seen.open.kind == SuspensionKind::Approval),
            When::UnderWay(id) => {
                call(id).is_some_and(|call| call.status == CallStatus::Running)
                    || open(id).is_some_and(|open| open.kind == SuspensionKind::InDoubt)
            }
            When::Settled(id) => self.settled.contains_key(&CallId::from(id)),
            When::AllEnded => self.messages.iter().all(|posted| {
                snapshot.runs.iter().any(|run| run.ended && run.message.as_ref() == Some(&posted.id))
            }),
            When::Decided(id) => {
                self.decisions.values().any(|decided| decided.given.call.as_str() == id && decided.accepted())
            }
        }
    }
}
