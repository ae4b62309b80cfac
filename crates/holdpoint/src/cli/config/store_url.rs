//! `[store]`: where runs are kept.

use std::path::PathBuf;

use super::table::Entry;
use crate::cli::store::StoreUrl;

pub(super) fn read(entry: Option<Entry<'_>>, beside_the_file: PathBuf) -> StoreUrl {
    let absent = StoreUrl::Sqlite { path: beside_the_file };
    let Some(mut table) = entry.and_then(|entry| entry.table("a table [store]")) else { return absent };
    let url = table.take("url");
    table.finish();
    url.and_then(|entry| parse(&entry)).unwrap_or(absent)
}

fn parse(entry: &Entry<'_>) -> Option<StoreUrl> {
    let text = entry.text(StoreUrl::FORMS)?;
    // The text may contain a password, so the fault does not repeat it.
    StoreUrl::parse(text, |path| entry.location.path(path))
        .or_else(|| entry.location.refuse(format!("this names no store; write {}", StoreUrl::FORMS)))
}
