//! What the model and the tools answer.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use machine::Input;
use machine::event::{Origin, Usage};
use machine::id::CallId;
use machine::input::{ModelAnswered, ModelFailure, Outcome, RequestedCall, ToolAnswer};
use machine::json_value::VALUE_DEPTH_MAX;
use machine::phase::{HookAnswers, Phase, SuspendRequest};
use machine::revision::{CALLS_OPEN_MAX, RESUME_STATE_BYTES_MAX, Revision, StopCondition};
use serde_json::{Value, json};

use crate::judge::outputs;
use crate::play::tape::Tape;
use crate::world::live::{TOOL_NAMES, UNKNOWN_TOOL};
use crate::world::setup::FINAL_WORD;
use crate::world::{arguments, hooks};

/// Ids that models give to calls. Few, so that they repeat.
const CALL_IDS: [&str; 6] = ["a", "b", "c", "d", "", "a~2"];
const CALLS_MAX: usize = 4;
const USAGE_MAX: usize = 40;

/// The position of a model call in its run.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub step: u32,
    pub attempt: u32,
}

/// The result of a model call.
pub fn draw_model(
    tape: &mut Tape,
    turn: Turn,
    revision: &Revision,
    used_ids: &BTreeSet<CallId>,
    trouble: usize,
    hook_percent: usize,
) -> Input {
    if tape.chance(trouble) {
        match tape.pick(3) {
            0 => return failure(turn, true, tape.among([None, Some(50), Some(100_000)])),
            1 => return failure(turn, false, None),
            _ => return answered(turn, "", Vec::new(), revision, used_ids, hooks::silent(), 1),
        }
    }
    // Later steps request fewer calls, so that most runs end by themselves.
    let asks = turn.step <= 1 || tape.chance(60);
    let calls: Vec<RequestedCall> =
        if asks { (0..=tape.pick(CALLS_MAX)).map(|_| draw_call(tape)).collect() } else { Vec::new() };
    let text = if calls.is_empty() {
        tape.among(["done", "all done", "FINAL words"])
    } else {
        tape.among(["", "working on it", "FINAL, and more"])
    };
    let usage = 1 + tape.pick(USAGE_MAX) as u64;
    let calls = crowded(calls, text, usage, turn.step);
    let answers = hooks::draw(tape, Phase::AfterInference, revision, hook_percent);
    answered(turn, text, calls, revision, used_ids, answers, usage)
}

/// Rarely, a first answer requests more calls than a run allows. Derived from values that are drawn anyway, so that
/// stored tapes still give the same worlds.
fn crowded(calls: Vec<RequestedCall>, text: &str, usage: u64, step: u32) -> Vec<RequestedCall> {
    let rare = step == 1 && text.is_empty() && calls.len() == CALLS_MAX && usage == USAGE_MAX as u64;
    if !rare {
        return calls;
    }
    calls.iter().cycle().take(CALLS_OPEN_MAX + CALLS_MAX).cloned().collect()
}

/// The simplest answer: text without calls.
#[must_use]
pub fn words(turn: Turn, revision: &Revision) -> Input {
    answered(turn, "that is all", Vec::new(), revision, &BTreeSet::new(), hooks::silent(), 1)
}

fn failure(turn: Turn, retryable: bool, retry_after_ms: Option<u64>) -> Input {
    let failure = ModelFailure { message: "overloaded".into(), retryable, retry_after_ms };
    Input::ModelFailed { step: turn.step, attempt: turn.attempt, failure }
}

