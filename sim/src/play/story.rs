//! The demo: one run that is held, loses its process, and continues. Played by the real machine and the simulator's
//! store.

use std::sync::Arc;

use machine::decision::{Decision, DecisionAction, Payload, Resume};
use machine::event::{Event, Fact, Message, ToolBody};
use machine::id::{CallId, Digest};
use machine::input::{Outcome, RequestedCall, ToolAnswer};
use machine::policy::PolicyRequest;
use machine::tool::{Approval, Arguments, EffectClass, OnExpiry, Performer, Tool};
use machine::transcript::ModelMessage;
use machine::{Input, Revision, Timestamp};
use serde_json::{Value, json};

use crate::judge::invariant::{Checked, Invariant, breach};
use crate::play::tape::Tape;
use crate::world::World;
use crate::world::arguments::valid;
use crate::world::live::{LiveTool, LiveTools};
use crate::world::script::{self, Turn};
use crate::world::setup::{Agent, DESK, WorldTrouble};
use crate::world::store::{Append, RunIndex};
use crate::world::submit::Form;
use crate::world::thread_rows::Posted;
use crate::world::worker::Session;

const RUN: RunIndex = 0;
const THREAD: usize = 0;

/// The whole story as text.
pub fn tell() -> Checked<String> {
    let mut stage = StoryWorld::set();
    stage.opening()?;
    stage.crash()?;
    stage.approval_while_c_runs()?;
    stage.waiting()?;
    stage.last_approval()?;
    stage.doubt()?;
    stage.answer()?;
    stage.transcript();
    Ok(stage.lines.join("\n"))
}

struct StoryWorld {
    world: World,
    lines: Vec<String>,
    worker: &'static str,
    told: usize,
    began: Timestamp,
}

impl StoryWorld {
    fn set() -> Self {
        let mut world = World::new(Tape::recorded(Vec::new()), false);
        world.trouble = WorldTrouble::default();
        for agent in &mut world.agents {
            *agent = Agent { revision: Arc::new(Revision::default()), ..agent.clone() };
        }
        world.live = LiveTools(vec![
            LiveTool::new("refund", tool(EffectClass::Write, Approval::Ask, 1)),
            LiveTool::new("stock", tool(EffectClass::Read, Approval::Never, 2)),
        ]);
        let began = world.now;
        Self { world, lines: Vec::new(), worker: "worker-1", told: 0, began }
    }

    fn opening(&mut self) -> Checked {
        self.say("Ana asks the agent to refund two orders and to look at the stock.");
        let posted = Posted {
            by: "ana".into(),
            may_approve: true,
            asked: None,
            request: PolicyRequest::default(),
            text: "Please refund orders 1 and 2, and look at the stock of lamps.",
        };
        let agent = self.world.agents[DESK].clone();
        self.world.store.post(THREAD, DESK, &agent, &posted, self.world.now)?;
        self.world.claim(RUN)?;
        self.show();
        self.later(800);
        self.say("The model asks for three calls in one answer. A and B are refunds and need approval, C does not.");
        let calls = vec![
            asked("A", "refund", json!({"order": 1, "euros": 40})),
            asked("B", "refund", json!({"order": 2, "euros": 900})),
            asked("C", "stock", json!({"article": "lamp"})),
        ];
        let turn = Turn { step: 1, attempt: 1 };
        let revision = Revision::default();
        let used = std::collections::BTreeSet::new();
        let hooks = crate::world::hooks::silent();
        let answer = script::answered(turn, "I will see to it.", calls, &revision, &used, hooks, 200);
        self.act(|_, _| Some(vec![answer]))?;
        self.later(3);
        self.say("At the gate A and B are held. C starts at once: calls are independent.");
        self.pass_gates(&["A", "B", "C"])
    }

    fn crash(&mut self) -> Checked {
        self.later(400);
        self.say("The process dies in the middle of C. What is stored is stored; nothing else is lost.");
        let session = self.session()?;
        self.world.lose(session);
        self.later(2_000);
        self.worker = "worker-2";
        self.say(
            "Another worker takes the run over. C only reads, so it may be tried again, under a new number.",
        );
        self.world.claim(RUN)?;
        self.show();
        self.pass_gates(&["C"])
    }

    fn approval_while_c_runs(&mut self) -> Checked {
        self.later(700);
        self.say("Ana approves A. C still runs and B is still held; A starts at once, in the same commit.");
        self.decide("A", "ana", DecisionAction::Resume(Resume::default()))?;
        let mut session = self.session()?;
        let mut append = Append::default();
        self.world.hear_inbox(&mut session, &mut append)?;
        let gated = self.world.gated(&session, &CallId::from("A")).map(Input::Gated);
        if let Some(input) = gated {
            self.world.say(&mut session, &mut append, input, None)?;
        }
        self.store(session, &append)
    }

