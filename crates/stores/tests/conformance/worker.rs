//! A small driver: decides and applies on a copy, then builds the commit as an engine would.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::store::{
    Append, Appended, Claim, Claimed, Create, Created, InlineAgent, Lease, Loaded, NewChildRun, StoreError,
};
use machine::call::Call;
use machine::decision::{Decision, DecisionAction, Resume};
use machine::delivery;
use machine::event::{Fact, Origin, Parent, RunRequest, Usage, UserMessage};
use machine::id::{CallId, DecisionId, Digest, MessageId, Principal, RunId, ThreadId, ToolName};
use machine::inbox::{self, Item, Ticket};
use machine::input::{GateInput, ModelAnswered, Outcome, RequestedCall, ToolAnswer};
use machine::phase::HookAnswers;
use machine::policy::{OnBusy, Policy};
use machine::projection_rows::{InboxPosition, ProjectionRows};
use machine::thread::IfBusy;
use machine::tool::{Approval, Arguments, EffectClass, OnExpiry, Performer, Tool, ToolLookup};
use machine::{Control, Effect, Event, Input, Rejection, Revision, Run, Timestamp, fold, queue};
use serde_json::{Value, json};

use crate::fixture::{Clock, World};

pub(crate) const EXPIRES_IN_MS: u64 = 60_000;

/// A worker that holds the lease of one run.
pub(crate) struct Worker {
    pub(crate) lease: Lease,
    pub(crate) run: Run,
    /// The inbox as it was loaded.
    pub(crate) inbox: Vec<(Ticket, Item)>,
    /// The version of the run when it was last read.
    pub(crate) version: u64,
    clock: Clock,
    draft: Draft,
    arguments: BTreeMap<CallId, Arguments>,
    last_text: String,
}

/// What the next commit will hold.
#[derive(Clone, Default)]
struct Draft {
    before: Option<Control>,
    events: Vec<Event>,
    consumed: Vec<Ticket>,
    accepted: Vec<Item>,
    rows: ProjectionRows,
}

pub(crate) fn tool(name: &str) -> Tool {
    let (class, approval, performer) = match name {
        "echo" => (EffectClass::Read, Approval::Never, Performer::Server),
        "post" => (EffectClass::Write, Approval::Never, Performer::Server),
        "transfer" | "urgent" => (EffectClass::Write, Approval::Ask, Performer::Server),
        "pick_file" => (EffectClass::Write, Approval::Never, Performer::Client),
        "researcher" => {
            let performer = Performer::Agent { agent: "research".into(), budget_tokens_max: None };
            (EffectClass::Write, Approval::Never, performer)
        }
        other => panic!("no tool {other}"),
    };
    Tool {
        definition: Digest::sha256(b"definition 1"),
        class,
        approval,
        performer,
        expires_in_ms: (name == "urgent").then_some(EXPIRES_IN_MS),
        on_expiry: OnExpiry::Deny,
    }
}

pub(crate) fn arguments_of(call: &str) -> Arguments {
    let value = json!({"of": call});
    let digest = Digest::sha256(value.to_string().as_bytes());
    Arguments::Valid { value: Arc::new(value), digest }
}

pub(crate) fn order(thread: &str, run: &str) -> RunRequest {
    RunRequest {
        run_id: RunId::from(run),
        thread_id: ThreadId::from(thread),
        agent: "assistant".into(),
        revision: Digest::sha256(b"revision"),
        policy: Policy::default(),
        loosened_by: None,
        message: Some(UserMessage {
            id: MessageId::from(format!("msg_user_{run}")),
            content: Arc::new(json!("hello")),
            by: Some("ana".into()),
        }),
        parent: None,
    }
}

/// How often a race is run: `RACE_ROUNDS`, or a few times.
pub(crate) fn rounds(few: usize) -> usize {
    std::env::var("RACE_ROUNDS").map_or(few, |text| text.parse().expect("a number"))
}

/// The creation of a run: its first event and, if `starts` is set, its start in the same commit.
pub(crate) async fn creation(world: &World, order: RunRequest, on_busy: OnBusy, starts: bool) -> Create {
    let seen = world.store.thread(&world.tenant, &order.thread_id).await.unwrap();
    let now = world.clock.now();
    let first = queue(order, now);
    let mut run = Run::new(Arc::new(Revision::default()), fold([&first]).unwrap());
    let mut events = vec![first];
    if starts {
        let start = run.decide(&Input::Start { after: seen.head.clone() }, now).unwrap().events;
        start.iter().for_each(|event| run.apply(event).unwrap());
        events.extend(start);
    }
    let mut rows = ProjectionRows::default();
    rows.add_events(None, &events, InboxPosition::default());
    let append = Append {
        expected_seq: 0,
        expected_version: 0,
        events: events.into_iter().map(Arc::new).collect(),
        control: Arc::new(run.control),
        consumed: Vec::new(),
        accepted: Vec::new(),
        spawn: Vec::new(),
        deliver: Vec::new(),
        rows,
    };
    let tenant = world.tenant.clone();
    let (key, brought) = (None, None);
    let if_busy = IfBusy { executes: on_busy, waits: on_busy };
    Create { tenant, seen, if_busy, begins_after: None, key, inline_agent: brought, lease: starts, append }
}