pub fn answered(
    turn: Turn,
    text: &str,
    calls: Vec<RequestedCall>,
    revision: &Revision,
    used_ids: &BTreeSet<CallId>,
    hooks: HookAnswers,
    tokens: u64,
) -> Input {
    let text = if calls.is_empty() { outputs::spoken(revision, text, tokens) } else { text.to_owned() };
    let matched = revision
        .stop
        .iter()
        .zip(0_u16..)
        .filter(|(condition, _)| {
            matches!(condition, StopCondition::ContentMatch { .. }) && text.contains(FINAL_WORD)
        })
        .map(|(_, index)| index)
        .collect();
    let taken = used_ids
        .iter()
        .filter(|used| calls.iter().any(|call| is_taken(used.as_str(), &call.id)))
        .cloned()
        .collect();
    Input::ModelAnswered(ModelAnswered {
        step: turn.step,
        attempt: turn.attempt,
        output: outputs::judged(revision, &text),
        text,
        reasoning: None,
        calls,
        usage: Usage { input_tokens: tokens, output_tokens: 1 },
        origin: Origin::default(),
        matched,
        taken,
        hooks,
    })
}

/// Whether the id was used, alone or with a number after it.
fn is_taken(used: &str, asked: &str) -> bool {
    used.strip_prefix(asked).is_some_and(|rest| rest.is_empty() || rest.starts_with('~'))
}

fn draw_call(tape: &mut Tape) -> RequestedCall {
    let id = CALL_IDS[tape.pick(CALL_IDS.len())].to_owned();
    let tool = match tape.pick(24) {
        23 => UNKNOWN_TOOL,
        other => TOOL_NAMES[other % TOOL_NAMES.len()],
    };
    RequestedCall { id, tool: tool.into(), arguments: arguments::draw(tape) }
}

/// How an attempt of a tool ends.
pub fn draw_outcome(tape: &mut Tape, trouble: usize) -> Outcome {
    if !tape.chance(trouble) {
        return success();
    }
    match tape.pick(9) {
        0 => Outcome::Answered(ToolAnswer::Success {
            value: Arc::new(json!("ok")),
            warning: Some("slow".into()),
        }),
        1 => Outcome::Answered(ToolAnswer::Error { message: "boom".into() }),
        2 => Outcome::NotSent { why: "refused".into(), retry_after_ms: tape.among([None, Some(70)]) },
        3 | 4 => Outcome::Unknown { why: "timed out".into(), retry_after_ms: tape.among([None, Some(70)]) },
        8 => Outcome::Answered(draw_unkeepable(tape)),
        _ => Outcome::Answered(ToolAnswer::Pending(hooks::draw_request(tape))),
    }
}

/// An answer that no log could reproduce: nested too deeply, or with more state than a call may store.
fn draw_unkeepable(tape: &mut Tape) -> ToolAnswer {
    static DEEP: LazyLock<Arc<Value>> =
        LazyLock::new(|| Arc::new((0..=VALUE_DEPTH_MAX).fold(json!("ok"), |inner, _| json!([inner]))));
    static LARGE: LazyLock<Arc<Value>> =
        LazyLock::new(|| Arc::new(Value::from("x".repeat(RESUME_STATE_BYTES_MAX))));
    if tape.chance(50) {
        return ToolAnswer::Success { value: DEEP.clone(), warning: None };
    }
    let resume_state = Some(LARGE.clone());
    ToolAnswer::Pending(SuspendRequest { resume_state, ..hooks::draw_request(tape) })
}

/// The same outcome, but a question in it never expires.
#[must_use]
pub fn without_expiry(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Answered(ToolAnswer::Pending(request)) => {
            Outcome::Answered(ToolAnswer::Pending(SuspendRequest { expires_in_ms: None, ..request }))
        }
        other @ (Outcome::Answered(_) | Outcome::NotSent { .. } | Outcome::Unknown { .. }) => other,
    }
}

#[must_use]
pub fn success() -> Outcome {
    Outcome::Answered(ToolAnswer::Success { value: Arc::new(json!("ok")), warning: None })
}

/// The outcome in one word, for the coverage table and for stories.
#[must_use]
pub const fn outcome_name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Answered(ToolAnswer::Success { warning: None, .. }) => "success",
        Outcome::Answered(ToolAnswer::Success { warning: Some(_), .. }) => "success with warning",
        Outcome::Answered(ToolAnswer::Error { .. }) => "error",
        Outcome::Answered(ToolAnswer::Pending(_)) => "pending",
        Outcome::NotSent { .. } => "not sent",
        Outcome::Unknown { .. } => "unknown",
    }
}
