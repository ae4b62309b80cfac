//! As many calls as the machine accepts, all held and held again: the control keeps its bound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use machine::control::CONTROL_BYTES_MAX;
use machine::decision::{Decision, DecisionAction, Resume};
use machine::event::{Origin, RunRequest, Usage};
use machine::grant::{Grant, GrantCoverage};
use machine::id::{CallId, Digest, PluginName, Principal, ToolName};
use machine::input::{GateInput, ModelAnswered, Outcome, RequestedCall, ToolAnswer};
use machine::phase::{Action, AskKind, HookAnswer, HookAnswers, HookOutcome, Phase, SuspendRequest};
use machine::policy::{ApprovalScope, Policy};
use machine::revision::Revision;
use machine::rules::{Rule, RuleAction};
use machine::status::CallStatus;
use machine::step_projection::is_at_gate;
use machine::suspension::ResumeMode;
use machine::tool::{Approval, Arguments, EffectClass, OnExpiry, Performer, Tool, ToolLookup};
use machine::{Effect, Fact, Input, Run, Timestamp, fold, queue};
use serde_json::json;

/// The names that plugins have at most in this test. They are configuration, so no client chooses them.
const PLUGIN_NAMES: [&str; 3] = ["a_plugin_that_asks_about", "another_plugin_that_asks", "four_eyes"];

struct FullRun {
    run: Run,
    arguments: BTreeMap<CallId, Arguments>,
    /// How every attempt ends.
    outcome: Outcome,
    /// The most that the control has taken so far.
    bytes_max: usize,
}

#[test]
fn a_run_full_of_held_calls_fits_into_its_control() {
    for (id_bytes, name_bytes) in [(4, 4), (24, 16), (40, 64), (96, 128), (5_000, 4)] {
        let mut full = FullRun::begin();
        // Earlier steps fill the memory of settled calls and of repeated ones.
        for step in 1..=4 {
            full.answer(step, 64, 8, "echo");
            full.let_everything_run();
        }
        let accepted = (1..=64)
            .rev()
            .find(|count| full.answer(5, *count, id_bytes, &"t".repeat(name_bytes)))
            .expect("one call is always accepted");
        assert!(accepted >= 20, "only {accepted} calls with ids of {id_bytes} bytes");
        full.hold_three_times();
        // The outcome of every one is unknown, and a person is asked about each.
        full.outcome = Outcome::Unknown { why: "lost".into(), retry_after_ms: None };
        full.let_everything_run();
        assert!(!full.run.control.pending().is_empty());
        assert!(
            full.bytes_max <= CONTROL_BYTES_MAX,
            "{accepted} calls with ids of {id_bytes} and names of {name_bytes} bytes took {} bytes",
            full.bytes_max
        );
    }
}

impl FullRun {
    fn begin() -> Self {
        let ask = |tool: &str| Rule { tool: ToolName::from(tool), when: Vec::new(), then: RuleAction::Ask };
        let names = [4, 16, 64, 128].map(|bytes| "t".repeat(bytes));
        let revision = Revision {
            rules: names.iter().flat_map(|name| [ask(name), ask(name), ask(name)]).collect(),
            phases: [Phase::BeforeToolExecute, Phase::AfterToolExecute].into_iter().collect(),
            policy: Policy { approval: ApprovalScope::AllTools, ..Policy::default() },
            ..Revision::default()
        };
        let id = |prefix: &str| format!("{prefix}_0190f3c4-7a3b-7c22-b1a5-0123456789ab");
        let first = queue(
            RunRequest {
                run_id: id("run").into(),
                thread_id: "t".repeat(128).into(),
                agent: "assistant".into(),
                revision: Digest::sha256(b"revision"),
                policy: Policy { approval: ApprovalScope::AllTools, ..Policy::default() },
                loosened_by: Some("approver-of-all-calls".into()),
                message: None,
                parent: None,
            },
            Timestamp(1_767_225_600_000),
        );
        let run = Run::new(Arc::new(revision), fold([&first]).unwrap());
        let outcome = Outcome::Answered(ToolAnswer::Success { value: Arc::new(json!("ok")), warning: None });
        let mut full = Self { run, arguments: BTreeMap::new(), outcome, bytes_max: 0 };
        full.say(&Input::Start { after: None });
        full
    }

    fn say(&mut self, input: &Input) {
        let decided = self.run.decide(input, Timestamp(1_767_225_700_000)).unwrap();
        for event in &decided.events {
            self.run.apply(event).unwrap();
            if let Fact::ToolRequested { call_id, arguments, .. } = &event.fact {
                self.arguments.insert(call_id.clone(), arguments.clone());
            }
        }
        self.bytes_max = self.bytes_max.max(self.run.control.encode().unwrap().len());
    }

