//! A run as a story: supplies the inputs of the world outside, passes calls through the gate, and keeps the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use machine::call::Call;
use machine::decision::{Decision, DecisionAction, Payload, Resume};
use machine::event::{Origin, RunRequest, Usage, UserMessage};
use machine::grant::{Grant, GrantCoverage, HoldReason, ToolGrant};
use machine::id::{CallId, Digest, MessageId, Principal, RunId, ThreadId, ToolName};
use machine::input::{GateInput, ModelAnswered, Outcome, RequestedCall, ToolAnswer};
use machine::phase::{AskKind, HookAnswers, SuspendRequest};
use machine::policy::{OnReject, Policy};
use machine::revision::Revision;
use machine::status::{CallStatus, RunStatus};
use machine::suspension::ResumeMode;
use machine::tool::{Approval, Arguments, EffectClass, OnExpiry, Performer, Tool, ToolLookup};
use machine::transcript::ModelMessage;
use machine::{
    Control, Decided, Effect, Event, Input, InputOutcome, Rejection, Run, Timestamp, event_codec, fold, queue,
};
use serde_json::{Value, json};

use crate::plain_transcript::Compared;

pub(crate) struct Story {
    pub(crate) run: Run,
    pub(crate) log: Vec<Event>,
    pub(crate) now: Timestamp,
    /// The live configuration.
    pub(crate) tools: BTreeMap<String, Tool>,
    pub(crate) grants: Vec<Grant>,
    pub(crate) loosening_ended: bool,
    /// What the hooks of BeforeToolExecute answer, by call id.
    pub(crate) gate_hooks: BTreeMap<String, HookAnswers>,
    /// What each call's arguments are in the row that the engine would read.
    pub(crate) arguments: BTreeMap<CallId, Arguments>,
    pub(crate) last_outcome: Option<InputOutcome>,
    read: Compared,
}

/// A tool of the live configuration.
pub(crate) fn tool(class: EffectClass, approval: Approval) -> Tool {
    Tool {
        definition: Digest::sha256(b"definition 1"),
        class,
        approval,
        performer: Performer::Server,
        expires_in_ms: None,
        on_expiry: OnExpiry::Deny,
    }
}

fn default_tools() -> BTreeMap<String, Tool> {
    let performed_by = |performer| Tool { performer, ..tool(EffectClass::Write, Approval::Never) };
    BTreeMap::from([
        // Reads, needs no approval.
        ("echo".into(), tool(EffectClass::Read, Approval::Never)),
        // Writes with a key, needs no approval.
        ("upsert".into(), tool(EffectClass::Idempotent, Approval::Never)),
        // Writes, needs no approval.
        ("post".into(), tool(EffectClass::Write, Approval::Never)),
        // Writes, needs approval.
        ("transfer".into(), tool(EffectClass::Write, Approval::Ask)),
        ("forbidden".into(), tool(EffectClass::Write, Approval::Block)),
        ("pick_file".into(), performed_by(Performer::Client)),
        ("webhook".into(), performed_by(Performer::External)),
        (
            "researcher".into(),
            performed_by(Performer::Agent { agent: "research".into(), budget_tokens_max: None }),
        ),
    ])
}

pub(crate) fn valid(value: Value) -> Arguments {
    let digest = Digest::sha256(value.to_string().as_bytes());
    Arguments::Valid { value: Arc::new(value), digest }
}

pub(crate) fn invalid(why: &str) -> Arguments {
    Arguments::Invalid { raw: "{".into(), why: why.into() }
}

pub(crate) fn order(policy: Policy) -> RunRequest {
    RunRequest {
        run_id: RunId::from("run_1"),
        thread_id: ThreadId::from("thr_1"),
        agent: "assistant".into(),
        revision: Digest::sha256(b"revision"),
        policy,
        loosened_by: None,
        message: Some(UserMessage {
            id: MessageId::from("msg_user"),
            content: Arc::new(json!("hello")),
            by: Some(Principal::from("ana")),
        }),
        parent: None,
    }
}

