//! What an event takes up in memory, roughly: what is kept for a while is bounded by it.

use machine::event::{Event, Fact, Message};
use machine::json_value::memory_bytes;
use machine::phase::Action;
use machine::tool::Arguments;
use serde_json::Value;

/// Beside its texts.
const EVENT_BYTES: usize = 512;
/// Of a value that is always small.
const VALUE_BYTES: usize = 64;

pub(crate) fn weight(event: &Event) -> usize {
    let texts = match &event.fact {
        Fact::MessageAdded(Message::Assistant { text, reasoning, origin, .. }) => {
            let sealed = origin.sealed.as_ref().map_or(0, |sealed| sealed.content.len());
            text.len() + of_text(reasoning) + sealed
        }
        Fact::MessageAdded(Message::Correction { why, .. }) => why.len(),
        Fact::RunQueued(order) => order.message.as_ref().map_or(0, |message| of_value(&message.content)),
        // With the text that is made of it for the model.
        Fact::ExecutionSucceeded { result, .. } => 2 * result.as_str().len(),
        Fact::ExecutionFailed { error, .. } => error.message.len(),
        Fact::ToolDenied { reason, .. } => of_text(reason),
        Fact::ToolCancelled { text, .. } => of_text(text),
        Fact::ToolRequested { arguments, .. } => of_arguments(arguments),
        Fact::ToolApproved { arguments, .. } | Fact::ToolResumed { arguments, .. } => {
            arguments.as_ref().map_or(0, of_arguments)
        }
        Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened) => {
            opened.shown_arguments().map_or(0, of_value)
        }
        Fact::StateChanged { value, .. } => of_value(value),
        Fact::PhaseAnswered { actions, .. } => actions.iter().map(of_action).sum(),
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

fn of_text(text: &Option<String>) -> usize {
    text.as_ref().map_or(0, String::len)
}

fn of_arguments(arguments: &Arguments) -> usize {
    match arguments {
        Arguments::Valid { value, .. } => of_value(value),
        Arguments::Invalid { raw, why } => raw.len() + why.len(),
    }
}

fn of_action(action: &Action) -> usize {
    match action {
        Action::SetState { value, .. } | Action::SetParam { value, .. } => of_value(value),
        Action::AddInstruction { text }
        | Action::ReplaceMessage { text, .. }
        | Action::AddNote { text }
        | Action::Block { reason: text } => text.len(),
        Action::SetArguments { arguments, .. } => of_arguments(arguments),
        Action::End
        | Action::HideTool { .. }
        | Action::SkipInference
        | Action::DropCall { .. }
        | Action::Suspend(_)
        | Action::SetResult(_) => VALUE_BYTES,
    }
}

/// Twice, with the text that is made of it for the model.
fn of_value(value: &Value) -> usize {
    2 * memory_bytes(value)
}
