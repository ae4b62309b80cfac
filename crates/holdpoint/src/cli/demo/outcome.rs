//! Reports in the demo's window what happened to the call that it holds.

use std::path::Path;

use engine::feed::{FeedItem, Subscription};
use engine::store::SuspensionView;
use machine::event::Fact;

use crate::cli::client::escaped;
use crate::cli::output::print;

/// Prints one line when the call is settled. Reads the events of the run, so it prints nothing before the event is stored.
pub(super) async fn report(mut events: Subscription, held: SuspensionView, folder: String) {
    let mut approved_by = None;
    while let Some(Ok(item)) = events.next().await {
        let FeedItem::Event(committed) = item else { continue };
        let fact = &committed.event.fact;
        if let Fact::ToolApproved { call_id, by, .. } = fact
            && *call_id == held.call
        {
            approved_by = Some(escaped(by.name()));
        }
        if let Some(line) = outcome(fact, &held, approved_by.as_deref(), Path::new(&folder)) {
            // The server keeps running if its output is closed.
            let _ = print(&format!("{line}\n"));
            return;
        }
    }
}

/// None if the event does not settle the held call.
fn outcome(fact: &Fact, held: &SuspensionView, approved_by: Option<&str>, folder: &Path) -> Option<String> {
    let by = approved_by.unwrap_or("an answer");
    // In a kept folder the oldest held call may be one of the user's own.
    let writes_file = held.opened.as_ref().is_some_and(|opened| opened.tool.as_str() == "write_file");
    let (done, not_done) = if writes_file {
        (format!("file written to {}", folder.join("written").display()), "no file was written")
    } else {
        ("the call has run".to_owned(), "the call did not run")
    };
    if let Fact::ExecutionSucceeded { call_id, .. } = fact
        && *call_id == held.call
    {
        return Some(format!("approved by {by}, {done}"));
    }
    if let Fact::ExecutionFailed { call_id, error, .. } = fact
        && *call_id == held.call
    {
        return Some(format!("approved by {by}, but the call failed: {}", escaped(&error.message)));
    }
    if let Fact::ToolDenied { call_id, by, expired, reason, .. } = fact
        && *call_id == held.call
    {
        if *expired {
            return Some(format!("the approval has expired, {not_done}"));
        }
        let reason = reason.as_deref().map(|reason| format!(" ({})", escaped(reason))).unwrap_or_default();
        return Some(format!("rejected by {}{reason}, {not_done}", escaped(by.name())));
    }
    if let Fact::ToolCancelled { call_id, by, .. } = fact
        && *call_id == held.call
    {
        return Some(format!("cancelled by {}, {not_done}", escaped(by.name())));
    }
    None
}
