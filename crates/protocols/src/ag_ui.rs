//! AG-UI 1.0, the dialect before it, and CopilotKit.
//!
//! One Holdpoint run spans several protocol runs: the protocol ends a run whenever it asks the client for something, and
//! the client continues with another run on the same thread. Here each of them is a *segment* of the one Holdpoint run.
//!
//! A request is parsed with [`AgUiRequest::parse`], and [`AgUiRequest::ask`] says what the client wants. The caller does
//! it, then sends what an [`AgUiEncoder`] makes of the run's feed until [`AgUiEncoder::is_done`]. An [`AgUiVerifier`]
//! knows the rules that the real clients enforce; run it on everything that is sent.

mod answer;
mod ask;
mod calls;
mod copilot_kit;
mod decision;
mod encode;
mod ending;
mod event;
mod event_fields;
mod fields;
mod interrupt;
mod json_patch;
mod message;
mod request;
mod result_text;
mod segment;
mod snapshot;
mod translate;
mod verify;
mod verify_forms;

pub use ask::{AgUiAsk, AgUiThreadView};
pub use copilot_kit::{CopilotKitAgent, CopilotKitCall, capabilities, runtime_info, stopped_body};
pub use decision::{AgUiDecision, AgUiInvalidAnswer, CANCELLED_IN_CLIENT};
pub use encode::AgUiEncoder;
pub use event::{
    AG_UI_VERSION, AgUiDialect, AgUiEvent, AgUiInterrupt, AgUiKind, AgUiOutcome, AgUiSubagentOutcome,
    AgUiUsage,
};
pub use fields::AgUiRequestError;
pub use interrupt::{AgUiAnswerable, AgUiDelegatedHold};
pub use message::{AgUiFunction, AgUiMessage, AgUiToolCall};
pub use request::{
    AgUiClientTool, AgUiContext, AgUiInputMessage, AgUiRequest, AgUiResumeEntry, AgUiResumeStatus,
    AgUiToolResult, AgUiUserMessage,
};
pub use segment::AgUiSegment;
pub use snapshot::AgUiConversation;
pub use verify::{AgUiFault, AgUiRule, AgUiVerifier};
