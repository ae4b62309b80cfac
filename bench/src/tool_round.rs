//! W1, a tool round: a message, two parallel echo calls, their results, a text. Durable at every boundary.

use std::time::Instant;

use engine::Engine;
use machine::event::Fact;
use machine::termination::Termination;
use tokio::runtime::Runtime;

use crate::bare_machine::allocations;
use crate::bare_postgres;
use crate::baselines::Baselines;
use crate::commits::{Commits, TOOL_ROUND};
use crate::effort::Effort;
use crate::environment::{
    AskOnce, Setting, StoreKind, agent, echo, many_threads, on, one_thread, until, user_message,
};
use crate::failure::Failure;
use crate::pace::{Done, milliseconds, repeat};
use crate::progress::Progress;
use crate::report::{Figure, Sheet, Target, Unit};
use crate::statistics::percentile;

/// Warm-up runs before a repetition, for each lane; they do not count.
const WARM_UP_COUNT: usize = 4;
/// Runs whose allocations are counted.
const COUNTED_RUNS: usize = 64;

/// One run.
pub(crate) struct MeasuredRun {
    milliseconds: f64,
    pub(crate) commits: Commits,
}

impl MeasuredRun {
    pub(crate) const fn milliseconds(&self) -> f64 {
        self.milliseconds
    }
}

/// One repetition on a store of its own.
pub(crate) struct Repetition {
    pub(crate) done: Done<MeasuredRun>,
    bytes_at_rest_per_run: Option<f64>,
    /// Bytes of the database server's log.
    log_bytes_per_run: Option<f64>,
}

impl Repetition {
    fn times(&self) -> Vec<f64> {
        self.done.results.iter().map(|round| round.milliseconds).collect()
    }

    fn settled_apart(&self) -> u64 {
        self.done.results.iter().map(|round| round.commits.settled_apart()).sum()
    }
}

pub(crate) async fn one(engine: Engine) -> Result<MeasuredRun, Failure> {
    let begin = Instant::now();
    let (_, mut watched) = engine.stream(user_message()).await?;
    let mut commits = Commits::default();
    let ended = until(&mut watched, |committed| {
        commits.see(committed);
        matches!(committed.event.fact, Fact::RunEnded { .. })
    })
    .await?;
    let milliseconds = milliseconds(begin.elapsed());
    if !matches!(&ended.event.fact, Fact::RunEnded { termination: Termination::NaturalEnd, .. }) {
        return Err(Failure::new(format!("a run ended otherwise: {:?}", ended.event.fact)));
    }
    Ok(MeasuredRun { milliseconds, commits })
}

pub(crate) fn repetition(
    runtime: &Runtime,
    setting: &Setting,
    effort: Effort,
    at_once: usize,
) -> Result<Repetition, Failure> {
    let setting = setting.clone();
    on(runtime, async move {
        let empty = setting.open().await?;
        let idle = empty.start(tool_round()).await?;
        let bytes_empty = empty.close(idle).await?;
        let opened = setting.open().await?;
        let engine = opened.start(tool_round()).await?;
        let run = {
            let engine = engine.clone();
            move || one(engine.clone())
        };
        let warm_up_count = WARM_UP_COUNT * at_once;
        let warm_up = Effort { run_count_max: warm_up_count, run_count_min: warm_up_count, ..effort };
        let warm = repeat(&opened.store, opened.postmaster(), warm_up, at_once, run.clone()).await?;
        let log_before = opened.log_position().await?;
        let done = repeat(&opened.store, opened.postmaster(), effort, at_once, run.clone()).await?;
        let log = opened.log_position().await?.zip(log_before);
        drop(run);
        check(&done)?;
        let runs = warm.run_count() + done.run_count();
        let bytes = opened.close(engine).await?.zip(bytes_empty);
        let bytes_at_rest_per_run = bytes.map(|(bytes, empty)| bytes.saturating_sub(empty) as f64 / runs);
        let log_bytes_per_run = log.map(|(after, before)| (after - before) as f64 / done.run_count());
        Ok(Repetition { done, bytes_at_rest_per_run, log_bytes_per_run })
    })
}

fn tool_round() -> engine::agent::Agent {
    agent(AskOnce::new(&[("call_0", "echo"), ("call_1", "echo")])).tool(echo())
}

/// Checks that the store's commit count, the events and the promised number agree.
fn check(done: &Done<MeasuredRun>) -> Result<(), Failure> {
    let seen: u64 = done.results.iter().map(|round| round.commits.count).sum();
    let promised: u64 = done.results.iter().map(|round| TOOL_ROUND + round.commits.settled_apart()).sum();
    let counted = done.used.counts.commits;
    if counted == promised && seen == promised {
        return Ok(());
    }
    Err(Failure::new(format!("{promised} commits were promised, {counted} counted, {seen} seen in events")))
}

