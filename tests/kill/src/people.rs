//! The people of a story: what they sent, the answers they got, and what they send next. They outlive every process.
//! After each loss they resend everything whose outcome they do not know.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use machine::event::Pending;
use machine::id::{CallId, DecisionId, MessageId, RunId, SuspensionId, ThreadId};
use machine::status::CallStatus;
use machine::suspension::SuspensionKind;
use serde_json::json;

use crate::judge::{Rule, Violation};
use crate::ledger::{self, Act};
use crate::stories::{Doubt, Story, When};
use crate::wire::{Command, Given, Post, Reply, Shown, ShownCall, ShownRun, Wish, Word};

#[derive(Clone, Debug)]
pub struct People {
    pub story: Story,
    pub messages: Vec<Posted>,
    pub decisions: BTreeMap<SuspensionId, Decided>,
    pub interrupts: BTreeMap<RunId, Vec<Word>>,
    pub late_answers: BTreeMap<SuspensionId, Vec<Word>>,
    /// The answers to approvals that were sent without suspension ids.
    pub unnamed: BTreeMap<CallId, Vec<Word>>,
    /// Suspensions in doubt during which an approval without ids was resent, and its answer.
    pub resent: BTreeMap<SuspensionId, Word>,
    /// Every suspension ever shown.
    pub seen: BTreeMap<SuspensionId, Seen>,
    /// Every call ever shown as settled, as first shown.
    pub settled: BTreeMap<CallId, ShownCall>,
    /// The till's ledger, if these people may read it.
    books: Option<PathBuf>,
    /// Violations found so far.
    pub objections: Vec<Violation>,
    pub shown: Option<Shown>,
    /// The event count of the newest state shown so far.
    shown_count: u64,
    /// Messages that an earlier process accepted.
    owed: BTreeSet<MessageId>,
    /// Messages that were refused. They are resent when something has changed.
    refused: BTreeSet<usize>,
    last_number: u64,
    waits_for: BTreeMap<u64, Subject>,
    /// What was sent to the current process.
    said: BTreeSet<Subject>,
    /// Subjects for which the store failed, so that it is unknown whether they are stored.
    troubled: BTreeSet<Subject>,
}

#[derive(Clone, Debug)]
pub struct Posted {
    pub id: MessageId,
    pub words: Vec<Word>,
}

#[derive(Clone, Debug)]
pub struct Decided {
    pub given: Given,
    pub kind: SuspensionKind,
    /// The answers in order of arrival. There may be fewer than requests.
    pub words: Vec<Word>,
    /// How often the decision was sent.
    pub said_count: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub run: RunId,
    pub open: Pending,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Message(usize),
    Decision(SuspensionId),
    Interrupt(RunId),
    Tell(CallId, u32),
    LateAnswer(SuspensionId),
    /// The call, and the suspension that holds it at that time.
    Unnamed(CallId, Option<SuspensionId>),
}

impl Posted {
    #[must_use]
    pub fn accepted(&self) -> bool {
        self.words.iter().any(|word| matches!(word, Word::Posted { .. }))
    }
}

impl Decided {
    #[must_use]
    pub fn accepted(&self) -> bool {
        self.words.iter().any(is_accepted)
    }
}

#[must_use]
pub const fn is_accepted(word: &Word) -> bool {
    match word {
        Word::Accepted | Word::AlreadyApplied => true,
        Word::Posted { .. }
        | Word::Done
        | Word::Crossings { .. }
        | Word::Refused { .. }
        | Word::Trouble { .. } => false,
    }
}

fn lost(what: String) -> Violation {
    Violation { rule: Rule::AcceptedIsKept, what }
}

impl People {
    #[must_use]
    pub fn of(story: &Story) -> Self {
        let messages = (1..=story.messages.len())
            .map(|number| Posted { id: MessageId::from(format!("said-{number}")), words: Vec::new() });
        Self {
            messages: messages.collect(),
            story: story.clone(),
            decisions: BTreeMap::new(),
            interrupts: BTreeMap::new(),
            late_answers: BTreeMap::new(),
            unnamed: BTreeMap::new(),
            resent: BTreeMap::new(),
            seen: BTreeMap::new(),
            settled: BTreeMap::new(),
            books: None,
            objections: Vec::new(),
            shown: None,
            shown_count: 0,
            owed: BTreeSet::new(),
            refused: BTreeSet::new(),
            last_number: 0,
            waits_for: BTreeMap::new(),
            said: BTreeSet::new(),
            troubled: BTreeSet::new(),
        }
    }

