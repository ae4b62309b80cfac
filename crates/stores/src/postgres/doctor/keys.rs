//! Examines what a thread stores beside its logs: the order of its messages, the keys of posts, stored responses.

use super::examine_error::ExamineError;
use super::run::PostgresRunContext;
use crate::columns::to_u64;
use crate::doctor::{FindingCode, Findings};
use crate::postgres::nul_escape::{escape, unescape};

/// More faults would say nothing more about one thread.
const FAULT_COUNT_MAX: i64 = 100;
/// Runs hold a thread one after the other: the messages of each are contiguous, in the order of its log, without a gap.
const OUT_OF_ORDER: &str = "SELECT count(*) FROM (
        SELECT place, run, seq, row_number() OVER (ORDER BY place) AS due,
            lag(run) OVER (ORDER BY place) AS run_before, lag(seq) OVER (ORDER BY place) AS seq_before,
            min(place) OVER (PARTITION BY run) AS begins
        FROM messages WHERE thread = $1
    ) AS m
    WHERE place <> due OR (run = run_before AND seq <= seq_before) OR (run <> run_before AND place <> begins)";
/// The run of a key must be a run of its thread.
const KEYS: &str = "SELECT k.scope, r.run IS NULL, r.thread <> k.thread
    FROM post_keys k LEFT JOIN runs r ON r.run = k.run
    WHERE k.thread = $1 AND (r.run IS NULL OR r.thread <> k.thread OR k.tenant <> $2) ORDER BY k.scope LIMIT $3";
const ANSWERS: &str = "SELECT a.scope, r.id FROM runs r JOIN remembered a ON a.run = r.run
    WHERE r.thread = $1 AND a.tenant <> $2 ORDER BY r.created_at, r.id LIMIT $3";

pub(super) async fn examine(
    context: &PostgresRunContext<'_>,
    place: &str,
    findings: &mut Findings,
) -> Result<(), ExamineError> {
    let (snapshot, thread, tenant) = (context.snapshot, context.thread_row, escape(context.tenant));
    let rows = snapshot.read(OUT_OF_ORDER, &[&thread]).await?;
    let count = rows.first().map(|row| row.try_get(0)).transpose()?.map_or(0, to_u64);
    if count > 0 {
        let what = format!("{count} messages do not stand in the order of the logs");
        findings.add(FindingCode::MessageDiffers, place, what);
    }
    for row in snapshot.read(KEYS, &[&thread, &tenant, &FAULT_COUNT_MAX]).await? {
        let scope = unescape(row.try_get(0)?);
        let (gone, elsewhere): (bool, Option<bool>) = (row.try_get(1)?, row.try_get(2)?);
        let (code, what) = if gone {
            (FindingCode::Orphan, "names a run that is not there")
        } else if elsewhere == Some(true) {
            (FindingCode::ThreadDiffers, "names a run of another thread")
        } else {
            (FindingCode::ThreadDiffers, "belongs to another tenant")
        };
        findings.add(code, place, format!("the key {scope:?} of a message {what}"));
    }
    for row in snapshot.read(ANSWERS, &[&thread, &tenant, &FAULT_COUNT_MAX]).await? {
        let (scope, run) = (unescape(row.try_get(0)?), unescape(row.try_get(1)?));
        let what = format!("the answer {scope:?} of run {run} belongs to another tenant");
        findings.add(FindingCode::DecisionDiffers, place, what);
    }
    Ok(())
}
