//! `[agents.NAME.trim]`: how much of a long thread is sent to the model.

use engine::agent::Trim;

use super::table::Entry;

/// More than the context of any model.
const CHARS_MAX: u64 = 1_000_000_000;
const MESSAGES_MAX: u64 = 1_000_000;

pub(super) fn read(entry: &Entry<'_>) -> Option<Trim> {
    let mut table = entry.table("a table [agents.NAME.trim]")?;
    let messages = table.take("max_messages").map(|entry| entry.integer(1, MESSAGES_MAX));
    let chars = table.take("max_chars").map(|entry| entry.integer(1, CHARS_MAX));
    table.finish();
    if messages.is_none() && chars.is_none() {
        return entry
            .location
            .refuse("it sets no bound; write max_messages, max_chars or both, or remove it");
    }
    // An invalid limit must not turn into "no limit".
    Some(Trim {
        messages_max: match messages {
            Some(max) => Some(max?),
            None => None,
        },
        chars_max: match chars {
            Some(max) => Some(max?),
            None => None,
        },
    })
}