/// The same with an inline agent, to which the run is pinned.
pub(crate) async fn creation_with_inline_agent(
    world: &World,
    order: RunRequest,
    on_busy: OnBusy,
    starts: bool,
    words: &str,
) -> Create {
    let brought = InlineAgent::new(words);
    let order = RunRequest { revision: *brought.digest(), ..order };
    Create { inline_agent: Some(brought), ..creation(world, order, on_busy, starts).await }
}

/// Creates a run on a free thread. The run holds the thread, and no worker has claimed it.
pub(crate) async fn queued(world: &World, thread: &str, run: &str) -> Created {
    let create = creation(world, order(thread, run), OnBusy::Reject, false).await;
    world.store.create(create).await.unwrap()
}

/// Creates a run that is queued after the run that holds the thread.
pub(crate) async fn enqueued(world: &World, thread: &str, run: &str) -> Created {
    let create = creation(world, order(thread, run), OnBusy::Enqueue, false).await;
    world.store.create(create).await.unwrap()
}

/// Created and started in one commit.
pub(crate) async fn started(world: &World, thread: &str, run: &str) -> Worker {
    started_with(world, order(thread, run)).await
}

pub(crate) async fn started_with(world: &World, order: RunRequest) -> Worker {
    Worker::created(world, creation(world, order, OnBusy::Reject, true).await).await
}

/// Waits for a person: one call of this tool is held.
pub(crate) async fn held(world: &World, thread: &str, run: &str, tool: &str) -> Worker {
    let mut worker = started(world, thread, run).await;
    worker.asks(&[(&format!("call_{run}"), tool)]);
    worker.commit(world).await.unwrap();
    worker
}

/// Waits for a person, and no worker holds the run.
pub(crate) async fn parked(world: &World, thread: &str, run: &str, tool: &str) -> Worker {
    let worker = held(world, thread, run, tool).await;
    assert!(world.store.release(&worker.lease).await.unwrap());
    worker
}

pub(crate) async fn claim(world: &World, run: &str) -> Option<Worker> {
    let asked = Claim::Run { tenant: world.tenant.clone(), run: RunId::from(run) };
    let mut claimed = world.store.claim(asked).await.unwrap();
    assert!(claimed.len() <= 1);
    claimed.pop().map(|claimed| Worker::from_claim(world, claimed))
}

/// The runs that a claim returns, in its order.
pub(crate) async fn next_workers(world: &World, limit: usize) -> Vec<Worker> {
    let claimed = world.store.claim(Claim::Next { limit, skip_tenant: None }).await.unwrap();
    claimed.into_iter().map(|claimed| Worker::from_claim(world, claimed)).collect()
}

/// The ids of the runs that a claim returns, in its order.
pub(crate) async fn next(world: &World, limit: usize) -> Vec<String> {
    next_workers(world, limit).await.into_iter().map(|worker| worker.lease.run.to_string()).collect()
}

/// All claimers claim concurrently, at most `limit` runs at a time, until none is left. Returns the ids of the runs.
pub(crate) async fn claimed_side_by_side(
    claimers: impl IntoIterator<Item = World>,
    limit: usize,
) -> Vec<String> {
    let claim_all = |world: World| async move {
        let mut mine = Vec::new();
        loop {
            let claimed = next(&world, limit).await;
            if claimed.is_empty() {
                return mine;
            }
            mine.extend(claimed);
        }
    };
    let claimers: Vec<_> = claimers.into_iter().map(|world| tokio::spawn(claim_all(world))).collect();
    let mut claimed = Vec::new();
    for claimer in claimers {
        claimed.extend(claimer.await.unwrap());
    }
    claimed
}

impl Worker {
    fn new(world: &World, lease: Lease, loaded: Loaded) -> Self {
        let Loaded { control, inbox, version, .. } = loaded;
        Self {
            lease,
            version,
            draft: Draft { before: Some(control.clone()), ..Draft::default() },
            run: Run::new(Arc::new(Revision::default()), control),
            inbox,
            clock: world.clock.clone(),
            arguments: BTreeMap::new(),
            last_text: String::new(),
        }
    }

    /// The worker of a run that its creator keeps and continues.
    pub(crate) async fn created(world: &World, create: Create) -> Self {
        let control = (*create.append.control).clone();
        let Created { lease, version, .. } = world.store.create(create).await.unwrap();
        let (inbox, holds_thread, begins_after) = (Vec::new(), true, None);
        let loaded = Loaded { control, inbox, version, holds_thread, begins_after };
        Self::new(world, lease.expect("no lease was given"), loaded)
    }

