//! W3, the parked fleet: what held runs cost in memory and on disk, how soon a restarted process is ready, and how long
//! it takes to wake one of a million runs.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use machine::id::RunId;
use serde_json::Value;

use crate::command::RESTARTED;
use crate::effort::Effort;
use crate::environment::{Setting, many_threads, on};
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::pace::milliseconds;
use crate::progress::Progress;
use crate::report::{Figure, Sheet, Target, Unit};
use crate::restarted::{Report, Woken};
use crate::statistics::percentile;

/// Number of copies that are compared with their logs.
const CHECKED_COUNT: usize = 100;
const READY_MS_MAX: f64 = 2_000.0;
/// 150 MB.
const MEMORY_MIB_MAX: f64 = 143.0;
/// Largest fleet relative to the smallest: SQLite's cache of a file is bounded, and small files do not fill it.
const MEMORY_GROWTH_MAX: f64 = 1.25;
const BYTES_PER_RUN_MAX: f64 = 8_192.0;
/// In addition to the commits that it takes.
const WAKE_MS_MAX: f64 = 10.0;

/// What the operating system has cached of the file when the process starts.
#[derive(Clone, Copy)]
enum Remembered {
    /// As much as fits, because another process has just used the file.
    AsItIs,
    /// Nothing, as after a reboot.
    Nothing,
}

impl Remembered {
    const ALL: [Self; 2] = [Self::AsItIs, Self::Nothing];

    const fn name(self) -> &'static str {
        match self {
            Self::AsItIs => "warm",
            Self::Nothing => "cold",
        }
    }
}

/// One process on one fleet.
struct Restart {
    /// Milliseconds from just before the process started until it had looked for work.
    ready: f64,
    memory_when_ready: Option<u64>,
    report: Report,
}

/// `run_count_max` replaces the size of the largest fleet.
pub(crate) fn run(
    setting: &Setting,
    effort: Effort,
    run_count_max: Option<usize>,
    progress: &Progress,
) -> Result<Vec<Figure>, Failure> {
    let runtime = many_threads()?;
    let sizes = sizes(effort, run_count_max);
    let real_count = effort.real_run_count.min(sizes.iter().copied().min().unwrap_or(1));
    progress.phase(&format!("{real_count} real runs"));
    let folder = setting.folder.clone();
    let real = on(&runtime, async move { Fleet::held(&folder, effort, real_count).await })?;
    let mut sheet = Sheet::of("W3", setting.kind);
    let bytes = [real.bytes_per_run(&setting.folder)?];
    let title = format!("{real_count} runs as the engine held them, bytes of the file for a run");
    sheet.add_aimed(
        "real_bytes_per_run",
        &title,
        Unit::Bytes,
        &bytes,
        Some(Target::AtMost(BYTES_PER_RUN_MAX)),
    );
    let mut peaks = Vec::new();
    for size in sizes {
        progress.phase(&format!("a fleet of {size}"));
        let fleet = real.copied(&setting.folder, size)?;
        let sample = fleet.any(CHECKED_COUNT, 1)?;
        let fleet = on(&runtime, async move { fleet.check(&sample).await.map(|()| fleet) })?;
        let bytes = [fleet.bytes_per_run(&setting.folder)?];
        let title = format!("{size} runs, bytes of the file for a run");
        let target = Some(Target::AtMost(BYTES_PER_RUN_MAX));
        sheet.add_aimed(format!("bytes_per_run_n{size}"), &title, Unit::Bytes, &bytes, target);
        let chosen = fleet.any(2 * effort.woken_count, 2)?;
        let (some, others) = chosen.split_at(chosen.len() / 2);
        for (remembered, runs) in Remembered::ALL.into_iter().zip([some, others]) {
            progress.phase(&format!("a restart with {size} runs, {}", remembered.name()));
            if matches!(remembered, Remembered::Nothing) && !forget(&fleet.file()) {
                continue;
            }
            let restart = restart(&fleet.file(), runs)?;
            peaks.extend(restart.report.memory_peak.map(|bytes| (size, bytes as f64)));
            figures(&mut sheet, size, remembered, &restart);
        }
    }
    growth(&mut sheet, &peaks);
    Ok(sheet.into_figures())
}

fn sizes(effort: Effort, run_count_max: Option<usize>) -> Vec<usize> {
    let Some(largest) = run_count_max else { return effort.fleets.to_vec() };
    let smaller = effort.fleets.iter().copied().filter(|size| *size < largest);
    smaller.chain([largest]).collect()
}

