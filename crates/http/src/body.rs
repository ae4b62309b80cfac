//! Parses request bodies: strictly, or not at all. A misspelt field must not approve anything.

mod decision;
mod message;
mod policy;
mod report;
mod strict;
mod text;
mod thread;
mod token;

pub use decision::{
    Answer, Approve, Choice, DERIVED_ID_PREFIX, DecisionEntry, Decisions, ENTRIES_MAX, Reject, WordAction,
};
pub use message::{ClientTool, PostMessage};
pub use policy::PolicyFields;
pub use report::{Report, ReportContent, ReportOutcome};
pub use strict::{BODY_DEPTH_MAX, BODY_NODES_MAX, parse_strict};
pub(crate) use strict::{check_text, parse_strict_checked};
pub(crate) use text::REASON_CHARS_MAX;
pub use text::{Id, Text, check_id};
pub use thread::{AdminReload, AutoApprove, Interrupt, PostThread};
pub use token::PostToken;
