//! A run with two approvals, a write that needs none, a question and a child, and one that is interrupted while it is
//! held; every caller repeats each request until it gets an answer.

use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use engine::agent::Agent;
use engine::clock::RuntimeClock;
use engine::feed::Subscription;
use engine::model::ModelAnswer;
use engine::posting::Message;
use engine::store::{
    ApprovalFilter, Page, RunFilter, RunView, StoreError, StoreFailure, SuspensionView, Tenant, ViewStore,
};
use engine::tool::{
    Approval, AskKind, DeclaredTool, OnExpiry, Outcome, Performer, ResumeMode, SuspendRequest, Tool,
    ToolAnswer, ToolDefinition,
};
use machine::event::Event;
use machine::fold;
use machine::id::{Principal, RunId, ThreadId};
use machine::inbox::Verdict;
use machine::projection_rows::ApprovalStatus;
use machine::suspension::SuspensionKind;
use machine::termination::{Cancelled, Termination};
use serde_json::{Value, json};

use crate::harness::{Scripted, Sent, ask, asking, echo, next_event, success};
use crate::refusing_store::{Fate, RefusingStore};

/// Long enough for everything that can happen by itself.
const QUIET: Duration = Duration::from_secs(60);
/// More than the story has; beyond it the run asks for ever.
const QUESTION_COUNT_MAX: usize = 12;

pub(crate) struct Story {
    context: String,
    fate: Fate,
    clock: RuntimeClock,
    engine: Engine,
    store: Arc<RefusingStore>,
    desk: Scripted,
    sent: Sent,
    /// Another process has taken over what the first one lost.
    is_taken_over: bool,
}

fn agent_tool() -> impl Tool {
    let performer = Performer::Agent { agent: "clerk".into(), budget_tokens_max: None };
    let definition = ToolDefinition::new("clerk", "Delegates").performed_by(performer);
    DeclaredTool::new(definition.approval(Approval::Never))
}

/// Asks once, then returns the answer.
fn picker(sent: &Sent) -> impl Tool + use<> {
    sent.tool(ToolDefinition::new("pick", "Asks back").read(), |request| match &request.resume {
        None => Outcome::Answered(ToolAnswer::Pending(SuspendRequest {
            kind: AskKind::Question,
            question: Some("which one?".into()),
            schema: None,
            mode: ResumeMode::ReplayToolCall,
            resume_state: Some(Arc::new(json!({"cursor": 7}))),
            expires_in_ms: None,
            on_expiry: OnExpiry::Deny,
        })),
        Some(resumed) => success(resumed.answer.as_deref().cloned().unwrap_or(Value::Null)),
    })
}

/// The agents of the story in a process of their own.
async fn process(store: Arc<RefusingStore>, clock: RuntimeClock, desk: &Scripted, sent: &Sent) -> Engine {
    let clerk = Scripted::new([
        Ok(ask(&[("t", "transfer", json!({"to": "eve"}))])),
        Ok(ModelAnswer::text("eve is paid")),
    ]);
    let hasty = asking(&[("z", "transfer", json!({"to": "mallory"}))]);
    let post = ToolDefinition::new("post", "Writes").approval(Approval::Never);
    let desk = Agent::new("desk", desk.clone())
        .tool(sent.transfer())
        .tool(sent.tool(post, |_| json!("posted")))
        .tool(agent_tool())
        .tool(picker(sent))
        .tool(echo());
    Engine::on_shared(store)
        .clock(clock)
        .agent(desk)
        .agent(Agent::new("clerk", clerk).tool(sent.transfer()))
        .agent(Agent::new("hasty", hasty).tool(sent.transfer()))
        .start()
        .await
        .unwrap()
}

impl Story {
    pub(crate) async fn begin(
        number: u64,
        fate: Fate,
        store: Arc<RefusingStore>,
        clock: RuntimeClock,
    ) -> Self {
        let sent = Sent::default();
        let desk = asking(&[
            ("a", "transfer", json!({"to": "bob"})),
            ("b", "post", json!({"text": "hi"})),
            ("c", "clerk", json!({"message": "pay eve"})),
            ("d", "pick", json!({"from": "all"})),
            ("e", "echo", json!({"n": 1})),
        ]);
        let engine = process(store.clone(), clock, &desk, &sent).await;
        let context = format!("commit {number}, {fate:?}");
        Self { context, fate, clock, engine, store, desk, sent, is_taken_over: false }
    }

