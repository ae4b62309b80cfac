//! `http`, the server under load: the real program as another process, thousands of open streams, and tool rounds that
//! are posted at an even pace. Every stream is compared with the log afterwards, and any error fails the measurement.

pub(crate) mod costly;
pub(crate) mod costly_client;
pub(crate) mod front_ends;
mod load;
mod pool;
mod server;
mod stream;
mod wire;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::effort::Effort;
use crate::environment::{Setting, many_threads, on};
use crate::failure::Failure;
use crate::process;
use crate::progress::Progress;
use crate::report::{Figure, Sheet, Target, Unit};
use crate::statistics::{mean, percentile};

use load::Loaded;
use server::HttpServer;

/// The load put on the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) duration: Duration,
    /// Streams that are open all the time, each following a run.
    pub(crate) stream_count: usize,
    /// The number of these whose runs never pause.
    pub(crate) busy_count: usize,
    /// Tool rounds posted per second, whether the server keeps up or not.
    pub(crate) runs_per_second: u32,
}

impl Load {
    pub(crate) const FULL: Self = Self {
        duration: Duration::from_secs(60),
        stream_count: 2_000,
        busy_count: 200,
        runs_per_second: 300,
    };
    pub(crate) const QUICK: Self =
        Self { duration: Duration::from_secs(5), stream_count: 200, busy_count: 20, runs_per_second: 50 };
}

/// The server's memory at the end, relative to the beginning. It must not depend on how many runs there were.
const MEMORY_GROWTH_MAX: f64 = 1.2;
/// In addition to the streams: connections for posts, decisions and streams of tool rounds.
const HANDLES_BESIDE_STREAMS: u64 = 2_048;

pub(crate) fn run(
    setting: &Setting,
    effort: Effort,
    program: Option<&Path>,
    progress: &Progress,
) -> Result<Vec<Figure>, Failure> {
    let asked = effort.http;
    check_handles(asked)?;
    let program = program.map_or_else(beside_this_program, |path| Ok(path.to_owned()))?;
    let runtime = many_threads()?;
    let mut sheet = Sheet::of("http", setting.kind);
    progress.phase("the server starts");
    let server = HttpServer::start(&program, &setting.folder)?;
    progress.phase(&format!("{} streams, {} runs per second", asked.stream_count, asked.runs_per_second));
    let loaded = on(&runtime, load::run(server.site(), asked))?;
    server.stop()?;
    figures(&mut sheet, asked, &loaded);
    Ok(sheet.into_figures())
}

fn beside_this_program() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?.with_file_name("holdpoint");
    if program.is_file() {
        return Ok(program);
    }
    Err(Failure::new(format!(
        "there is no {}; build it with `cargo build --release -p holdpoint --features cli`, or name it with --program",
        program.display()
    )))
}

fn check_handles(asked: Load) -> Result<(), Failure> {
    let wanted = asked.stream_count as u64 + HANDLES_BESIDE_STREAMS;
    match process::open_files_max() {
        Some(most) if most < wanted => Err(Failure::new(format!(
            "a process may open {most} files, and {wanted} are needed; raise it with `ulimit -n {wanted}`"
        ))),
        Some(_) | None => Ok(()),
    }
}

fn figures(sheet: &mut Sheet, asked: Load, loaded: &Loaded) {
    let seconds = loaded.seconds;
    let done = loaded.rounds.len() as f64;
    let title = format!("tool rounds, {} posted per second", asked.runs_per_second);
    // The last posted rounds may end shortly after the measured time.
    let target = Some(Target::AtLeast(f64::from(asked.runs_per_second) * 0.98));
    sheet.add_aimed("runs_per_s", &title, Unit::PerSecond, &[done / seconds], target);
    let times = |pick: fn(&load::HttpRun) -> f64| loaded.rounds.iter().map(pick).collect::<Vec<f64>>();
    for (metric, title, samples) in [
        ("post_to_202", "post → 202", times(|round| round.accepted_ms)),
        ("post_to_completed", "post → run.completed on its stream", times(|round| round.completed_ms)),
        ("decision_to_tool_start", "decision → tool start on its stream", loaded.decided_ms.clone()),
    ] {
        for percent in [50, 99] {
            let value: Vec<f64> = percentile(&samples, percent).into_iter().collect();
            sheet.add(
                format!("{metric}_p{percent}_ms"),
                &format!("{title}, p{percent}"),
                Unit::Milliseconds,
                &value,
            );
        }
    }
    sheet.add("decisions", "decisions", Unit::Count, &[loaded.decided_ms.len() as f64]);
    // When a run ends, its stream is closed for a moment, until the next one is open.
    let target = Some(Target::AtLeast(asked.stream_count as f64 * 0.99));
    sheet.add_aimed("streams_open", "open streams, once a second", Unit::Count, &loaded.open_counts, target);
    let fewest = loaded.heard_in_each_second.iter().min().map(|count| *count as f64);
    let title = "streams that received something, in the quietest second";
    let target = Some(Target::AtLeast(asked.busy_count as f64));
    sheet.add_aimed("streams_told_min", title, Unit::Count, &fewest.into_iter().collect::<Vec<_>>(), target);
    let title = "streams compared with the log, byte for byte";
    sheet.add("streams_compared", title, Unit::Count, &[loaded.compared_count as f64]);
    costs(sheet, loaded);
}

/// Separately for the server and for the clients.
fn costs(sheet: &mut Sheet, loaded: &Loaded) {
    let seconds = loaded.seconds;
    let runs = loaded.rounds.len().max(1) as f64;
    if let Some(cpu) = loaded.server_cpu {
        let title = "the server, processors in use";
        sheet.add("server_processors_busy", title, Unit::Ratio, &[cpu.as_secs_f64() / seconds]);
        let title = "the server, processor time for each tool round, streams included";
        sheet.add("server_cpu_ms_per_run", title, Unit::Milliseconds, &[cpu.as_secs_f64() * 1_000.0 / runs]);
    }
    if let Some(cpu) = loaded.clients_cpu {
        let title = "the clients, processors in use";
        sheet.add("clients_processors_busy", title, Unit::Ratio, &[cpu.as_secs_f64() / seconds]);
    }
    let memory = &loaded.server_memory;
    let third = (memory.len() / 3).max(1);
    let (first, last) = (memory.iter().take(third), memory.iter().rev().take(third));
    let mean_of = |samples: Vec<f64>| mean(&samples).unwrap_or(f64::NAN);
    let (first, last) = (mean_of(first.copied().collect()), mean_of(last.copied().collect()));
    if memory.is_empty() {
        return;
    }
    sheet.add("server_rss_mb", "memory of the server", Unit::Mebibytes, memory);
    let title = "memory of the server, the last third of the time / the first";
    let target = Some(Target::AtMost(MEMORY_GROWTH_MAX));
    sheet.add_aimed("server_rss_growth", title, Unit::Ratio, &[last / first], target);
}