/// Auto-approve of the thread, given by ana.
pub(crate) fn auto_approval() -> Grant {
    Grant { id: "grt_all".into(), by: Principal::from("ana"), covers: GrantCoverage::Thread }
}

/// What ana granted for one tool of the agent of every story.
pub(crate) fn tool_grant(tool: &str, definition: Digest, reasons: &[HoldReason]) -> Grant {
    let granted = ToolGrant {
        tool: tool.into(),
        agent: Some("assistant".into()),
        definition,
        reasons: reasons.to_vec(),
    };
    Grant { id: "grt_one".into(), by: Principal::from("ana"), covers: GrantCoverage::Tool(granted) }
}

impl Story {
    /// Queued, not started.
    pub(crate) fn queued_with(revision: Revision, order: RunRequest) -> Self {
        let now = Timestamp(1_000);
        let first = queue(order, now);
        let control = fold([&first]).unwrap();
        let mut read = Compared::default();
        read.push(&first);
        Self {
            run: Run::new(Arc::new(revision), control),
            log: vec![first],
            now,
            tools: default_tools(),
            grants: Vec::new(),
            loosening_ended: false,
            gate_hooks: BTreeMap::new(),
            arguments: BTreeMap::new(),
            last_outcome: None,
            read,
        }
    }

    /// Started; the model is called for step 1, unless hooks of RunStart are asked first.
    pub(crate) fn begin_with(revision: Revision) -> Self {
        let order = order(revision.policy);
        let mut story = Self::queued_with(revision, order);
        story.ok(Input::Start { after: None });
        story
    }

    pub(crate) fn with_policy(policy: Policy) -> Self {
        Self::begin_with(Revision { policy, ..Revision::default() })
    }

    pub(crate) fn begin() -> Self {
        Self::begin_with(Revision::default())
    }

    /// Decides and applies. Holds the laws that every story must keep: a rejected input changes nothing, the
    /// stored control is the fold of the log, events survive being stored, the model reads what it should.
    pub(crate) fn say(&mut self, input: Input) -> Result<Vec<Event>, Rejection> {
        self.take(self.run.decide(&input, self.now))
    }

    /// The same where an accepted interrupt waits behind it.
    pub(crate) fn say_before_interrupt(&mut self, input: Input) -> Result<Vec<Event>, Rejection> {
        self.take(self.run.decide_before_interrupt(&input, self.now))
    }

    fn take(&mut self, decided: Result<Decided, Rejection>) -> Result<Vec<Event>, Rejection> {
        let before = self.run.clone();
        let decided = match decided {
            Ok(decided) => decided,
            Err(rejection) => {
                assert!(!matches!(rejection, Rejection::InternalError(_)), "{rejection}");
                assert_eq!(before, self.run);
                return Err(rejection);
            }
        };
        for event in &decided.events {
            self.run.apply(event).unwrap();
            let text = event_codec::encode(event).unwrap();
            assert_eq!(&event_codec::decode(&text).unwrap(), event, "{text}");
            self.log.push(event.clone());
            self.read.push(event);
        }
        let control = &self.run.control;
        let reloaded = Control::decode(&control.encode().unwrap()).unwrap();
        assert_eq!(&reloaded, control);
        assert_eq!(fold(&self.log).unwrap(), reloaded);
        self.last_outcome = Some(decided.outcome);
        Ok(decided.events)
    }

    #[track_caller]
    pub(crate) fn ok(&mut self, input: Input) -> Vec<Event> {
        self.say(input).unwrap_or_else(|rejection| panic!("rejected: {rejection}"))
    }

    #[track_caller]
    pub(crate) fn refused(&mut self, input: Input) -> Rejection {
        self.say(input).map(|events| names(&events)).expect_err("it was accepted")
    }

    pub(crate) fn later(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
    }

    /// The model's answer for the step that is open, with what it asks for; nothing passes the gate yet.
    pub(crate) fn answer(&mut self, text: &str, calls: &[(&str, &str, Value)]) -> ModelAnswered {
        let calls = calls
            .iter()
            .map(|(id, tool, value)| RequestedCall {
                id: (*id).into(),
                tool: ToolName::from(*tool),
                arguments: valid(value.clone()),
            })
            .collect();
        ModelAnswered {
            step: self.run.control.step,
            attempt: self.model_attempt(),
            text: text.into(),
            reasoning: None,
            calls,
            usage: Usage { input_tokens: 10, output_tokens: 5 },
            origin: Origin::default(),
            matched: Vec::new(),
            output: None,
            taken: BTreeSet::new(),
            hooks: HookAnswers::default(),
        }
    }

