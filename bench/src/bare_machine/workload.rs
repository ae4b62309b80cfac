//! The workloads: the inputs that a run receives, in order.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;

use machine::decision::{Decision, DecisionAction, Resume};
use machine::event::{Origin, RunRequest, Usage, UserMessage};
use machine::id::{CallId, Digest, Principal, ToolName};
use machine::input::{GateInput, ModelAnswered, Outcome, RequestedCall, ToolAnswer};
use machine::phase::HookAnswers;
use machine::policy::Policy;
use machine::revision::Revision;
use machine::tool::{Approval, Arguments, EffectClass, OnExpiry, Performer, Tool, ToolLookup};
use machine::{Event, Input, Run, Timestamp, fold, queue};
use serde_json::json;

/// The time of each step of a run: 2026-01-01, and a tenth of a second for each step.
pub(crate) fn time_of(step: u32) -> Timestamp {
    Timestamp(1_767_225_600_000).plus_ms(100 * u64::from(step))
}

/// A run that is queued and not started.
pub(crate) fn queued() -> (Run, Event) {
    let order = RunRequest {
        run_id: "run_0190f3c4-7a3b-7c22-b1a5-0123456789ab".into(),
        thread_id: "thr_0190f3c4-7a3b-7c22-b1a5-ba9876543210".into(),
        agent: "assistant".into(),
        revision: Digest::sha256(b"revision"),
        policy: Policy::default(),
        loosened_by: None,
        message: Some(UserMessage {
            id: "msg_0190f3c4-7a3b-7c22-b1a5-00112233aabb".into(),
            content: Arc::new(json!("Echo two things.")),
            by: None,
        }),
        parent: None,
    };
    let first = queue(order, time_of(0));
    let control = fold([&first]).expect("a queued run is the beginning of a log");
    (Run::new(Arc::new(Revision::default()), control), first)
}

/// Decides on the input and applies the events.
pub(crate) fn say(run: &mut Run, input: &Input, now: Timestamp) -> Vec<Event> {
    let decided = run.decide(input, now).expect("the workload has only valid inputs");
    for event in &decided.events {
        run.apply(event).expect("what was decided applies");
    }
    decided.events
}

/// Applies all inputs to the run.
pub(crate) fn after(mut run: Run, inputs: &[Input]) -> Run {
    for input in inputs {
        say(&mut run, input, time_of(1));
    }
    run
}

pub(crate) fn start() -> Input {
    Input::Start { after: None }
}

/// The model's answer in a step: a text, or calls.
pub(crate) fn answer(step: u32, text: &str, calls: &[(String, &str)]) -> Input {
    let asked = |(id, tool): &(String, &str)| RequestedCall {
        id: id.clone(),
        tool: ToolName::from(*tool),
        arguments: arguments(id),
    };
    Input::ModelAnswered(ModelAnswered {
        step,
        attempt: 1,
        text: text.into(),
        reasoning: None,
        calls: calls.iter().map(asked).collect(),
        usage: Usage { input_tokens: 100, output_tokens: 20 },
        origin: Origin::default(),
        matched: Vec::new(),
        output: None,
        taken: BTreeSet::new(),
        hooks: HookAnswers::default(),
    })
}

fn arguments(call: &str) -> Arguments {
    let value = json!({"text": format!("said by {call}")});
    let digest = Digest::sha256(value.to_string().as_bytes());
    Arguments::Valid { value: Arc::new(value), digest }
}

pub(crate) fn gate(call: &str, class: EffectClass, approval: Approval) -> Input {
    Input::Gated(GateInput {
        call: CallId::from(call),
        tool: ToolLookup::Known(Tool {
            definition: Digest::sha256(b"definition"),
            class,
            approval,
            performer: Performer::Server,
            expires_in_ms: Some(86_400_000),
            on_expiry: OnExpiry::Deny,
        }),
        arguments: arguments(call),
        hits: Vec::new(),
        grants: Vec::new(),
        loosening_ended: false,
        unsent_attempt: None,
        hooks: HookAnswers::default(),
    })
}

/// A read that needs no approval.
pub(crate) fn gate_echo(call: &str) -> Input {
    gate(call, EffectClass::Read, Approval::Never)
}

/// A write that needs a person's approval.
pub(crate) fn gate_transfer(call: &str) -> Input {
    gate(call, EffectClass::Write, Approval::Ask)
}

