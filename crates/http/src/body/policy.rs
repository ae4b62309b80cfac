//! The policy that a message asks for: every field of a policy, each of them optional.

use std::num::NonZeroU32;

use machine::policy as domain;
use serde::Deserialize;
use utoipa::ToSchema;

use super::strict::present;
use crate::wire::enums::wire_enum;

wire_enum! {
    Continuation = domain::Continuation {
        AllSettled = "all_settled",
        Eager = "eager",
    }

    OnReject = domain::OnReject {
        Continue = "continue",
        EndRun = "end_run",
    }

    OnBlock = domain::OnBlock {
        FailCall = "fail_call",
        EndRun = "end_run",
    }

    StepEnd = domain::StepEnd {
        AfterTools = "after_tools",
        AfterInference = "after_inference",
    }

    HearDecisions = domain::DecisionTiming {
        Immediate = "immediate",
        AtBoundary = "at_boundary",
    }

    Execution = domain::Execution {
        Parallel = "parallel",
        Sequential = "sequential",
    }

    /// Which calls wait for a person.
    ApprovalScope = domain::ApprovalScope {
        Never = "never",
        Policy = "policy",
        WriteTools = "write_tools",
        AllTools = "all_tools",
    }

    WhileWaiting = domain::WhileWaiting {
        Reject = "reject",
        Supersede = "supersede",
        Enqueue = "enqueue",
    }

    OnBusy = domain::OnBusy {
        Reject = "reject",
        Enqueue = "enqueue",
        Interrupt = "interrupt",
    }
}

/// Changes to the agent's policy for one run. Absent fields keep the agent's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyFields {
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub continuation: Option<Continuation>,
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub on_reject: Option<OnReject>,
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub on_block: Option<OnBlock>,
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub step_end: Option<StepEnd>,
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub decisions: Option<HearDecisions>,
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub execution: Option<Execution>,
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub approval: Option<ApprovalScope>,
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub while_waiting: Option<WhileWaiting>,
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub on_busy: Option<OnBusy>,
    /// Maximum number of characters of one tool result that are sent to the model. A value above the agent's has no
    /// effect.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false, minimum = 1, value_type = Option<u32>)]
    pub max_result_chars: Option<NonZeroU32>,
    /// Maximum number of runs that this run may start by delegating, including the runs that those start. A value above
    /// the agent's has no effect.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub descendants_max: Option<u32>,
}

impl From<PolicyFields> for domain::PolicyRequest {
    fn from(fields: PolicyFields) -> Self {
        Self {
            continuation: fields.continuation.map(Into::into),
            on_reject: fields.on_reject.map(Into::into),
            on_block: fields.on_block.map(Into::into),
            step_end: fields.step_end.map(Into::into),
            decisions: fields.decisions.map(Into::into),
            execution: fields.execution.map(Into::into),
            approval: fields.approval.map(Into::into),
            while_waiting: fields.while_waiting.map(Into::into),
            on_busy: fields.on_busy.map(Into::into),
            max_result_chars: fields.max_result_chars.map(NonZeroU32::get),
            descendants_max: fields.descendants_max,
        }
    }
}