pub(crate) fn run(
    setting: &Setting,
    effort: Effort,
    concurrency: usize,
    progress: &Progress,
) -> Result<Vec<Figure>, Failure> {
    let runtime = many_threads()?;
    let mut sheet = Sheet::of("W1", setting.kind);
    let (mut alone, mut together, mut one_threaded) = (Vec::new(), Vec::new(), Vec::new());
    let (mut baselines, mut bare) = (Baselines::default(), Vec::new());
    for number in 1..=effort.repetition_count {
        let of = effort.repetition_count;
        progress.phase(&format!("one at a time, {number} of {of}"));
        alone.push(repetition(&runtime, setting, effort, 1)?);
        progress.phase(&format!("{concurrency} at once, {number} of {of}"));
        let many = repetition(&runtime, setting, effort, concurrency)?;
        let counts = many.done.used.counts;
        together.push(many);
        match setting.kind {
            StoreKind::Memory => {
                progress.phase(&format!("one at a time on one thread, {number} of {of}"));
                one_threaded.push(repetition(&one_thread()?, setting, effort, 1)?);
            }
            StoreKind::Sqlite => {
                progress.phase(&format!("the bare store and the bare disk, {number} of {of}"));
                let bytes = (counts.bytes / counts.commits.max(1)) as usize;
                baselines.measure(&runtime, setting, effort, concurrency, bytes)?;
            }
            StoreKind::Postgres => {
                progress.phase(&format!("the bare database, {number} of {of}"));
                let bytes = (counts.bytes / counts.commits.max(1)) as usize;
                let database = setting.database()?.clone();
                let appends = bare_postgres::appends(database, concurrency, bytes, effort.repetition);
                bare.push(on(&runtime, appends)?);
            }
        }
    }
    pace(&mut sheet, "seq", "one at a time", &alone, None);
    if setting.kind == StoreKind::Memory {
        time_alone(&mut sheet, "us_per_run_seq", "p50 of a run on many threads", &alone);
        let title = "p50 of a run on one thread";
        time_alone(&mut sheet, "us_per_run_one_thread", title, &one_threaded);
        progress.phase("allocations");
        let allocations = allocations_per_run(setting, effort)?;
        sheet.add("allocations_per_run", "allocations of a run", Unit::Allocations, &[allocations]);
    }
    let cpu_target = (setting.kind == StoreKind::Sqlite).then_some(Target::AtMost(1.0));
    pace(&mut sheet, &format!("c{concurrency}"), &format!("{concurrency} at once"), &together, cpu_target);
    let runs_per_second = column(&together, |repetition| Some(repetition.done.per_second()));
    match setting.kind {
        StoreKind::Memory => {}
        StoreKind::Sqlite => baselines.figures(&mut sheet, concurrency, &runs_per_second),
        StoreKind::Postgres => bare_postgres::figures(&mut sheet, concurrency, &bare, &runs_per_second),
    }
    costs(&mut sheet, "seq", "one at a time", &alone);
    costs(&mut sheet, &format!("c{concurrency}"), &format!("{concurrency} at once"), &together);
    sheet.add("peak_rss_mb", "peak memory of the process", Unit::Mebibytes, &setting.peak_memory());
    Ok(sheet.into_figures())
}

fn column(repetitions: &[Repetition], value: impl Fn(&Repetition) -> Option<f64>) -> Vec<f64> {
    repetitions.iter().filter_map(value).collect()
}

/// Runs per second, time per run and CPU time.
fn pace(
    sheet: &mut Sheet,
    suffix: &str,
    title: &str,
    repetitions: &[Repetition],
    cpu_target: Option<Target>,
) {
    let runs = column(repetitions, |repetition| Some(repetition.done.per_second()));
    sheet.add(format!("runs_per_s_{suffix}"), &format!("{title}, runs"), Unit::PerSecond, &runs);
    for percent in [50, 99] {
        let values = column(repetitions, |repetition| percentile(&repetition.times(), percent));
        let metric = format!("p{percent}_ms_{suffix}");
        sheet.add(metric, &format!("{title}, p{percent} of a run"), Unit::Milliseconds, &values);
    }
    let cpu = column(repetitions, |repetition| {
        repetition.done.used.cpu.map(|cpu| milliseconds(cpu) / repetition.done.run_count())
    });
    let busy = column(repetitions, |repetition| {
        repetition.done.used.cpu.map(|cpu| cpu.as_secs_f64() / repetition.done.seconds)
    });
    let metric = format!("processors_busy_{suffix}");
    sheet.add(metric, &format!("{title}, processors in use"), Unit::Ratio, &busy);
    let server_cpu = column(repetitions, |repetition| {
        repetition.done.used.server_cpu.map(|cpu| milliseconds(cpu) / repetition.done.run_count())
    });
    let metric = format!("server_cpu_ms_per_run_{suffix}");
    let server_title = format!("{title}, processor time of a run in the server");
    let title = format!("{title}, processor time of a run");
    sheet.add_aimed(format!("cpu_ms_per_run_{suffix}"), &title, Unit::Milliseconds, &cpu, cpu_target);
    sheet.add(metric, &server_title, Unit::Milliseconds, &server_cpu);
}

