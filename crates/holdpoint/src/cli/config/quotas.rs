//! `[limits]`: what one tenant may have in the store. Without this table there are no limits.

use engine::quota::Quotas;

use super::table::{Entry, Table};

const MAX: u64 = i64::MAX as u64;

pub(super) fn read(entry: Option<Entry<'_>>) -> Quotas {
    let Some(mut table) = entry.and_then(|entry| entry.table("a table [limits]")) else {
        return Quotas::default();
    };
    let quotas = Quotas {
        threads_max: quota(&mut table, "max_threads"),
        pending_approvals_max: quota(&mut table, "max_pending_approvals"),
    };
    table.finish();
    quotas
}

fn quota(table: &mut Table<'_>, key: &'static str) -> Option<u64> {
    table.take(key)?.integer(1, MAX)
}
