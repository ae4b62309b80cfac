//! Checks what a thread keeps besides its logs: the order of its messages, the keys of posted messages, stored
//! responses.

use rusqlite::{Connection, params};

use crate::columns::to_u64;
use crate::doctor::{Fault, FindingCode, Findings};
use crate::sqlite::keys::{seal_of_answer, seal_of_key};

/// A thread's commits are in the file in the order in which they were written.
const OUT_OF_ORDER: &str = "SELECT count(*) FROM ( \
        SELECT m.place, row_number() OVER (ORDER BY ( \
            SELECT c.row FROM commits c WHERE c.run = m.run AND c.last_seq >= m.seq ORDER BY c.last_seq LIMIT 1 \
        ), m.seq) AS due FROM messages m WHERE m.thread = ?1 \
    ) WHERE place <> due";
/// The run of a key must be a run of its thread.
const KEYS: &str = "SELECT k.scope, k.tenant = ?2, r.thread, k.run, k.body, k.seal \
    FROM post_keys k LEFT JOIN runs r ON r.row = k.run WHERE k.thread = ?1";
const ANSWERS: &str = "SELECT a.scope, a.tenant = ?2, r.id, a.body, a.status, a.seal, a.answer \
    FROM runs r JOIN remembered a ON a.run = r.row WHERE r.thread = ?1";

pub(super) fn examine(
    connection: &Connection,
    thread: i64,
    tenant: &str,
    place: &str,
    findings: &mut Findings,
) -> Result<(), Fault> {
    let count: i64 = connection.prepare_cached(OUT_OF_ORDER)?.query_row([thread], |row| row.get(0))?;
    if count > 0 {
        let what = format!("{} messages do not stand in the order of the logs", to_u64(count));
        findings.add(FindingCode::MessageDiffers, place, what);
    }
    keys(connection, thread, tenant, place, findings)?;
    answers(connection, thread, tenant, place, findings)
}

fn keys(
    connection: &Connection,
    thread: i64,
    tenant: &str,
    place: &str,
    findings: &mut Findings,
) -> Result<(), Fault> {
    let mut statement = connection.prepare_cached(KEYS)?;
    let mut rows = statement.query(params![thread, tenant])?;
    while let Some(row) = rows.next()? {
        let (scope, ours, of): (String, bool, Option<i64>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (run, body, seal): (i64, Vec<u8>, Vec<u8>) = (row.get(3)?, row.get(4)?, row.get(5)?);
        let fault = match of {
            None => Some((FindingCode::Orphan, "names a run that is not there")),
            Some(of) if of != thread => Some((FindingCode::ThreadDiffers, "names a run of another thread")),
            Some(_) if !ours => Some((FindingCode::ThreadDiffers, "belongs to another tenant")),
            Some(_) if seal_of_key(&scope, run, &body).0[..] != seal => {
                Some((FindingCode::ThreadDiffers, "is not what was written"))
            }
            Some(_) => None,
        };
        if let Some((code, what)) = fault {
            findings.add(code, place, format!("the key {scope:?} of a message {what}"));
        }
    }
    Ok(())
}

fn answers(
    connection: &Connection,
    thread: i64,
    tenant: &str,
    place: &str,
    findings: &mut Findings,
) -> Result<(), Fault> {
    let mut statement = connection.prepare_cached(ANSWERS)?;
    let mut rows = statement.query(params![thread, tenant])?;
    while let Some(row) = rows.next()? {
        let (scope, ours, run): (String, bool, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (body, status, seal): (Vec<u8>, i64, Vec<u8>) = (row.get(3)?, row.get(4)?, row.get(5)?);
        let answer = row.get_ref(6)?.as_str().map_err(rusqlite::Error::from)?;
        let what = if !ours {
            "belongs to another tenant"
        } else if seal_of_answer(&scope, &body, status, answer).0[..] != seal {
            "is not what was written"
        } else {
            continue;
        };
        findings.add(
            FindingCode::DecisionDiffers,
            place,
            format!("the answer {scope:?} of run {run} {what}"),
        );
    }
    Ok(())
}
