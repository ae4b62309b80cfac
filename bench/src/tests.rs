//! Runs every workload once with the least effort, on each store. Checks exact values; times only have to exist.

use std::env;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::commits::TOOL_ROUND;
use crate::database::Database;
use crate::effort::Effort;
use crate::environment::{Setting, StoreKind, many_threads, on};
use crate::long_run::{Stay, long_run};
use crate::progress::Progress;
use crate::report::{Figure, Form, render};
use crate::stream::{Pace, streams};
use crate::subscribers::watched_run;
use crate::{approval, long_run, stream, subscribers, tool_round};

const AT_ONCE: usize = 8;

/// One server for all tests; it ends with the process.
fn database() -> Arc<Database> {
    static DATABASE: OnceLock<Arc<Database>> = OnceLock::new();
    let open =
        || on(&many_threads().unwrap(), async { Database::open(None, &env::temp_dir()).await }).unwrap();
    DATABASE.get_or_init(open).clone()
}

fn settings() -> [Setting; 3] {
    StoreKind::ALL.map(|kind| {
        let database = (kind == StoreKind::Postgres).then(database);
        Setting { kind, folder: env::temp_dir(), database, is_first: true }
    })
}

fn value(figures: &[Figure], metric: &str) -> f64 {
    let figure = figures.iter().find(|figure| figure.metric == metric);
    figure.unwrap_or_else(|| panic!("{metric} is not measured")).value.median
}

#[test]
fn a_tool_round_takes_four_commits_and_one_for_each_result_that_settled_apart() {
    let runtime = many_threads().unwrap();
    for setting in settings() {
        for at_once in [1, AT_ONCE] {
            let done = tool_round::repetition(&runtime, &setting, Effort::TINY, at_once).unwrap().done;
            assert_eq!(done.results.len(), Effort::TINY.run_count_max);
            let apart: u64 = done.results.iter().map(|round| round.commits.settled_apart()).sum();
            let promised = TOOL_ROUND * done.results.len() as u64 + apart;
            assert_eq!(done.used.counts.commits, promised, "{:?}, {at_once} at once", setting.kind);
            for round in &done.results {
                assert_eq!(round.commits.count, TOOL_ROUND + round.commits.settled_apart());
            }
        }
    }
}

#[test]
fn a_decision_on_a_parked_run_starts_its_tool_with_one_commit() {
    for setting in settings() {
        let done = approval::repetition(&setting, Effort::TINY, 1, approval::Reader::Slow).unwrap();
        let counted: Vec<u64> =
            done.results.iter().flat_map(|run| run.decisions).map(|decided| decided.commit_count).collect();
        assert_eq!(counted, vec![1; 2 * Effort::TINY.run_count_max], "{:?}", setting.kind);
    }
}

#[test]
fn everybody_hears_the_whole_text_however_many_items_it_comes_as() {
    let runtime = many_threads().unwrap();
    for setting in settings() {
        for pace in [Pace::Burst, Pace::Yielding] {
            for listener_count in [1, 10] {
                // An incomplete text is an error.
                let streamed = on(&runtime, streams(setting.clone(), pace, listener_count, 2)).unwrap();
                assert_eq!(streamed.len(), 2);
                for one in streamed {
                    assert_eq!(one.heard.len(), listener_count as usize);
                    assert!(one.heard.iter().all(|heard| (1..=1_000).contains(&heard.item_count)));
                }
            }
        }
    }
}

#[test]
fn a_long_run_has_its_steps_kept_or_parked() {
    let runtime = many_threads().unwrap();
    for setting in settings() {
        for stay in Stay::ALL {
            let run = on(&runtime, long_run(setting.clone(), 12, stay)).unwrap();
            assert_eq!(run.steps.len(), 12);
            let loaded = run.steps.iter().filter(|step| step.load_milliseconds.is_some()).count();
            assert_eq!(loaded, if stay == Stay::Parked { 12 } else { 0 }, "{stay:?}, {:?}", setting.kind);
        }
    }
}

#[test]
fn every_reader_of_a_watched_run_sees_every_event() {
    let runtime = many_threads().unwrap();
    for setting in settings() {
        // A reader that misses an event is an error.
        assert!(on(&runtime, watched_run(setting, 3, 20)).unwrap() > 0.0);
    }
}

#[test]
fn every_workload_gives_lines_that_can_be_read() {
    let progress = Progress::silent();
    for setting in settings() {
        let effort = Effort::TINY;
        let mut figures = tool_round::run(&setting, effort, AT_ONCE, &progress).unwrap();
        figures.extend(approval::run(&setting, effort, AT_ONCE, &progress).unwrap());
        figures.extend(long_run::run(&setting, effort, &progress).unwrap());
        figures.extend(stream::run(&setting, effort, &progress).unwrap());
        figures.extend(subscribers::run(&setting, effort, &progress).unwrap());
        assert!((value(&figures, "commits_without_settled_apart_seq") - 4.0).abs() < f64::EPSILON);
        assert!((value(&figures, "commits_decision_to_tool_start") - 1.0).abs() < f64::EPSILON);
        let lines = render(&figures, Form::JsonLines);
        assert_eq!(lines.lines().count(), figures.len());
        for line in lines.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["peer"], "holdpoint");
            assert_eq!(line["store"], setting.kind.name());
            assert!(line["value"].is_number() && line["metric"].is_string(), "{line}");
            assert!(line["version"].is_string() && line["durability"].is_string(), "{line}");
        }
        let mut named: Vec<(&str, &str)> =
            figures.iter().map(|figure| (figure.workload, figure.metric.as_str())).collect();
        named.sort_unstable();
        let count = named.len();
        named.dedup();
        assert_eq!(named.len(), count, "a metric has one value");
    }
}