fn time_alone(sheet: &mut Sheet, metric: &str, title: &str, repetitions: &[Repetition]) {
    let times = column(repetitions, |repetition| Some(percentile(&repetition.times(), 50)? * 1_000.0));
    sheet.add_aimed(metric, title, Unit::Microseconds, &times, Some(Target::AtMost(60.0)));
}

/// Commits, syncs and bytes.
fn costs(sheet: &mut Sheet, suffix: &str, title: &str, repetitions: &[Repetition]) {
    let per_run = |total: fn(&Repetition) -> Option<f64>| {
        column(repetitions, |repetition| Some(total(repetition)? / repetition.done.run_count()))
    };
    let apart = per_run(|repetition| Some(repetition.settled_apart() as f64));
    let commits = per_run(|repetition| Some(repetition.done.used.counts.commits as f64));
    let together = per_run(|repetition| {
        Some(repetition.done.used.counts.commits.saturating_sub(repetition.settled_apart()) as f64)
    });
    sheet.add(format!("commits_per_run_{suffix}"), &format!("{title}, commits"), Unit::Count, &commits);
    let metric = format!("settled_apart_per_run_{suffix}");
    sheet.add(metric, &format!("{title}, results that settled apart"), Unit::Count, &apart);
    let metric = format!("commits_without_settled_apart_{suffix}");
    let target = Some(Target::Exactly(TOOL_ROUND as f64));
    sheet.add_aimed(metric, &format!("{title}, commits without these"), Unit::Count, &together, target);
    // A store in memory neither syncs nor counts bytes.
    if sheet.store() == StoreKind::Memory {
        return;
    }
    // A database server syncs by itself, and for several nodes together.
    if sheet.store() == StoreKind::Sqlite {
        let syncs = per_run(|repetition| Some(repetition.done.used.counts.syncs as f64));
        sheet.add(format!("syncs_per_run_{suffix}"), &format!("{title}, syncs"), Unit::Count, &syncs);
    }
    let bytes = per_run(|repetition| Some(repetition.done.used.counts.bytes as f64));
    let metric = format!("store_bytes_per_run_{suffix}");
    sheet.add(metric, &format!("{title}, bytes given to the store"), Unit::Bytes, &bytes);
    let at_rest = column(repetitions, |repetition| repetition.bytes_at_rest_per_run);
    let metric = format!("bytes_written_per_run_{suffix}");
    let (written, by, of) = if sheet.store() == StoreKind::Postgres {
        (
            column(repetitions, |repetition| repetition.log_bytes_per_run),
            "to the server's log",
            "tables and indexes",
        )
    } else {
        (per_run(|repetition| Some(repetition.done.used.bytes_written? as f64)), "by the process", "the file")
    };
    sheet.add(metric, &format!("{title}, bytes written {by}"), Unit::Bytes, &written);
    let metric = format!("bytes_at_rest_per_run_{suffix}");
    sheet.add(metric, &format!("{title}, bytes of {of} at rest"), Unit::Bytes, &at_rest);
}

/// Computed from the difference of two repetitions, so that opening the store does not count.
fn allocations_per_run(setting: &Setting, effort: Effort) -> Result<f64, Failure> {
    let runtime = one_thread()?;
    let counted = |run_count| {
        let effort = Effort { run_count_min: run_count, run_count_max: run_count, ..effort };
        let counting = allocations::on();
        let before = allocations::count();
        repetition(&runtime, setting, effort, 1)?;
        let count = allocations::count() - before;
        drop(counting);
        Ok::<f64, Failure>(count as f64)
    };
    let few = counted(COUNTED_RUNS)?;
    Ok((counted(2 * COUNTED_RUNS)? - few) / COUNTED_RUNS as f64)
}