pub(crate) fn returned(step: u32, call: &str) -> Input {
    let value = Arc::new(json!({"text": format!("said by {call}")}));
    Input::ToolReturned {
        step,
        call: CallId::from(call),
        attempt: 1,
        outcome: Outcome::Answered(ToolAnswer::Success { value, warning: None }),
    }
}

/// An approval of this held call.
pub(crate) fn approve(run: &Run, call: &str) -> Input {
    let call = CallId::from(call);
    let open = run.control.call(&call).and_then(|call| call.suspension()).expect("the call is held");
    Input::Decide(Decision {
        id: Some("dec_1".into()),
        suspension: open.id.clone(),
        call,
        by: Principal::from("ana"),
        accepted_at: time_of(1),
        definition_now: Some(Digest::sha256(b"definition")),
        action: DecisionAction::Resume(Resume::default()),
    })
}

/// W1: two parallel calls of echo, then a text, as the four commits that a driver makes.
pub(crate) fn w1() -> [Vec<Input>; 4] {
    let calls = ["call_0".to_owned(), "call_1".to_owned()];
    let asked = calls.clone().map(|call| (call, "echo"));
    let [first, second] = &calls;
    [
        vec![start()],
        vec![answer(1, "", &asked), gate_echo(first), gate_echo(second)],
        vec![returned(1, first), returned(1, second)],
        vec![answer(2, "Both echoed their arguments.", &[])],
    ]
}

/// Applies the inputs of each commit, and then asks what the run wants next, as a driver does.
pub(crate) fn drive(run: &mut Run, commits: &[Vec<Input>]) {
    for inputs in commits {
        for input in inputs {
            black_box(say(run, input, time_of(1)));
        }
        black_box(run.wanted());
    }
}

/// W4: one step with one call. The run has started, and its step `step` is open.
pub(crate) fn long_step(step: u32) -> [Vec<Input>; 2] {
    let call = format!("call_{step}");
    let answer = answer(step, "", &[(call.clone(), "echo")]);
    [vec![answer, gate_echo(&call)], vec![returned(step, &call)]]
}

/// A step with this many calls, all held.
pub(crate) fn held(count: usize) -> Run {
    let calls: Vec<(String, &str)> = (0..count).map(|index| (format!("call_{index}"), "transfer")).collect();
    let mut inputs = vec![start(), answer(1, "", &calls)];
    inputs.extend(calls.iter().map(|(call, _)| gate_transfer(call)));
    after(queued().0, &inputs)
}

#[cfg(test)]
mod tests {
    use machine::event_codec;
    use serde_json::Value;

    use super::{Event, Run, held, long_step, queued, say, start, time_of, w1};

    fn types(events: &[Event]) -> Vec<String> {
        let stored_type = |event: &Event| {
            let text = event_codec::encode(event).expect("an event can be stored");
            let stored: Value = serde_json::from_str(&text).expect("what is stored is JSON");
            stored["type"].as_str().expect("an event has a type").to_owned()
        };
        events.iter().map(stored_type).collect()
    }

    #[test]
    fn w1_is_four_commits_and_completes() {
        let (mut run, first) = queued();
        let mut commits = w1().map(|inputs| {
            inputs.iter().flat_map(|input| say(&mut run, input, time_of(1))).collect::<Vec<Event>>()
        });
        commits[0].insert(0, first);
        assert_eq!(types(&commits[0]), ["run.queued", "run.started", "message.added", "step.started"]);
        assert_eq!(
            types(&commits[1]),
            [
                "message.added",
                "tool.requested",
                "tool.requested",
                "tool.execution_started",
                "tool.execution_started"
            ]
        );
        assert_eq!(
            types(&commits[2]),
            [
                "tool.execution_succeeded",
                "tool.execution_succeeded",
                "message.added",
                "message.added",
                "step.ended",
                "step.started"
            ]
        );
        assert_eq!(types(&commits[3]), ["message.added", "step.ended", "run.ended"]);
        assert!(run.control.ended().is_some());
    }

    #[test]
    fn w4_makes_one_step_after_the_other() {
        let mut run: Run = queued().0;
        say(&mut run, &start(), time_of(0));
        for step in 1..=300 {
            assert_eq!(run.control.step, step);
            for input in long_step(step).iter().flatten() {
                say(&mut run, input, time_of(step));
            }
        }
        assert_eq!(run.control.step, 301);
    }

    #[test]
    fn sixty_four_calls_are_held() {
        assert_eq!(held(64).control.pending().len(), 64);
    }
}
