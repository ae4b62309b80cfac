//! Converts the decisions of the other worlds to the engine's interface.

use engine::deciding::{Answer, Cancellation, Decide, Resumption};
use engine::store::Tenant;
use machine::decision::{Decision, DecisionAction, Resume};
use machine::id::RunId;
use machine::tool::Arguments;
use serde_json::{Value, json};

/// The request that makes this decision.
pub(crate) fn decide(run: &RunId, decision: &Decision) -> Decide {
    Decide {
        tenant: Tenant::default(),
        run: run.clone(),
        call: decision.call.clone(),
        suspension: Some(decision.suspension.clone()),
        id: decision.id.clone(),
        by: decision.by.clone(),
        kinds: None,
        answer: match &decision.action {
            DecisionAction::Cancel { reason, then } => Answer::Cancel(Cancellation {
                reason: reason.clone(),
                then: *then,
                ..Cancellation::default()
            }),
            DecisionAction::Resume(resume) => Answer::Resume(resumption(resume)),
        },
    }
}

fn resumption(resume: &Resume) -> Resumption {
    Resumption {
        payload: resume.payload.clone(),
        arguments: resume.arguments.as_ref().map(edited),
        expect_digest: resume.expect_digest,
        mode: resume.mode,
        note: resume.note.clone(),
        apply_to_future: resume.apply_to_future,
    }
}

/// Arguments that are not JSON cannot be sent; those that violate the tool's schema can.
fn edited(arguments: &Arguments) -> Value {
    match arguments {
        Arguments::Valid { value, .. } => (**value).clone(),
        Arguments::Invalid { .. } => json!({"amount": "a lot"}),
    }
}
