//! Wire words for domain enums. A variant without a word does not compile.

use engine::store::MessageOrder as StoredOrder;
use machine::checkpoint::Checkpoint as StoredCheckpoint;
use machine::phase::Phase as HookPhase;
use machine::projection_rows::{ApprovalStatus as DomainApprovalStatus, PublicRunStatus, Role as StoredRole};
use machine::status::CallStatus as DomainCallStatus;
use machine::suspension::{ResumeMode as Mode, SuspensionKind as Kind};

/// A wire enum for a domain enum: the same variants, parsed from and written as a plain word and in no other form.
macro_rules! wire_enum {
    ($($(#[$attribute:meta])* $name:ident = $domain:ty { $($variant:ident = $word:literal,)+ })+) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
        pub enum $name {
            $(#[serde(rename = $word)] $variant,)+
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        // A derived schema would list the names of the variants: the derive cannot see a word that a macro passes on.
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                let words = utoipa::openapi::ObjectBuilder::new().schema_type(utoipa::openapi::Type::String);
                words.enum_values(Some([$($word),+])).build().into()
            }
        }

        impl utoipa::ToSchema for $name {}

        impl From<$domain> for $name {
            fn from(domain: $domain) -> Self {
                match domain { $(<$domain>::$variant => Self::$variant,)+ }
            }
        }

        impl From<$name> for $domain {
            fn from(word: $name) -> Self {
                match word { $($name::$variant => Self::$variant,)+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(format!("expected one of {}", [$($word),+].join(", "))),
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(|_| serde::de::Error::unknown_variant(&text, &[$($word),+]))
            }
        }
    )+};
}

pub(crate) use wire_enum;

wire_enum! {
    RunStatus = PublicRunStatus {
        Queued = "queued",
        Running = "running",
        WaitingApproval = "waiting_approval",
        WaitingTool = "waiting_tool",
        Interrupting = "interrupting",
        Completed = "completed",
        Failed = "failed",
        Interrupted = "interrupted",
    }

    CallStatus = DomainCallStatus {
        New = "new",
        Running = "running",
        Suspended = "suspended",
        Resuming = "resuming",
        Succeeded = "succeeded",
        Failed = "failed",
        Cancelled = "cancelled",
    }

    SuspensionKind = Kind {
        Approval = "approval",
        ClientTool = "client_tool",
        External = "external",
        Question = "question",
        InDoubt = "in_doubt",
        ChildRun = "child_run",
    }

    ResumeMode = Mode {
        ReplayToolCall = "replay_tool_call",
        UseDecisionAsToolResult = "use_decision_as_tool_result",
        PassDecisionToTool = "pass_decision_to_tool",
    }

    ApprovalStatus = DomainApprovalStatus {
        Pending = "pending",
        Approved = "approved",
        Rejected = "rejected",
        Expired = "expired",
        Answered = "answered",
    }

    Role = StoredRole {
        User = "user",
        Assistant = "assistant",
        Tool = "tool",
        Note = "note",
    }

    MessageOrder = StoredOrder {
        OldestFirst = "asc",
        NewestFirst = "desc",
    }

    Checkpoint = StoredCheckpoint {
        UserMessage = "user_message",
        AssistantTurn = "assistant_turn",
        ToolResults = "tool_results",
        ReplayResults = "replay_results",
        Waiting = "waiting",
        RunFinished = "run_finished",
    }

    Phase = HookPhase {
        RunStart = "run_start",
        StepStart = "step_start",
        BeforeInference = "before_inference",
        AfterInference = "after_inference",
        BeforeToolExecute = "before_tool_execute",
        AfterToolExecute = "after_tool_execute",
        StepEnd = "step_end",
        RunEnd = "run_end",
    }
}