    pub(crate) fn model_attempt(&self) -> u32 {
        self.run
            .wanted()
            .iter()
            .find_map(|effect| match effect {
                Effect::CallModel { attempt, .. } => Some(*attempt),
                _ => None,
            })
            .unwrap_or(1)
    }

    /// The model asks for calls, and every call that may pass the gate does.
    #[track_caller]
    pub(crate) fn asks_for(&mut self, calls: &[(&str, &str)]) -> Vec<Event> {
        let calls: Vec<(&str, &str, Value)> =
            calls.iter().map(|(id, tool)| (*id, *tool, json!({"of": id}))).collect();
        let answered = self.answer("", &calls);
        let mut events = self.model_answers(answered);
        events.extend(self.pass_gates());
        events
    }

    #[track_caller]
    pub(crate) fn model_answers(&mut self, answered: ModelAnswered) -> Vec<Event> {
        let events = self.ok(Input::ModelAnswered(answered));
        self.note_arguments(&events);
        events
    }

    /// The model answers in words, without a call.
    #[track_caller]
    pub(crate) fn says(&mut self, text: &str) -> Vec<Event> {
        let answered = self.answer(text, &[]);
        self.ok(Input::ModelAnswered(answered))
    }

    fn note_arguments(&mut self, events: &[Event]) {
        use machine::Fact::{ToolApproved, ToolRequested, ToolResumed};
        for event in events {
            match &event.fact {
                ToolRequested { call_id, arguments, .. }
                | ToolApproved { call_id, arguments: Some(arguments), .. }
                | ToolResumed { call_id, arguments: Some(arguments), .. } => {
                    self.arguments.insert(call_id.clone(), arguments.clone());
                }
                _ => {}
            }
        }
    }

    /// What the engine would tell the gate about this call.
    pub(crate) fn gated(&self, call: &str) -> GateInput {
        let id = CallId::from(call);
        let name = self.call(call).tool.clone();
        GateInput {
            tool: self
                .tools
                .get(name.as_str())
                .map_or(ToolLookup::Unknown, |tool| ToolLookup::Known(tool.clone())),
            arguments: self.arguments.get(&id).unwrap().clone(),
            hits: Vec::new(),
            grants: self.grants.clone(),
            loosening_ended: self.loosening_ended,
            unsent_attempt: None,
            hooks: self.gate_hooks.get(call).cloned().unwrap_or_default(),
            call: id,
        }
    }

    #[track_caller]
    pub(crate) fn pass_gate(&mut self, call: &str) -> Vec<Event> {
        let gated = self.gated(call);
        self.ok(Input::Gated(gated))
    }

    /// Every gate that is wanted, until none is.
    #[track_caller]
    pub(crate) fn pass_gates(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(call) = self.run.wanted().into_iter().find_map(|effect| match effect {
            Effect::Gate(call) => Some(call),
            _ => None,
        }) {
            events.extend(self.pass_gate(call.as_str()));
        }
        events
    }

    /// The attempt under way comes back like this; then every gate that is wanted is passed.
    #[track_caller]
    pub(crate) fn returns(&mut self, call: &str, outcome: Outcome) -> Vec<Event> {
        let (step, attempt) = (self.call(call).step, self.call(call).attempts);
        let mut events = self.ok(Input::ToolReturned { step, call: CallId::from(call), attempt, outcome });
        events.extend(self.pass_gates());
        events
    }

    #[track_caller]
    pub(crate) fn succeeds(&mut self, call: &str) -> Vec<Event> {
        self.returns(call, success(json!("ok")))
    }

    #[track_caller]
    pub(crate) fn fails(&mut self, call: &str) -> Vec<Event> {
        self.returns(call, Outcome::Answered(ToolAnswer::Error { message: "boom".into() }))
    }