    /// How many calls were in doubt.
    pub(crate) async fn play(mut self) -> usize {
        let (run, mut watched) = self.post("desk").await;
        let mut seen = Vec::new();
        for _ in 0..QUESTION_COUNT_MAX {
            if self.watch(&run, &mut watched, &mut seen).await {
                break;
            }
            let open = self.approvals(Some(ApprovalStatus::Pending)).await;
            assert!(!open.is_empty(), "{}: nothing happens and no approval is pending", self.context);
            for shown in open {
                self.answer(&shown).await;
            }
        }
        assert_eq!(seen, self.log(&run).await, "{}: the watcher saw something else", self.context);
        self.interrupt_a_held_run().await;
        self.assert_it_ended_right(&run).await
    }

    /// A caller that gets a store error checks whether the message arrived, and otherwise posts it again.
    async fn post(&self, agent: &str) -> (RunId, Subscription) {
        let message = || Message::to(agent, "go").on_thread(format!("thr_{agent}"));
        for _ in 0..2 {
            if let Ok((posted, watched)) = self.engine.stream(message()).await {
                return (posted.run, watched);
            }
            let thread = Some(ThreadId::from(format!("thr_{agent}")));
            if let Some(run) = self.runs(RunFilter { thread, ..RunFilter::default() }).await.pop() {
                let watched = self.engine.subscribe(&Tenant::default(), &run.id, 0);
                return (run.id, watched);
            }
        }
        panic!("{}: the message is refused twice", self.context);
    }

    /// Until nothing happens any more; true if the run is over.
    async fn watch(&mut self, run: &RunId, watched: &mut Subscription, seen: &mut Vec<Event>) -> bool {
        loop {
            match tokio::time::timeout(QUIET, next_event(watched)).await {
                Ok(Some(event)) => seen.push(event),
                Ok(None) => return true,
                Err(_quiet)
                    if self.fate == Fate::Fenced && self.store.has_refused() && !self.is_taken_over =>
                {
                    self.take_over().await;
                    let after = seen.last().map_or(0, |event| event.seq);
                    *watched = self.engine.subscribe(&Tenant::default(), run, after);
                }
                Err(_quiet) => return false,
            }
        }
    }

    /// A worker that lost a run leaves it alone. Another process finds it and continues.
    async fn take_over(&mut self) {
        self.is_taken_over = true;
        assert_eq!(self.engine.runs_in_memory(), 0, "{}: the run is lost, and still held", self.context);
        self.engine.abort();
        self.engine = process(self.store.clone(), self.clock, &self.desk, &self.sent).await;
    }

    /// Says it again, under the same id, until there is an answer.
    async fn answer(&self, shown: &SuspensionView) {
        let decision = match shown.kind {
            SuspensionKind::Approval => shown.approve("ann"),
            SuspensionKind::Question => shown.result("ann", json!("the blue one")),
            SuspensionKind::InDoubt => {
                // Only a lost lease loses what a tool came back with, and only of a tool that was really called.
                assert_eq!(self.fate, Fate::Fenced, "{}: {} is in doubt", self.context, shown.call);
                assert_eq!(self.effects(shown.call.as_str()), 1, "{}", self.context);
                shown.result("ann", json!(if shown.call.as_str() == "b" { "posted" } else { "sent" }))
            }
            other => panic!("{}: no person can answer {other:?}", self.context),
        };
        let decision = decision.with_id(shown.id.as_str());
        let verdict = match self.engine.decide(decision.clone()).await {
            Err(StoreError::Failed(_)) => self.engine.decide(decision).await,
            first => first,
        };
        let verdict = verdict.unwrap_or_else(|refused| panic!("{}: {refused}", self.context));
        assert!(
            matches!(verdict, Verdict::Accepted | Verdict::AlreadyApplied),
            "{}: {verdict}",
            self.context
        );
        let id = shown.id.as_str().into();
        let kept = self.store.decision(&Tenant::default(), &shown.run, &id).await.unwrap();
        assert!(kept.is_some(), "{}: the decision on {} is lost", self.context, shown.call);
    }

