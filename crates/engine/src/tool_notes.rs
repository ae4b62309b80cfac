//! Logs and progress that a tool sends to its callback address while its call is under way.

use machine::id::ToolName;

use crate::callback::ReportedAttempt;
use crate::engine::Engine;
use crate::live::{ToolNote, ToolNoteBody};
use crate::store::LiveUpdate;

impl Engine {
    /// Shows a note of a tool to the watchers of its run, in this process and in others. Nothing is stored. `step` asked
    /// for the call. `after` is the sequence number of the last event that the caller has seen of the run.
    pub fn show_tool_note(
        &self,
        about: &ReportedAttempt,
        tool: &ToolName,
        step: u32,
        after: u64,
        body: ToolNoteBody,
    ) {
        let node = self.node();
        let note = ToolNote {
            call_id: about.call.clone(),
            tool: Some(tool.clone()),
            attempt: about.attempt,
            step: Some(step),
            at: node.clock.now(),
            body,
        };
        let feed = node.feeds.for_run(&about.run);
        if feed.is_held() {
            // The relay sends it to the processes that watch the run.
            feed.live().note(note);
            feed.signal();
        } else {
            feed.live().receive_note(note.clone());
            feed.signal();
            node.store.publish_live(&about.run, after, vec![LiveUpdate::Note(note)]);
        }
    }
}