    /// A decision on the suspension that is open now, by "ana".
    pub(crate) fn decision(&self, call: &str, action: DecisionAction) -> Decision {
        let open = self.call(call).suspension().expect("the call is not held");
        let tool = self.tools.get(self.call(call).tool.as_str());
        Decision {
            id: None,
            call: CallId::from(call),
            suspension: open.id.clone(),
            by: Principal::from("ana"),
            accepted_at: self.now,
            definition_now: tool.map(|tool| tool.definition),
            action,
        }
    }

    #[track_caller]
    pub(crate) fn decides(&mut self, call: &str, action: DecisionAction) -> Vec<Event> {
        let decision = self.decision(call, action);
        let mut events = self.ok(Input::Decide(decision));
        self.note_arguments(&events);
        events.extend(self.pass_gates());
        events
    }

    #[track_caller]
    pub(crate) fn approves(&mut self, call: &str) -> Vec<Event> {
        self.decides(call, resume())
    }

    #[track_caller]
    pub(crate) fn denies(&mut self, call: &str, then: Option<OnReject>) -> Vec<Event> {
        self.decides(call, DecisionAction::Cancel { reason: Some("no".into()), then })
    }

    #[track_caller]
    pub(crate) fn answers(&mut self, call: &str, value: Value) -> Vec<Event> {
        self.decides(call, resume_with(value))
    }

    #[track_caller]
    pub(crate) fn call(&self, id: &str) -> &Call {
        self.run.control.call(&CallId::from(id)).unwrap_or_else(|| panic!("no call {id} is open"))
    }

    #[track_caller]
    pub(crate) fn status(&self, id: &str) -> CallStatus {
        self.call(id).status()
    }

    pub(crate) fn run_status(&self) -> &RunStatus {
        &self.run.control.status
    }

    /// The types of all events so far.
    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.log)
    }

    pub(crate) fn transcript(&self) -> Vec<ModelMessage> {
        self.read.shared.model_input().iter().cloned().collect()
    }

    /// What the model reads about a call.
    #[track_caller]
    pub(crate) fn tool_text(&self, id: &str) -> String {
        self.transcript()
            .iter()
            .find_map(|message| match message {
                ModelMessage::Tool { call, text } if call.as_str() == id => Some(text.clone()),
                _ => None,
            })
            .unwrap_or_else(|| panic!("no tool message of {id}"))
    }
}

pub(crate) fn success(value: Value) -> Outcome {
    Outcome::Answered(ToolAnswer::Success { value: Arc::new(value), warning: None })
}

pub(crate) fn unknown() -> Outcome {
    Outcome::Unknown { why: "connection lost".into(), retry_after_ms: None }
}

pub(crate) fn not_sent() -> Outcome {
    Outcome::NotSent { why: "refused".into(), retry_after_ms: None }
}

/// The tool asks the user something.
pub(crate) fn pending(mode: ResumeMode) -> Outcome {
    Outcome::Answered(ToolAnswer::Pending(question(mode)))
}

pub(crate) fn question(mode: ResumeMode) -> SuspendRequest {
    SuspendRequest {
        kind: AskKind::Question,
        question: Some("which one?".into()),
        schema: None,
        mode,
        resume_state: Some(Arc::new(json!({"cursor": 7}))),
        expires_in_ms: None,
        on_expiry: OnExpiry::Deny,
    }
}

pub(crate) fn resume() -> DecisionAction {
    DecisionAction::Resume(Resume::default())
}

pub(crate) fn resume_with(value: Value) -> DecisionAction {
    DecisionAction::Resume(Resume { payload: Payload::Result(Arc::new(value)), ..Resume::default() })
}

pub(crate) fn cancel() -> DecisionAction {
    DecisionAction::Cancel { reason: None, then: None }
}

/// The stored types of events, `tool.requested` and the like.
pub(crate) fn names(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .map(|event| {
            let stored: Value = serde_json::from_str(&event_codec::encode(event).unwrap()).unwrap();
            stored["type"].as_str().unwrap().to_owned()
        })
        .collect()
}