    fn waiting(&mut self) -> Checked {
        self.later(250);
        self.say("C answers, then A. Nothing but B is left, and B waits for a person: a row in a table, no memory.");
        self.returned("C", 2, json!("12 lamps"))?;
        self.later(90);
        self.returned("A", 1, json!("refunded 40 euros"))
    }

    fn last_approval(&mut self) -> Checked {
        self.later(3 * 60 * 60 * 1_000);
        self.worker = "worker-3";
        self.say(
            "Three hours and a restart later Bo lowers the amount of B and approves it. Any worker can continue.",
        );
        let edited = valid(json!({"order": 2, "euros": 450}));
        let resume = Resume { arguments: Some(edited), note: Some("half of it".into()), ..Resume::default() };
        self.decide("B", "bo", DecisionAction::Resume(resume))?;
        self.world.claim(RUN)?;
        self.show();
        self.pass_gates(&["B"])
    }

    fn doubt(&mut self) -> Checked {
        self.later(120);
        self.say("The process dies again, this time after the refund of B went out and before its answer was stored.");
        let session = self.session()?;
        self.world.lose(session);
        self.later(2_000);
        self.worker = "worker-4";
        self.say("B writes, so the worker does not send it again: a person has to say whether it happened.");
        self.world.claim(RUN)?;
        self.show();
        self.later(40 * 60 * 1_000);
        self.worker = "worker-5";
        self.say(
            "Bo looks at the account: the money has moved. He says so, and the tool does not run again.",
        );
        let seen = Payload::Result(Arc::new(json!("refunded 450 euros")));
        self.decide("B", "bo", DecisionAction::Resume(Resume { payload: seen, ..Resume::default() }))?;
        self.world.claim(RUN)?;
        self.show();
        Ok(())
    }

    fn answer(&mut self) -> Checked {
        self.later(900);
        self.say("Every call of the turn has settled: the model is called once, with the results in its own order.");
        let turn = Turn { step: 2, attempt: 1 };
        let (revision, used) = (Revision::default(), std::collections::BTreeSet::new());
        let hooks = crate::world::hooks::silent();
        let answer =
            script::answered(turn, "Both orders are refunded.", Vec::new(), &revision, &used, hooks, 300);
        self.act(|_, _| Some(vec![answer]))
    }

    fn transcript(&mut self) {
        self.say("What the model has read and said:");
        for message in self.world.store.threads[THREAD].transcript.model_input().iter() {
            let line = match message {
                ModelMessage::User { content, .. } => {
                    format!("user       {}", content.as_str().unwrap_or_default())
                }
                ModelMessage::Assistant { text, calls, .. } => {
                    let calls: Vec<String> = calls
                        .iter()
                        .map(|call| format!("{} {} {}", call.id, call.tool, shown(&call.arguments)))
                        .collect();
                    let calls =
                        if calls.is_empty() { String::new() } else { format!("  [{}]", calls.join(", ")) };
                    format!("assistant  {text}{calls}")
                }
                ModelMessage::Tool { call, text } => {
                    format!("tool {call}     {}", text.replace('\n', " / "))
                }
                ModelMessage::Note { text, .. } | ModelMessage::Notice { text } => {
                    format!("note       {text}")
                }
            };
            self.lines.push(format!("  {line}"));
        }
    }

    fn say(&mut self, text: &str) {
        self.lines.push(format!("\n# {text}"));
    }

    fn later(&mut self, ms: u64) {
        self.world.now = self.world.now.plus_ms(ms);
    }

    fn session(&mut self) -> Checked<Session> {
        match self.world.sessions.pop() {
            Some(session) => Ok(session),
            None => breach(Invariant::NothingWedges, "no worker holds the run of the story"),
        }
    }

    /// Inputs that the worker processes in one pass.
    fn act(&mut self, inputs: impl FnOnce(&mut World, &Session) -> Option<Vec<Input>>) -> Checked {
        let mut session = self.session()?;
        let mut append = Append::default();
        for input in inputs(&mut self.world, &session).unwrap_or_default() {
            self.world.say(&mut session, &mut append, input, None)?;
        }
        self.store(session, &append)
    }

    fn store(&mut self, session: Session, append: &Append) -> Checked {
        let kept = self.world.store_pass(session, append)?;
        self.world.sessions.extend(kept);
        self.show();
        Ok(())
    }

    fn pass_gates(&mut self, calls: &[&str]) -> Checked {
        self.act(|world, session| {
            calls.iter().map(|call| world.gated(session, &CallId::from(*call)).map(Input::Gated)).collect()
        })
    }

    fn returned(&mut self, call: &str, attempt: u32, value: Value) -> Checked {
        let answer = ToolAnswer::Success { value: Arc::new(value), warning: None };
        let outcome = Outcome::Answered(answer);
        let input = Input::ToolReturned { step: 1, call: CallId::from(call), attempt, outcome };
        self.act(|_, _| Some(vec![input]))
    }