/// Drops the operating system's cache of a file; false if that is not possible.
fn forget(file: &Path) -> bool {
    let mut words = vec!["count=0".into(), "oflag=nocache".into(), "conv=notrunc,fdatasync".into()];
    words.push(format!("of={}", file.display()));
    Command::new("dd").args(words).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn restart(file: &Path, runs: &[RunId]) -> Result<Restart, Failure> {
    let begin = Instant::now();
    let mut process = Command::new(env::current_exe()?)
        .arg(RESTARTED)
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let missing = || Failure::new("the restarted process printed nothing");
    let mut lines = BufReader::new(process.stdout.take().ok_or_else(missing)?).lines();
    let first = lines.next().ok_or_else(missing)??;
    let ready = milliseconds(begin.elapsed());
    let memory_when_ready = serde_json::from_str::<Value>(&first)?["memory"].as_u64();
    let mut ids = process.stdin.take().ok_or_else(missing)?;
    for run in runs {
        writeln!(ids, "{run}")?;
    }
    drop(ids);
    let report = lines.next().transpose()?.as_deref().and_then(Report::of_json);
    if !process.wait()?.success() {
        return Err(Failure::new("the process that was started again failed"));
    }
    let report = report.filter(|report| report.woken.len() == runs.len()).ok_or_else(missing)?;
    Ok(Restart { ready, memory_when_ready, report })
}

type WakeTime = fn(&Woken) -> f64;

fn figures(sheet: &mut Sheet, size: usize, remembered: Remembered, restart: &Restart) {
    let how = remembered.name();
    let suffix = format!("{how}_n{size}");
    let head = format!("{size} runs, {how}");
    let target = Some(Target::AtMost(READY_MS_MAX));
    let title = format!("{head}, start of the process → ready");
    sheet.add_aimed(format!("ready_ms_{suffix}"), &title, Unit::Milliseconds, &[restart.ready], target);
    let report = &restart.report;
    let memories = [
        ("memory_ready_mb", "memory when ready", restart.memory_when_ready),
        ("memory_after_mb", "memory after the decisions", report.memory_after),
        ("memory_peak_mb", "peak memory", report.memory_peak),
    ];
    for (metric, what, bytes) in memories {
        let mebibytes: Vec<f64> = bytes.map(|bytes| bytes as f64 / 1_048_576.0).into_iter().collect();
        let target = Some(Target::AtMost(MEMORY_MIB_MAX));
        let title = format!("{head}, {what}");
        sheet.add_aimed(format!("{metric}_{suffix}"), &title, Unit::Mebibytes, &mebibytes, target);
    }
    let bare = percentile(&report.bare_commits, 99).unwrap_or(f64::NAN);
    let title = format!("{head}, p99 of a bare commit");
    sheet.add(format!("bare_commit_p99_ms_{suffix}"), &title, Unit::Milliseconds, &[bare]);
    let commits: Vec<f64> = report.woken.iter().map(|woken| woken.commit_count as f64).collect();
    let title = format!("{head}, commits from the first decision to the end");
    sheet.add(format!("commits_to_end_{suffix}"), &title, Unit::Count, &commits);
    let commits = percentile(&commits, 50).unwrap_or(f64::NAN);
    let columns: [(&str, &str, f64, WakeTime); 2] = [
        ("wake_to_tool_start", "decision → tool started", 1.0, |woken| woken.to_tool_start),
        ("wake_to_end", "first decision → run ended", commits, |woken| woken.to_end),
    ];
    for (metric, what, commits, value) in columns {
        let times: Vec<f64> = report.woken.iter().map(value).collect();
        for percent in [50, 99] {
            let samples: Vec<f64> = percentile(&times, percent).into_iter().collect();
            let target = (percent == 99).then_some(Target::AtMost(commits * bare + WAKE_MS_MAX));
            let (metric, title) =
                (format!("{metric}_p{percent}_ms_{suffix}"), format!("{head}, {what}, p{percent}"));
            sheet.add_aimed(metric, &title, Unit::Milliseconds, &samples, target);
        }
    }
}

/// Whether a process needs more memory when the fleet has more runs that it does not hold.
fn growth(sheet: &mut Sheet, peaks: &[(usize, f64)]) {
    let most = |size: usize| {
        peaks.iter().filter(|(of, _)| *of == size).map(|(_, bytes)| *bytes).max_by(f64::total_cmp)
    };
    let (Some((small, _)), Some((large, _))) = (peaks.first(), peaks.last()) else { return };
    if small < large {
        let ratio: Vec<f64> =
            most(*large).zip(most(*small)).map(|(large, small)| large / small).into_iter().collect();
        let title = format!("peak memory with {large} runs / with {small}");
        let target = Some(Target::AtMost(MEMORY_GROWTH_MAX));
        sheet.add_aimed("memory_growth", &title, Unit::Ratio, &ratio, target);
    }
}
