//! Which suspension a decision answers, and whether its principal may answer it.

use crate::control::Control;
use crate::decision::Decision;
use crate::id::{CallId, Digest, SuspensionId};
use crate::projection_rows::RunSummary;
use crate::suspension::SuspensionKind;

use super::{Refusal, RunLifecycle};

/// How a decision addresses a suspension.
#[derive(Clone, Copy, Debug, Default)]
pub struct Target<'d> {
    /// The suspension that the decision names.
    pub named: Option<&'d SuspensionId>,
    /// The decision that was accepted earlier under the same id.
    pub earlier: Option<&'d Decision>,
    /// The digest of the arguments that the sender of a `cancel` has seen. A `resume` carries its own.
    pub cancels: Option<Digest>,
    /// The kinds of suspension that the principal may answer. None: every kind.
    pub kinds: Option<&'d [SuspensionKind]>,
}

/// The suspension that a decision answers: the one that holds the call. A decision that names another one, or whose
/// principal may not answer this kind, is refused. A call in doubt can only be answered by naming the suspension.
/// Otherwise a client that resends its approval after a crash would repeat the write, or its approval would be taken
/// for the result.
pub fn target_suspension(
    control: &Control,
    call: &CallId,
    target: &Target<'_>,
) -> Result<SuspensionId, Refusal> {
    if let Some(earlier) = target.earlier {
        // A repeat, or the id of another decision: either way nothing is applied, so nothing more is checked.
        let is_same = target.named.is_none_or(|named| *named == earlier.suspension);
        return if is_same { Ok(earlier.suspension.clone()) } else { Err(Refusal::IdUsed) };
    }
    let not_held = match RunSummary::from_control(control).lifecycle(false) {
        RunLifecycle::Open => Refusal::NotHeld,
        RunLifecycle::Ending | RunLifecycle::Ended => Refusal::RunOver,
    };
    let known = control.call(call);
    let Some((known, open)) = known.and_then(|known| Some((known, known.suspension()?))) else {
        return Err(not_held);
    };
    let kind = open.held.kind();
    if target.kinds.is_some_and(|kinds| !kinds.contains(&kind)) {
        return Err(Refusal::Forbidden(kind));
    }
    if target.named.is_some_and(|named| *named != open.id) {
        return Err(not_held);
    }
    // The arguments cannot change while this suspension is open.
    if target.cancels.is_some_and(|seen| seen != known.arguments) {
        return Err(Refusal::DigestMismatch);
    }
    if target.named.is_none() && kind == SuspensionKind::InDoubt {
        return Err(Refusal::SuspensionNotNamed);
    }
    Ok(open.id.clone())
}
