//! Submits a decision on an approval, and maps the verdict to a response.

use std::time::Instant;

use engine::deciding::{Decide, Decided};
use engine::store::{StoreError, SuspensionView};
use machine::inbox::Verdict;

use crate::approval_view::EditedArguments;
use crate::capacity::RequestPermit;
use crate::error::ApiError;
use crate::server::Server;

/// Decides, and counts the verdict.
pub(crate) async fn decide(server: &Server, decide: &Decide) -> Result<Decided, StoreError> {
    let began = Instant::now();
    let decided = server.engine.decide_and_read(decide).await?;
    server.metrics.record_decision(&decided.verdict, began.elapsed());
    Ok(decided)
}

/// An approval after a decision that was applied.
pub(crate) struct DecidedApproval {
    pub view: SuspensionView,
    pub edited: EditedArguments,
}

/// The approval after the decision, or why the decision was not applied.
pub(crate) async fn submit_decision(
    server: &Server,
    permit: &RequestPermit,
    held: SuspensionView,
    decision: &Decide,
) -> Result<DecidedApproval, ApiError> {
    let gone = || ApiError::no_approval(held.id.as_str());
    let Decided { verdict, suspension, edited } = match decide(server, decision).await {
        Ok(decided) => decided,
        Err(StoreError::NotFound) => return Err(gone()),
        Err(refused) => return Err(refused.into()),
    };
    let now = suspension.ok_or_else(gone)?;
    match verdict {
        Verdict::Accepted => Ok(DecidedApproval { view: now, edited: EditedArguments::Known(edited) }),
        // The first submission counts, and it may have edited the arguments in another way.
        Verdict::AlreadyApplied => Ok(DecidedApproval { view: now, edited: EditedArguments::Stored }),
        Verdict::Refused(refusal) => Err(ApiError::decision_refused(&refusal, &now)),
        Verdict::ToolChanged => {
            // Only the run can name the new approval.
            let replacement = server.engine.replacement_approval(&now);
            let replacement = tokio::time::timeout(server.limits.decision_timeout, replacement);
            let replacement = permit.release_while(replacement).await.unwrap_or(Ok(None))?;
            Err(ApiError::tool_changed(&now, replacement.as_ref()))
        }
    }
}
