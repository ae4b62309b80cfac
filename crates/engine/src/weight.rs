//! The approximate size of an event in memory, by which caches are bounded.

use machine::event::{Event, Fact, Message};
use machine::json_value::memory_bytes;
use machine::phase::Action;
use machine::tool::Arguments;
use serde_json::Value;

/// Size of an event without its texts.
const EVENT_BYTES: usize = 512;
/// Size of a value that is always small.
const VALUE_BYTES: usize = 64;

pub(crate) fn weight(event: &Event) -> usize {
    let texts = match &event.fact {
        Fact::MessageAdded(Message::Assistant { text, reasoning, origin, .. }) => {
            let sealed = origin.sealed.as_ref().map_or(0, |sealed| sealed.content.len());
            text.len() + text_bytes(reasoning) + sealed
        }
        Fact::MessageAdded(Message::Correction { why, .. }) => why.len(),
        Fact::RunQueued(order) => order.message.as_ref().map_or(0, |message| value_bytes(&message.content)),
        // Twice, for the text that the model reads.
        Fact::ExecutionSucceeded { result, .. } => 2 * result.as_str().len(),
        Fact::ExecutionFailed { error, .. } => error.message.len(),
        Fact::ToolDenied { reason, .. } => text_bytes(reason),
        Fact::ToolCancelled { text, .. } => text_bytes(text),
        Fact::ToolRequested { arguments, .. } => arguments_bytes(arguments),
        Fact::ToolApproved { arguments, .. } | Fact::ToolResumed { arguments, .. } => {
            arguments.as_ref().map_or(0, arguments_bytes)
        }
        Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened) => {
            opened.shown_arguments().map_or(0, value_bytes)
        }
        Fact::StateChanged { value, .. } => value_bytes(value),
        Fact::PhaseAnswered { actions, .. } => actions.iter().map(action_bytes).sum(),
        Fact::MessageAdded(_)
        | Fact::RunStarted { .. }
        | Fact::RunWaiting { .. }
        | Fact::RunResumed {}
        | Fact::RunInterrupting { .. }
        | Fact::RunEnding { .. }
        | Fact::RunEnded { .. }
        | Fact::RunRecovered { .. }
        | Fact::StepStarted { .. }
        | Fact::StepEnded { .. }
        | Fact::ModelRetrying { .. }
        | Fact::ApprovalVoided { .. }
        | Fact::ExecutionStarted { .. }
        | Fact::ChildStarted { .. }
        | Fact::ChildEnded { .. } => 0,
    };
    EVENT_BYTES + texts
}

fn text_bytes(text: &Option<String>) -> usize {
    text.as_ref().map_or(0, String::len)
}

fn arguments_bytes(arguments: &Arguments) -> usize {
    match arguments {
        Arguments::Valid { value, .. } => value_bytes(value),
        Arguments::Invalid { raw, why } => raw.len() + why.len(),
    }
}

fn action_bytes(action: &Action) -> usize {
    match action {
        Action::SetState { value, .. } | Action::SetParam { value, .. } => value_bytes(value),
        Action::AddInstruction { text }
        | Action::ReplaceMessage { text, .. }
        | Action::AddNote { text }
        | Action::Block { reason: text } => text.len(),
        Action::SetArguments { arguments, .. } => arguments_bytes(arguments),
        Action::End
        | Action::HideTool { .. }
        | Action::SkipInference
        | Action::DropCall { .. }
        | Action::Suspend(_)
        | Action::SetResult(_) => VALUE_BYTES,
    }
}

/// Twice, for the text that the model reads.
fn value_bytes(value: &Value) -> usize {
    2 * memory_bytes(value)
}
