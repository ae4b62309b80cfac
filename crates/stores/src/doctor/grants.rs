//! Compares the grants of a thread with its logs.

use std::collections::BTreeMap;

use machine::Timestamp;
use machine::id::GrantId;
use machine::projection_rows::GrantRow;

use super::{FindingCode, Findings};
use crate::grants::GrantColumns;

/// Removes the grant of this row from `left`, the logged grants for which no row was found yet.
pub(crate) fn compare_grant(
    columns: GrantColumns,
    since: Timestamp,
    is_of_tenant: bool,
    left: &mut BTreeMap<GrantId, GrantRow>,
    place: &str,
    findings: &mut Findings,
) {
    let what = format!("grant {}, given by {}, is not what the logs say", columns.id, columns.given_by);
    let expected = left.remove(&GrantId::from(columns.id.as_str()));
    let fits = match (columns.is_logged(), expected) {
        (true, Some(expected)) => expected.since == since && columns.into_grant() == Ok(expected.grant),
        (false, None) => columns.into_grant().is_ok(),
        (true, None) | (false, Some(_)) => false,
    };
    if !fits || !is_of_tenant {
        findings.add(FindingCode::ThreadDiffers, place, what);
    }
}