    /// True if the machine takes the calls in. If not, it tries the model again.
    fn answer(&mut self, step: u32, count: usize, id_bytes: usize, tool: &str) -> bool {
        let attempt = self
            .run
            .wanted()
            .iter()
            .find_map(|effect| match effect {
                Effect::CallModel { attempt, .. } => Some(*attempt),
                Effect::RunPhase(_)
                | Effect::Gate(_)
                | Effect::RunTool { .. }
                | Effect::RunAfterToolHooks { .. } => None,
            })
            .expect("the model is called");
        let asked = |index: usize| {
            let value = json!({"step": step, "index": index});
            let digest = Digest::sha256(value.to_string().as_bytes());
            RequestedCall {
                id: format!("{index:0id_bytes$}"),
                tool: ToolName::from(tool),
                arguments: Arguments::Valid { value: Arc::new(value), digest },
            }
        };
        let answered = ModelAnswered {
            step,
            attempt,
            text: String::new(),
            reasoning: None,
            calls: (0..count).map(asked).collect(),
            usage: Usage::default(),
            origin: Origin::default(),
            matched: Vec::new(),
            output: None,
            taken: BTreeSet::new(),
            hooks: HookAnswers::default(),
        };
        let before = self.run.clone();
        self.say(&Input::ModelAnswered(answered));
        let taken_in = !self.run.control.calls.is_empty();
        if !taken_in {
            self.run = before;
        }
        taken_in
    }

    fn gate(&mut self, call: &CallId, ask: bool) {
        let asks = |plugin: &str| HookAnswer {
            plugin: PluginName::from(plugin),
            outcome: HookOutcome::Actions(vec![Action::Suspend(request())]),
        };
        let answers = if ask { PLUGIN_NAMES.into_iter().map(asks).collect() } else { Vec::new() };
        self.say(&Input::Gated(GateInput {
            call: call.clone(),
            tool: ToolLookup::Known(Tool {
                definition: Digest::sha256(b"definition"),
                class: EffectClass::Write,
                approval: Approval::Ask,
                performer: Performer::Server,
                expires_in_ms: Some(86_400_000),
                on_expiry: OnExpiry::Deny,
            }),
            arguments: self.arguments[call].clone(),
            hits: Vec::new(),
            grants: (!ask).then(auto_approval).into_iter().collect(),
            loosening_ended: false,
            unsent_attempt: None,
            hooks: HookAnswers { answers, state_bytes_after: 0 },
        }));
    }

    fn calls(&self) -> Vec<CallId> {
        self.run.control.calls.iter().map(|call| call.id.clone()).collect()
    }

    fn calls_at_gate(&self) -> Vec<CallId> {
        let calls = self.run.control.calls.iter();
        calls.filter(|call| is_at_gate(&self.run.control, call)).map(|call| call.id.clone()).collect()
    }

    fn let_everything_run(&mut self) {
        for call in self.calls_at_gate() {
            self.gate(&call, false);
        }
        let step = self.run.control.step;
        let calls = self.calls();
        for call in &calls {
            if self.run.control.call(call).is_some_and(|call| call.status() != CallStatus::Running) {
                continue;
            }
            self.say(&Input::ToolReturned {
                step,
                call: call.clone(),
                attempt: 1,
                outcome: self.outcome.clone(),
            });
        }
        let answers = calls.into_iter().map(|call| (call, HookAnswers::default())).collect();
        self.say(&Input::AfterTools { heard: answers });
    }

    /// Everybody who asks gets a yes, for all calls together. The third round is the last that is allowed.
    fn hold_three_times(&mut self) {
        for _ in 0..3 {
            for call in self.calls_at_gate() {
                self.gate(&call, true);
            }
            for pending in self.run.control.pending() {
                self.say(&Input::Decide(Decision {
                    id: None,
                    call: pending.call_id,
                    suspension: pending.suspension_id,
                    by: Principal::from("ana"),
                    accepted_at: Timestamp(1_767_225_700_000),
                    definition_now: Some(Digest::sha256(b"definition")),
                    action: DecisionAction::Resume(Resume::default()),
                }));
            }
        }
    }
}

fn request() -> SuspendRequest {
    SuspendRequest {
        kind: AskKind::Approval,
        question: None,
        schema: None,
        mode: ResumeMode::ReplayToolCall,
        resume_state: None,
        expires_in_ms: Some(86_400_000),
        on_expiry: OnExpiry::Deny,
    }
}

fn auto_approval() -> Grant {
    Grant { id: "grt_1".into(), by: Principal::from("ops"), covers: GrantCoverage::Thread }
}