    async fn interrupt_a_held_run(&mut self) {
        let (run, mut watched) = self.post("hasty").await;
        let mut seen = Vec::new();
        assert!(!self.watch(&run, &mut watched, &mut seen).await, "{}: it is held", self.context);
        let (tenant, bob) = (Tenant::default(), Principal::from("bob"));
        let verdict = match self.engine.interrupt(&tenant, &run, &bob).await {
            Err(StoreError::Failed(StoreFailure::Unavailable(_) | StoreFailure::Full(_))) => {
                self.engine.interrupt(&tenant, &run, &bob).await
            }
            first => first,
        };
        let verdict = verdict.unwrap_or_else(|refused| panic!("{}: {refused}", self.context));
        assert!(
            matches!(verdict, Verdict::Accepted | Verdict::AlreadyApplied),
            "{}: {verdict}",
            self.context
        );
        assert!(self.watch(&run, &mut watched, &mut seen).await, "{}: it is not interrupted", self.context);
        assert_eq!(seen, self.log(&run).await, "{}", self.context);
        let ended = self
            .engine
            .view(&tenant, &run)
            .await
            .unwrap()
            .unwrap()
            .control
            .as_ref()
            .unwrap()
            .ended()
            .cloned();
        let interrupted = Termination::Cancelled(Cancelled::Interrupted);
        assert_eq!(ended, Some(interrupted), "{}", self.context);
    }

    async fn assert_it_ended_right(&self, run: &RunId) -> usize {
        let context = &self.context;
        for (call, count) in [("a", 1), ("b", 1), ("t", 1), ("z", 0)] {
            assert_eq!(self.effects(call), count, "{context}: call {call}");
        }
        let runs = self.runs(RunFilter::default()).await;
        assert_eq!(runs.len(), 3, "{context}");
        for view in &runs {
            self.log(&view.id).await;
            let ended = view.control.as_ref().unwrap().ended();
            assert!(
                view.thread.as_str() == "thr_hasty" || ended == Some(&Termination::NaturalEnd),
                "{context}"
            );
        }
        let read = [
            "user: go",
            "assistant: [\"a\", \"b\", \"c\", \"d\", \"e\"]",
            "tool a: sent",
            "tool b: posted",
            "tool c: eve is paid",
            "tool d: the blue one",
            "tool e: {\"n\":1}",
        ];
        assert_eq!(self.desk.last_read(), read, "{context}: {run}");
        let approvals = self.approvals(None).await;
        assert!(
            approvals.iter().all(|shown| shown.decided_at.is_some()),
            "{context}: an approval is still pending"
        );
        // One of a, d, t and z each, and no call twice but those whose answer went with a lease.
        let doubts = approvals.iter().filter(|shown| shown.kind == SuspensionKind::InDoubt).count();
        assert_eq!(approvals.len(), 4 + doubts, "{context}");
        assert!(doubts <= usize::from(self.fate == Fate::Fenced), "{context}");
        doubts
    }

    /// How often the tool was really called, for a call that writes.
    fn effects(&self, call: &str) -> usize {
        self.sent.requests().iter().filter(|request| request.call.as_str() == call).count()
    }

    async fn runs(&self, filter: RunFilter) -> Vec<RunView> {
        self.store.runs(&Tenant::default(), &filter, &Page::default()).await.unwrap().items
    }

    async fn approvals(&self, status: Option<ApprovalStatus>) -> Vec<SuspensionView> {
        let filter = ApprovalFilter { status, ..ApprovalFilter::default() };
        self.store.approvals(&Tenant::default(), &filter, &Page::default()).await.unwrap().items
    }

    async fn log(&self, run: &RunId) -> Vec<Event> {
        let log = self.store.events(&Tenant::default(), run, 0, 100_000).await.unwrap();
        let events: Vec<Event> =
            log.iter().map(|committed| (*committed.readable().unwrap().event).clone()).collect();
        let stored = self.store.run(&Tenant::default(), run).await.unwrap().unwrap().control;
        assert_eq!(fold(&events).ok(), stored, "{}: the state is not what the log says", self.context);
        events
    }
}