    /// Lets these people read the till's ledger.
    #[must_use]
    pub fn reading(self, books: PathBuf) -> Self {
        Self { books: Some(books), ..self }
    }

    /// A new process started: whatever the last one did not answer is unknown.
    pub fn begin_again(&mut self) {
        let accepted = self.messages.iter().filter(|posted| posted.accepted());
        self.owed = accepted.map(|posted| posted.id.clone()).collect();
        self.waits_for.clear();
        self.said.clear();
        self.troubled.clear();
        self.shown = None;
    }

    /// A node was killed or paused for long: the outcome of its unanswered commands is unknown, and everything is
    /// resent.
    pub fn lose(&mut self, unanswered: impl IntoIterator<Item = u64>) {
        for number in unanswered {
            self.waits_for.remove(&number);
        }
        let waits: BTreeSet<&Subject> = self.waits_for.values().collect();
        self.said.retain(|subject| waits.contains(subject));
    }

    /// Resends what a node answered with a store failure.
    pub fn take_heart(&mut self) {
        for subject in std::mem::take(&mut self.troubled) {
            self.said.remove(&subject);
        }
    }

    /// Time passes, so the last shown state is out of date.
    pub fn look_again(&mut self) {
        self.shown = None;
    }

    /// Takes over the state that one of several nodes shows, unless a newer one was shown already: a dead node may
    /// have been behind.
    pub fn see_newer(&mut self, shown: Shown) {
        if self.shown_count <= shown.event_count() {
            self.shown_count = shown.event_count();
            self.see(shown);
        }
    }

