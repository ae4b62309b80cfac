//! Why a run ended.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::{Principal, RunId};
use crate::named_enum::named_enum;

/// The longest reason text. Longer texts are cut, so that the control state stays small.
pub const REASON_CHARS_MAX: usize = 500;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub enum Termination {
    /// The model answered without asking for a tool.
    NaturalEnd,
    /// A plugin requested the end.
    BehaviorRequested,
    Stopped(Stopped),
    Cancelled(Cancelled),
    Blocked(String),
    Error(RunError),
}

/// The human-readable form, tagged with `type` and `value`.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Termination", tag = "type", content = "value", rename_all = "snake_case")]
enum TaggedTermination {
    NaturalEnd,
    #[serde(alias = "plugin_requested")]
    BehaviorRequested,
    Stopped(Stopped),
    Cancelled(Cancelled),
    Blocked(String),
    Error(RunError),
}

// Tagged in events, plain in the stored control, whose format has no tags.
impl Serialize for Termination {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            TaggedTermination::serialize(self, serializer)
        } else {
            Self::serialize(self, serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Termination {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            TaggedTermination::deserialize(deserializer)
        } else {
            Self::deserialize(deserializer)
        }
    }
}

/// A stop condition fired, or a denial or an expiry ended the run because the policy says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    pub code: StopCode,
    pub detail: Option<String>,
}

named_enum! {
    pub enum StopCode {
        Rejected = "rejected",
        Expired = "expired",
        MaxRounds = "max_rounds",
        Timeout = "timeout",
        TokenBudget = "token_budget",
        ConsecutiveErrors = "consecutive_errors",
        StopOnTool = "stop_on_tool",
        ContentMatch = "content_match",
        LoopDetection = "loop_detection",
    }
}

impl StopCode {
    /// The run reached a stop that its agent was configured for. Any other stop cuts the work short.
    #[must_use]
    pub const fn is_as_configured(self) -> bool {
        match self {
            Self::StopOnTool | Self::ContentMatch => true,
            Self::Rejected
            | Self::Expired
            | Self::MaxRounds
            | Self::Timeout
            | Self::TokenBudget
            | Self::ConsecutiveErrors
            | Self::LoopDetection => false,
        }
    }
}

/// Why the run was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cancelled {
    Interrupted,
    /// A later message of the thread replaced it.
    Superseded,
    /// Its parent run is over, or no longer needs it.
    ByParent,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterruptCause {
    Person(Principal),
    /// A later message of the thread, with the run that it started.
    Superseded(RunId),
    Parent(RunId),
}

impl InterruptCause {
    #[must_use]
    pub const fn cancelled(&self) -> Cancelled {
        match self {
            Self::Person(_) => Cancelled::Interrupted,
            Self::Superseded(_) => Cancelled::Superseded,
            Self::Parent(_) => Cancelled::ByParent,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    pub code: ErrorCode,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    Model,
    Hook,
    /// The last answer is not the output that was wanted, even after a correction.
    Output,
    /// A reason from an older or foreign log that this version does not know.
    Unknown,
}

impl Termination {
    #[must_use]
    pub fn stopped(code: StopCode, detail: impl Into<Option<String>>) -> Self {
        Self::Stopped(Stopped { code, detail: detail.into().map(|text| truncate_reason(&text)) })
    }

    #[must_use]
    pub fn error(code: ErrorCode, text: &str) -> Self {
        Self::Error(RunError { code, text: truncate_reason(text) })
    }

    #[must_use]
    pub fn blocked(text: &str) -> Self {
        Self::Blocked(truncate_reason(text))
    }

    /// One word.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NaturalEnd => "natural_end",
            Self::BehaviorRequested => "behavior_requested",
            Self::Stopped(_) => "stopped",
            Self::Blocked(_) => "blocked",
            Self::Error(_) => "error",
            Self::Cancelled(_) => "cancelled",
        }
    }

    /// The cause, where the reason has more than one.
    #[must_use]
    pub const fn code(&self) -> Option<&'static str> {
        match self {
            Self::Stopped(stopped) => Some(stopped.code.as_str()),
            Self::Cancelled(Cancelled::Superseded) => Some("superseded"),
            Self::Cancelled(Cancelled::ByParent) => Some("by_parent"),
            Self::Cancelled(Cancelled::Interrupted)
            | Self::NaturalEnd
            | Self::BehaviorRequested
            | Self::Blocked(_)
            | Self::Error(_) => None,
        }
    }

    /// The text that belongs to it.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Stopped(stopped) => stopped.detail.as_deref(),
            Self::Blocked(text) => Some(text),
            Self::Error(error) => Some(&error.text),
            Self::NaturalEnd | Self::BehaviorRequested | Self::Cancelled(_) => None,
        }
    }

    #[must_use]
    pub const fn is_cancelled(&self) -> bool {
        match self {
            Self::Cancelled(_) => true,
            Self::NaturalEnd
            | Self::BehaviorRequested
            | Self::Stopped(_)
            | Self::Blocked(_)
            | Self::Error(_) => false,
        }
    }

    /// Ends that wait for nothing: executing calls are abandoned, not awaited.
    #[must_use]
    pub const fn is_abort(&self) -> bool {
        match self {
            Self::Cancelled(_) | Self::Error(_) => true,
            Self::NaturalEnd | Self::BehaviorRequested | Self::Stopped(_) | Self::Blocked(_) => false,
        }
    }

    /// The short form that the state path `__run` shows.
    #[must_use]
    pub fn done_reason(&self) -> String {
        match self {
            Self::NaturalEnd => "natural".to_owned(),
            Self::BehaviorRequested => "behavior_requested".to_owned(),
            Self::Stopped(stopped) => format!("stopped:{}", stopped.code.as_str()),
            Self::Cancelled(_) => "cancelled".to_owned(),
            Self::Blocked(text) => format!("blocked:{text}"),
            Self::Error(_) => "error".to_owned(),
        }
    }

    /// Parses the short form. An unknown text becomes an error with that text, never a success.
    #[must_use]
    pub fn from_done_reason(text: &str) -> Self {
        if let Some(reason) = text.strip_prefix("blocked:") {
            return Self::blocked(reason);
        }
        if let Some(code) = text.strip_prefix("stopped:") {
            return StopCode::ALL
                .into_iter()
                .find(|known| known.as_str() == code)
                .map_or_else(|| Self::error(ErrorCode::Unknown, text), |code| Self::stopped(code, None));
        }
        match text {
            "natural" => Self::NaturalEnd,
            "behavior_requested" | "plugin_requested" => Self::BehaviorRequested,
            "cancelled" => Self::Cancelled(Cancelled::Interrupted),
            "error" => Self::error(ErrorCode::Unknown, ""),
            unknown => Self::error(ErrorCode::Unknown, unknown),
        }
    }
}

pub(crate) fn truncate_reason(text: &str) -> String {
    text.chars().take(REASON_CHARS_MAX).collect()
}
