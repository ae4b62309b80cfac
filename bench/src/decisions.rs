//! Decisions on parked runs, alternating with bare transactions: what a decision costs in a database besides its
//! commits.

use crate::approval::{Entries, approvals, one};
use crate::bare_postgres::BareTable;
use crate::effort::Effort;
use crate::environment::{Setting, many_threads, on};
use crate::failure::Failure;
use crate::report::{Sheet, Target, Unit};
use crate::statistics::percentile;

/// Warm-up runs; they do not count.
const WARM_UP_COUNT: usize = 10;
/// A decision may be accepted in one commit, and its tool may start after another.
const COMMITS: f64 = 2.0;
/// In addition to these commits.
const START_MS_MAX: f64 = 4.0;

/// In milliseconds.
pub(crate) struct InTurns {
    /// From a decision on a parked run until the body of its tool is entered.
    decisions: Vec<f64>,
    /// The same number of bare transactions of the same size, alternating with the decisions.
    bare_commits: Vec<f64>,
}

pub(crate) fn measure(setting: &Setting, effort: Effort) -> Result<InTurns, Failure> {
    let setting = setting.clone();
    on(&many_threads()?, async move {
        let mut opened = setting.open().await?;
        let entries = Entries::of(&opened.store);
        let notes = opened.recording();
        let engine = opened.start(approvals(&entries)).await?;
        for _ in 0..WARM_UP_COUNT {
            one(engine.clone(), entries.clone(), Some(notes.clone())).await?;
        }
        let counts = opened.store.metrics();
        let table = BareTable::make(setting.database()?).await?;
        let bare = table.client((counts.bytes / counts.commits.max(1)) as usize).await?;
        let mut turns = InTurns { decisions: Vec::new(), bare_commits: Vec::new() };
        for _ in 0..effort.woken_count {
            let run = one(engine.clone(), entries.clone(), Some(notes.clone())).await?;
            for decided in run.decisions {
                turns.decisions.push(decided.to_tool_start);
                turns.bare_commits.push(bare.commit().await?);
            }
        }
        drop((bare, entries));
        table.remove().await?;
        opened.close(engine).await?;
        Ok(turns)
    })
}

pub(crate) fn figures(sheet: &mut Sheet, turns: &InTurns) {
    let bare = percentile(&turns.bare_commits, 99).unwrap_or(f64::NAN);
    let halves: Vec<f64> = percentile(&turns.bare_commits, 50).into_iter().collect();
    let title = "p50 of a bare transaction, measured between the decisions";
    sheet.add("bare_commit_p50_ms", title, Unit::Milliseconds, &halves);
    let title = "p99 of a bare transaction, measured between the decisions";
    sheet.add("bare_commit_p99_ms", title, Unit::Milliseconds, &[bare]);
    for percent in [50, 99] {
        let samples: Vec<f64> = percentile(&turns.decisions, percent).into_iter().collect();
        let target = (percent == 99).then_some(Target::AtMost(COMMITS * bare + START_MS_MAX));
        let title = format!("parked, in turns with these, decision → tool started, p{percent}");
        let metric = format!("decision_to_tool_start_p{percent}_ms");
        sheet.add_aimed(metric, &title, Unit::Milliseconds, &samples, target);
    }
}