    /// Takes over the state that the process shows.
    pub fn see(&mut self, shown: Shown) {
        for index in std::mem::take(&mut self.refused) {
            self.said.remove(&Subject::Message(index));
        }
        for message in &self.owed {
            if !shown.runs.iter().any(|run| run.message.as_ref() == Some(message)) {
                self.objections.push(lost(format!("{message} was accepted, and no run has it")));
            }
        }
        for (run, open) in shown.pending() {
            let seen = Seen { run: run.run.clone(), open: open.clone() };
            let first = self.seen.entry(open.suspension_id.clone()).or_insert_with(|| seen.clone());
            if *first != seen {
                let what = format!("{} was {first:?}, and is {seen:?}", open.suspension_id);
                self.objections.push(Violation { rule: Rule::ApprovalsStay, what });
            }
        }
        for call in shown.calls() {
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
        self.shown = Some(shown);
    }

    /// Processes the answer to a command.
    pub fn hear(&mut self, number: u64, word: Word) {
        let Some(subject) = self.waits_for.remove(&number) else { return };
        if let Word::Trouble { .. } = word {
            self.troubled.insert(subject);
            return;
        }
        match subject {
            Subject::Message(index) => {
                if matches!(word, Word::Refused { .. }) {
                    self.refused.insert(index);
                }
                self.messages[index].words.push(word);
            }
            Subject::Decision(id) => {
                let Some(decided) = self.decisions.get_mut(&id) else { return };
                if decided.accepted() && word != Word::AlreadyApplied {
                    let given = &decided.given;
                    let what = format!("{} was accepted, and then answered {word:?}", given.id);
                    self.objections.push(lost(what));
                }
                if !decided.accepted() && decided.said_count == 1 && word == Word::AlreadyApplied {
                    let what = format!("{} was said once and is called a repeat", decided.given.id);
                    self.objections.push(Violation { rule: Rule::NothingIsMadeUp, what });
                }
                decided.words.push(word);
            }
            Subject::Interrupt(run) => self.interrupts.entry(run).or_default().push(word),
            Subject::LateAnswer(id) => self.late_answers.entry(id).or_default().push(word),
            Subject::Unnamed(call, open) => {
                let doubted = |id: &SuspensionId| {
                    self.seen.get(id).is_some_and(|seen| seen.open.kind == SuspensionKind::InDoubt)
                };
                if let Some(id) = open.filter(doubted) {
                    self.resent.insert(id, word.clone());
                }
                self.unnamed.entry(call).or_default().push(word);
            }
            Subject::Tell(..) => {}
        }
    }

    /// The commands to send now.
    pub fn speak(&mut self) -> Vec<Command> {
        let Some(shown) = self.shown.clone() else { return Vec::new() };
        let mut commands = Vec::new();
        self.post(&shown, &mut commands);
        self.repeat(&mut commands);
        self.approve_unnamed(&shown, &mut commands);
        self.decide(&shown, &mut commands);
        self.interrupt(&shown, &mut commands);
        self.tell(&shown, &mut commands);
        commands
    }

    fn post(&mut self, shown: &Shown, commands: &mut Vec<Command>) {
        for index in 0..self.messages.len() {
            let id = self.messages[index].id.clone();
            let said = self.story.messages[index].clone();
            let there = shown.runs.iter().any(|run| run.message.as_ref() == Some(&id));
            if there || !self.is_time(said.when, shown) {
                continue;
            }
            let post = Post {
                message: id,
                thread: ThreadId::from(said.thread),
                content: serde_json::to_value(&said.script).unwrap_or_default(),
                policy: said.policy,
            };
            self.say(Subject::Message(index), Wish::Post(post), commands);
        }
    }

    /// Resends every decision to a process that may not know it.
    fn repeat(&mut self, commands: &mut Vec<Command>) {
        let decisions: Vec<SuspensionId> = self.decisions.keys().cloned().collect();
        for id in decisions {
            self.say_decision(&id, commands);
        }
    }

    /// Sends the approval while the call is held, and again to every process and at every doubt, as a client does
    /// that never received the answer.
    fn approve_unnamed(&mut self, shown: &Shown, commands: &mut Vec<Command>) {
        if !self.story.unnamed {
            return;
        }
        for run in shown.runs.iter().filter(|run| !run.ended) {
            for call in &run.calls {
                let open = run.pending.iter().find(|open| open.call_id == call.call);
                let asked = open.is_some_and(|open| open.kind == SuspensionKind::Approval);
                if asked {
                    self.unnamed.entry(call.call.clone()).or_default();
                }
                if self.unnamed.contains_key(&call.call) {
                    let subject =
                        Subject::Unnamed(call.call.clone(), open.map(|open| open.suspension_id.clone()));
                    let wish = Wish::ApproveUnnamed { run: run.run.clone(), call: call.call.clone() };
                    self.say(subject, wish, commands);
                }
            }
        }
    }

    fn decide(&mut self, shown: &Shown, commands: &mut Vec<Command>) {
        for (run, open) in shown.pending() {
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
                let given = Given {
                    id: DecisionId::from(format!("decision-{}", open.suspension_id)),
                    run: run.run.clone(),
                    call: open.call_id.clone(),
                    suspension: open.suspension_id.clone(),
                    reply,
                };
                self.decisions.entry(open.suspension_id.clone()).or_insert_with(|| Decided {
                    given,
                    kind: open.kind,
                    words: Vec::new(),
                    said_count: 0,
                });
                self.say_decision(&open.suspension_id, commands);
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
        let acts = self.books.as_ref().and_then(|books| ledger::read(books).ok()).unwrap_or_default();
        let charge = |act: &&Act| act.call == open.call_id && act.visit.is_some_and(|visit| visit.charged);
        let charged = acts.iter().find(charge);
        Some(charged.map_or(Reply::Retry, |act| Reply::Result(json!({"receipt": act.key}))))
    }

    fn say_decision(&mut self, id: &SuspensionId, commands: &mut Vec<Command>) {
        let Some(decided) = self.decisions.get(id) else { return };
        let wish = Wish::Decide(decided.given.clone());
        if self.say(Subject::Decision(id.clone()), wish, commands)
            && let Some(decided) = self.decisions.get_mut(id)
        {
            decided.said_count += 1;
        }
    }

    fn answer_late(&mut self, run: &ShownRun, open: &Pending, commands: &mut Vec<Command>) {
        let told = self.late_answers.get(&open.suspension_id);
        // Not resent once accepted: if the engine loses it, the run gets stuck and the test fails.
        if told.is_some_and(|words| words.iter().any(is_accepted)) {
            return;
        }
        let Some(call) = run.calls.iter().find(|call| call.call == open.call_id) else { return };
        let wish = Wish::LateAnswer {
            run: run.run.clone(),
            step: call.step,
            call: call.call.clone(),
            attempt: call.attempts,
        };
        self.say(Subject::LateAnswer(open.suspension_id.clone()), wish, commands);
    }

    fn interrupt(&mut self, shown: &Shown, commands: &mut Vec<Command>) {
        let Some(when) = self.story.interrupt else { return };
        let Some(run) = shown.runs.first().filter(|run| !run.ended) else { return };
        if self.is_time(when, shown) || self.interrupts.contains_key(&run.run) {
            self.interrupts.entry(run.run.clone()).or_default();
            let wish = Wish::Interrupt { run: run.run.clone() };
            self.say(Subject::Interrupt(run.run.clone()), wish, commands);
        }
    }

    fn tell(&mut self, shown: &Shown, commands: &mut Vec<Command>) {
        let Some((id, when)) = self.story.tell else { return };
        if !self.is_time(when, shown) {
            return;
        }
        if let Some(call) = shown.calls().find(|call| call.call.as_str() == id).cloned()
            && call.status == CallStatus::Running
        {
            let wish = Wish::Tell { call: call.call.clone() };
            self.say(Subject::Tell(call.call, call.attempts), wish, commands);
        }
    }

    /// Sends once per process. Returns whether it sent.
    fn say(&mut self, subject: Subject, wish: Wish, commands: &mut Vec<Command>) -> bool {
        if !self.said.insert(subject.clone()) {
            return false;
        }
        self.last_number += 1;
        self.waits_for.insert(self.last_number, subject);
        commands.push(Command { number: self.last_number, wish });
        true
    }

    fn is_time(&self, when: When, shown: &Shown) -> bool {
        let call = |id: &str| shown.calls().find(|call| call.call.as_str() == id);
        let open = |id: &str| shown.pending().map(|(_, open)| open).find(|open| open.call_id.as_str() == id);
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
            When::Decided(id) => {
                self.decisions.values().any(|decided| decided.given.call.as_str() == id && decided.accepted())
            }
        }
    }

    /// No answer is outstanding, and everything that started has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let Some(shown) = &self.shown else { return false };
        let there = |posted: &Posted| shown.runs.iter().any(|run| run.message.as_ref() == Some(&posted.id));
        let unsaid = |id: &SuspensionId| !self.said.contains(&Subject::Decision(id.clone()));
        self.messages.iter().all(there)
            && shown.runs.iter().all(|run| run.ended)
            && self.waits_for.is_empty()
            && self.troubled.is_empty()
            && !self.decisions.keys().any(unsaid)
    }