    fn decide(&mut self, call: &str, by: &str, action: DecisionAction) -> Checked {
        let row = self.world.store.runs[RUN].ledger.suspension_row(&CallId::from(call));
        let Some(row) = row else {
            return breach(Invariant::NothingWedges, format!("call {call} is not held"));
        };
        let decision = Decision {
            id: None,
            call: CallId::from(call),
            suspension: row.id,
            by: by.into(),
            accepted_at: self.world.now,
            definition_now: row.definition,
            action,
        };
        self.world.store.submit_decision(RUN, &decision, Form::Good).map(|_| ())
    }

    /// Prints the events stored since the last call, one line each.
    fn show(&mut self) {
        let log = &self.world.store.runs[RUN].log;
        for event in log.iter().skip(self.told) {
            let (who, what) = told(event, self.worker);
            let ms = event.at.ms_since(self.began);
            let clock = format!(
                "{}:{:02}:{:02}.{:03}",
                ms / 3_600_000,
                ms / 60_000 % 60,
                ms / 1_000 % 60,
                ms % 1_000
            );
            let name = event.fact.name();
            self.lines
                .push(format!("{clock}  {who:<9} {:>3}  {name:<25} {what}", event.seq).trim_end().to_owned());
        }
        self.told = log.len();
    }
}

fn tool(class: EffectClass, approval: Approval, definition: u8) -> Tool {
    Tool {
        definition: Digest([definition; 32]),
        class,
        approval,
        performer: Performer::Server,
        expires_in_ms: None,
        on_expiry: OnExpiry::Deny,
    }
}

fn asked(id: &str, tool: &str, arguments: Value) -> RequestedCall {
    RequestedCall { id: id.into(), tool: tool.into(), arguments: valid(arguments) }
}

fn shown(arguments: &Arguments) -> String {
    match arguments {
        Arguments::Valid { value, .. } => value.to_string(),
        Arguments::Invalid { raw, .. } => raw.clone(),
    }
}

/// Who caused an event, and what a reader wants to know about it.
fn told(event: &Event, worker: &str) -> (String, String) {
    let what = match &event.fact {
        Fact::MessageAdded(Message::Assistant { text, calls, .. }) => {
            format!("assistant: {text} ({} calls)", calls.len())
        }
        Fact::MessageAdded(Message::Tool { call_id, body: ToolBody::Settled { seq }, .. }) => {
            format!("tool message of {call_id}, from event {seq}")
        }
        Fact::ToolRequested { call_id, tool, arguments } => format!("{call_id}  {tool} {}", shown(arguments)),
        Fact::ApprovalRequested(opened) => format!("{}  held until a person decides", opened.call_id),
        Fact::ToolApproved { call_id, arguments, note, .. } => {
            let edited =
                arguments.as_ref().map(|edited| format!(", as {}", shown(edited))).unwrap_or_default();
            let note = note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
            format!("{call_id}{edited}{note}")
        }
        Fact::ExecutionStarted { call_id, attempt, .. } => format!("{call_id}  attempt {attempt}"),
        Fact::ExecutionSucceeded { call_id, result, .. } => format!("{call_id}  {result}"),
        Fact::RunRecovered { lost, .. } => {
            let lost: Vec<String> =
                lost.iter().map(|lost| format!("attempt {} of {}", lost.attempt, lost.call_id)).collect();
            format!("lost with its worker: {}", lost.join(", "))
        }
        Fact::RunWaiting { pending, .. } => {
            let calls: Vec<&str> = pending.iter().map(|pending| pending.call_id.as_str()).collect();
            format!("for {}", calls.join(", "))
        }
        Fact::ToolSuspended(opened) => format!("{}  {}", opened.call_id, opened.held.kind()),
        Fact::ToolResumed { call_id, .. } => call_id.to_string(),
        Fact::StepStarted { step, .. } | Fact::StepEnded { step, .. } => format!("step {step}"),
        Fact::RunEnded { termination, .. } => termination.done_reason(),
        Fact::RunQueued(_)
        | Fact::RunStarted { .. }
        | Fact::RunResumed {}
        | Fact::RunInterrupting { .. }
        | Fact::RunEnding { .. }
        | Fact::MessageAdded(
            Message::User { .. }
            | Message::Tool { .. }
            | Message::Note { .. }
            | Message::Correction { .. }
            | Message::CallsDropped { .. }
            | Message::Interruption { .. },
        )
        | Fact::ModelRetrying { .. }
        | Fact::PhaseAnswered { .. }
        | Fact::StateChanged { .. }
        | Fact::ApprovalVoided { .. }
        | Fact::ToolDenied { .. }
        | Fact::ExecutionFailed { .. }
        | Fact::ToolCancelled { .. }
        | Fact::ChildStarted { .. }
        | Fact::ChildEnded { .. } => String::new(),
    };
    if let Fact::ToolApproved { by, .. } | Fact::ToolResumed { by, .. } = &event.fact {
        return (by.to_string(), what);
    }
    let who = if matches!(event.fact, Fact::RunQueued(_)) { "ana" } else { worker };
    (who.to_owned(), what)
}