    pub(crate) fn from_claim(world: &World, claimed: Claimed) -> Self {
        Self::new(world, claimed.lease, claimed.loaded.expect("it can be loaded"))
    }

    /// Discards the copy after a refused commit, and loads the run again.
    pub(crate) async fn reload(&mut self, world: &World) {
        let loaded = world.store.load(&self.lease).await.unwrap();
        let again = Self::new(world, self.lease.clone(), loaded);
        *self = Self {
            arguments: std::mem::take(&mut self.arguments),
            last_text: std::mem::take(&mut self.last_text),
            ..again
        };
    }

    /// Reads the inbox and keeps the copy. Returns the pending rows.
    pub(crate) async fn poll_inbox(&mut self, world: &World) -> Vec<(Ticket, Item)> {
        let loaded = world.store.load(&self.lease).await.unwrap();
        self.version = loaded.version;
        loaded.inbox
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn try_input(&mut self, input: &Input, ticket: Option<Ticket>) -> Result<(), Rejection> {
        let decided = self.run.decide(input, self.now())?;
        for event in &decided.events {
            self.run.apply(event).unwrap();
            if let Fact::ToolRequested { call_id, arguments, .. } = &event.fact {
                self.arguments.insert(call_id.clone(), arguments.clone());
            }
        }
        let heard = InboxPosition { count: self.draft.consumed.len(), ticket };
        self.draft.rows.add_events(self.draft.before.as_ref(), &decided.events, heard);
        self.draft.events.extend(decided.events);
        Ok(())
    }

    #[track_caller]
    pub(crate) fn apply_input(&mut self, input: &Input) {
        self.try_input(input, None).unwrap_or_else(|rejection| panic!("rejected: {rejection}"));
    }

    /// Passes one inbox row to the machine and consumes it, even if the machine rejects it.
    pub(crate) fn process_row(&mut self, ticket: Ticket, item: &Item) {
        self.draft.consumed.push(ticket);
        if let Some(input) = inbox::to_input(&self.run.control, item) {
            let _ = self.try_input(&input, Some(ticket));
        }
    }

    /// Consumes a row without processing it.
    pub(crate) fn consume(&mut self, ticket: Ticket) {
        self.draft.consumed.push(ticket);
    }

    pub(crate) fn drain(&mut self) {
        let items: Vec<Item> = self.inbox.iter().map(|(_, item)| item.clone()).collect();
        for index in inbox::drain(&self.run.control, &items, true) {
            let (ticket, item) = self.inbox[index].clone();
            self.process_row(ticket, &item);
        }
        self.pass_gates();
    }

    /// What a worker does first with a run that it has claimed.
    pub(crate) fn take_over(&mut self) {
        let epoch = self.lease.epoch;
        let doubt_at = self.now();
        self.apply_input(&Input::LeaseAcquired { epoch, doubt_at });
        self.drain();
        if self.run.control.ended().is_none() {
            self.apply_input(&Input::InboxDrained);
        }
    }

    /// An item that arrives at the worker itself.
    pub(crate) fn accept(&mut self, item: Item) {
        let input = inbox::to_input(&self.run.control, &item).expect("the machine ignores the item");
        self.apply_input(&input);
        self.draft.accepted.push(item);
        self.pass_gates();
    }

    pub(crate) fn asks(&mut self, calls: &[(&str, &str)]) {
        self.asks_knowing(calls, BTreeSet::new(), HookAnswers::default());
    }

    /// The model asks for calls; the ids in `taken` are avoided.
    pub(crate) fn asks_knowing(
        &mut self,
        calls: &[(&str, &str)],
        taken: BTreeSet<CallId>,
        hooks: HookAnswers,
    ) {
        self.apply_model_answer(calls, taken, hooks);
        self.pass_gates();
    }

    /// The model asks for calls, which stay at the gate.
    pub(crate) fn asks_without_gates(&mut self, calls: &[(&str, &str)]) {
        self.apply_model_answer(calls, BTreeSet::new(), HookAnswers::default());
    }

    fn apply_model_answer(&mut self, calls: &[(&str, &str)], taken: BTreeSet<CallId>, hooks: HookAnswers) {
        let asked = calls.iter().map(|(id, tool)| RequestedCall {
            id: (*id).into(),
            tool: ToolName::from(*tool),
            arguments: arguments_of(id),
        });
        let answered = ModelAnswered { calls: asked.collect(), taken, hooks, ..self.answer("") };
        self.apply_input(&Input::ModelAnswered(answered));
    }

    /// The model gives a final answer, which ends the run.
    pub(crate) fn finish_with(&mut self, text: &str) {
        self.last_text = text.into();
        let answered = self.answer(text);
        self.apply_input(&Input::ModelAnswered(answered));
    }

    fn answer(&self, text: &str) -> ModelAnswered {
        let attempt = self.run.wanted().into_iter().find_map(|effect| match effect {
            Effect::CallModel { attempt, .. } => Some(attempt),
            _ => None,
        });
        ModelAnswered {
            step: self.run.control.step,
            attempt: attempt.expect("the model is not called"),
            text: text.into(),
            reasoning: None,
            calls: Vec::new(),
            usage: Usage { input_tokens: 10, output_tokens: 5 },
            origin: Origin::default(),
            matched: Vec::new(),
            output: None,
            taken: BTreeSet::new(),
            hooks: HookAnswers::default(),
        }
    }

    pub(crate) fn pass_gates(&mut self) {
        while let Some(call) = self.run.wanted().into_iter().find_map(|effect| match effect {
            Effect::Gate(call) => Some(call),
            _ => None,
        }) {
            self.pass_gate(call.as_str());
        }
    }

    pub(crate) fn pass_gate(&mut self, call: &str) {
        let name = self.call(call).tool.clone();
        let call = CallId::from(call);
        let arguments = self.arguments.get(&call).cloned();
        self.apply_input(&Input::Gated(GateInput {
            tool: ToolLookup::Known(tool(name.as_str())),
            arguments: arguments.unwrap_or_else(|| arguments_of(call.as_str())),
            hits: Vec::new(),
            grants: Vec::new(),
            loosening_ended: false,
            unsent_attempt: None,
            hooks: HookAnswers::default(),
            call,
        }));
    }

    pub(crate) fn succeeds(&mut self, call: &str) {
        let (step, attempt) = (self.call(call).step, self.call(call).attempts);
        self.apply_input(&Input::ToolReturned {
            step,
            call: CallId::from(call),
            attempt,
            outcome: success(),
        });
        self.pass_gates();
    }

    pub(crate) fn call(&self, id: &str) -> &Call {
        self.run.control.call(&CallId::from(id)).unwrap_or_else(|| panic!("there is no open call {id}"))
    }

    /// A decision on what holds the call, under this id.
    pub(crate) fn decision(&self, call: &str, id: Option<&str>, action: DecisionAction) -> Decision {
        let call = self.call(call);
        Decision {
            id: id.map(DecisionId::from),
            call: call.id.clone(),
            suspension: call.suspension().expect("the call is not held").id.clone(),
            by: Principal::from("ana"),
            accepted_at: self.now(),
            definition_now: Some(tool(call.tool.as_str()).definition),
            action,
        }
    }

    pub(crate) fn append(&self) -> Append {
        let Draft { before, events, consumed, accepted, rows } = self.draft.clone();
        let deliver = delivery::deliveries(before.as_ref(), &events, &self.last_text).unwrap();
        let spawn = delivery::spawns(&events).into_iter().map(|spawn| self.birth(spawn)).collect();
        Append {
            expected_seq: before.map_or(0, |before| before.seq),
            expected_version: self.version,
            events: events.into_iter().map(Arc::new).collect(),
            control: Arc::new(self.run.control.clone()),
            consumed,
            accepted,
            spawn,
            deliver,
            rows,
        }
    }

    fn birth(&self, spawn: delivery::Spawn) -> NewChildRun {
        let first = queue(
            RunRequest {
                agent: spawn.agent,
                parent: Some(Parent {
                    run_id: self.run.control.run.clone(),
                    call_id: spawn.call,
                    depth: spawn.depth,
                    grant_tokens: spawn.grant_tokens,
                    grant_descendants: Some(spawn.grant_descendants),
                }),
                ..order(spawn.thread.as_str(), spawn.run.as_str())
            },
            self.now(),
        );
        let control = Arc::new(fold([&first]).unwrap());
        NewChildRun { thread: spawn.thread, first: Arc::new(first), control }
    }

    pub(crate) async fn commit(&mut self, world: &World) -> Result<Appended, StoreError> {
        let appended = world.store.append(&self.lease, self.append()).await?;
        self.forget_draft();
        self.version = appended.version;
        Ok(appended)
    }

    /// Clears the draft, as if the commit had succeeded.
    pub(crate) fn forget_draft(&mut self) {
        self.draft = Draft { before: Some(self.run.control.clone()), ..Draft::default() };
        self.version += 1;
        self.inbox.clear();
    }
}

pub(crate) fn success() -> Outcome {
    Outcome::Answered(ToolAnswer::Success { value: Arc::new(Value::from("ok")), warning: None })
}

pub(crate) fn approve() -> DecisionAction {
    DecisionAction::Resume(Resume::default())
}

pub(crate) fn reject() -> DecisionAction {
    DecisionAction::Cancel { reason: Some("no".into()), then: None }
}