    /// Nothing happens until time passes or a node claims the run again.
    #[must_use]
    pub fn waits_for_an_outage(&self) -> bool {
        self.waits_for_an_expiry() || self.waits_for_a_late_answer()
    }

    /// Nothing happens until time passes.
    #[must_use]
    pub fn waits_for_an_expiry(&self) -> bool {
        let Some(shown) = &self.shown else { return false };
        let expires = |open: &Pending| open.kind == SuspensionKind::Approval && open.expires_at.is_some();
        self.is_at_rest() && self.story.reply.is_none() && shown.pending().any(|(_, open)| expires(open))
    }

    fn waits_for_a_late_answer(&self) -> bool {
        let Some(shown) = &self.shown else { return false };
        let late = shown.pending().any(|(_, open)| {
            let words = self.late_answers.get(&open.suspension_id);
            words.is_some_and(|words| words.iter().any(is_accepted))
        });
        self.is_at_rest() && late
    }

    fn is_at_rest(&self) -> bool {
        let Some(shown) = &self.shown else { return false };
        self.waits_for.is_empty() && shown.runs.iter().all(|run| run.ended || run.waiting)
    }

    /// The answers these people still wait for, as text.
    #[must_use]
    pub fn open_wishes(&self) -> String {
        format!("{:?}", self.waits_for)
    }
}
