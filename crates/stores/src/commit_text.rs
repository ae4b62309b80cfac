//! A commit as it is stored: the name of its checkpoint, and its events, one per line.

use engine::store::StoreError;
use machine::Event;
use machine::checkpoint::Checkpoint;
use machine::event_codec;

pub(crate) const fn checkpoint_name(checkpoint: Checkpoint) -> &'static str {
    match checkpoint {
        Checkpoint::UserMessage => "user_message",
        Checkpoint::AssistantTurn => "assistant_turn",
        Checkpoint::ToolResults => "tool_results",
        Checkpoint::ReplayResults => "replay_results",
        Checkpoint::Waiting => "waiting",
        Checkpoint::RunFinished => "run_finished",
    }
}

pub(crate) fn commit_body<'e>(events: impl Iterator<Item = &'e Event>) -> Result<String, StoreError> {
    let mut body = String::new();
    for event in events {
        if !body.is_empty() {
            body.push('\n');
        }
        body.push_str(&event_codec::encode(event).map_err(StoreError::Impossible)?);
    }
    Ok(body)
}
