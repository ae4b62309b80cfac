//! W3 in a database: what three idle nodes cost while runs are held, and how long it takes to wake one of these
//! runs.

use std::env;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use machine::id::RunId;
use serde_json::Value;

use crate::command::NODE;
use crate::database::Schema;
use crate::effort::Effort;
use crate::environment::{Setting, many_threads, on};
use crate::failure::Failure;
use crate::fleet_in_postgres::FleetInPostgres;
use crate::pace::milliseconds;
use crate::postmaster::Postmaster;
use crate::process;
use crate::progress::Progress;
use crate::report::{Figure, Sheet, Target, Unit};
use crate::restarted::{Report, Woken};
use crate::statistics::percentile;

const NODE_COUNT: usize = 3;
/// Number of copies that are compared with their logs.
const CHECKED_COUNT: usize = 100;
/// Percent of one CPU, used by all processes of the server together.
const IDLE_PERCENT_MAX: f64 = 1.0;

/// A process with an engine on the fleet.
struct Node {
    process: Child,
    said: Lines<BufReader<ChildStdout>>,
    /// Milliseconds from just before the process started until it had looked for work.
    ready: f64,
    memory_when_ready: Option<u64>,
}

/// In percent of one CPU.
struct Idle {
    server: Option<f64>,
    nodes: Option<f64>,
}

/// `run_count_max` replaces the size of the largest fleet.
pub(crate) fn run(
    setting: &Setting,
    effort: Effort,
    run_count_max: Option<usize>,
    progress: &Progress,
) -> Result<Vec<Figure>, Failure> {
    let runtime = many_threads()?;
    let size = run_count_max.or(effort.fleets.iter().copied().max()).unwrap_or(1);
    let real_count = effort.real_run_count.min(size);
    let mut sheet = Sheet::of("W3", setting.kind);
    progress.phase(&format!("{real_count} real runs"));
    let database = setting.database()?.clone();
    let postmaster = database.postmaster;
    let (real, bytes) = on(&runtime, async move {
        let real = FleetInPostgres::held(&database, effort, real_count).await?;
        let bytes = real.bytes_per_run().await?;
        Ok((real, bytes))
    })?;
    let title = format!("{real_count} runs as the engine held them, bytes of tables and indexes for a run");
    sheet.add("real_table_bytes_per_run", &title, Unit::Bytes, &[bytes]);
    progress.phase(&format!("a fleet of {size}"));
    let (fleet, bytes, chosen) = on(&runtime, async move {
        let fleet = real.copied(size).await?;
        real.schema.remove().await?;
        fleet.check(&fleet.any(CHECKED_COUNT, 1).await?).await?;
        let chosen = fleet.any(effort.woken_count, 2).await?;
        let bytes = fleet.bytes_per_run().await?;
        Ok((fleet, bytes, chosen))
    })?;
    let title = format!("{size} runs, bytes of tables and indexes for a run");
    sheet.add(format!("table_bytes_per_run_n{size}"), &title, Unit::Bytes, &[bytes]);
    progress.phase(&format!("{NODE_COUNT} nodes with {size} runs"));
    let nodes = (0..NODE_COUNT).map(|_| Node::start(&fleet.schema)).collect::<Result<Vec<_>, _>>()?;
    progress.phase(&format!("{NODE_COUNT} idle nodes with {size} runs"));
    let numbers: Vec<u32> = nodes.iter().map(|node| node.process.id()).collect();
    let idle = on(&runtime, async move { idle(postmaster, numbers, effort.idle).await })?;
    let ready: Vec<f64> = nodes.iter().map(|node| node.ready).collect();
    let memory: Vec<f64> = nodes.iter().filter_map(|node| mebibytes(node.memory_when_ready)).collect();
    progress.phase(&format!("decisions on {} of {size} runs", chosen.len()));
    let shares = chosen.chunks(chosen.len().div_ceil(NODE_COUNT));
    let reports =
        nodes.into_iter().zip(shares).map(|(node, runs)| node.wake(runs)).collect::<Result<Vec<_>, _>>()?;
    of_nodes(&mut sheet, size, &ready, &memory, &idle);
    of_wakes(&mut sheet, size, &reports);
    on(&runtime, async move { fleet.schema.remove().await })?;
    Ok(sheet.into_figures())
}

impl Node {
    /// Returns when the node is ready.
    fn start(schema: &Schema) -> Result<Self, Failure> {
        let begin = Instant::now();
        let mut process = Command::new(env::current_exe()?)
            .args([NODE, &schema.database.address, &schema.name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = BufReader::new(process.stdout.take().ok_or_else(silent)?).lines();
        let first = said.next().ok_or_else(silent)??;
        let ready = milliseconds(begin.elapsed());
        let memory_when_ready = serde_json::from_str::<Value>(&first)?["memory"].as_u64();
        Ok(Self { process, said, ready, memory_when_ready })
    }

    /// Wakes these runs one after the other. The node exits afterwards.
    fn wake(mut self, runs: &[RunId]) -> Result<Report, Failure> {
        let mut ids = self.process.stdin.take().ok_or_else(silent)?;
        for run in runs {
            writeln!(ids, "{run}")?;
        }
        drop(ids);
        let report = self.said.next().transpose()?.as_deref().and_then(Report::of_json);
        if !self.process.wait()?.success() {
            return Err(Failure::new("a node failed"));
        }
        report.filter(|report| report.woken.len() == runs.len()).ok_or_else(silent)
    }
}

fn silent() -> Failure {
    Failure::new("a node printed nothing")
}

/// CPU used by the server and the idle nodes during this time.
async fn idle(postmaster: Option<Postmaster>, nodes: Vec<u32>, time: Duration) -> Result<Idle, Failure> {
    let used = || {
        let of_nodes: Option<Duration> = nodes.iter().map(|node| Some(process::times_of(*node)?.all())).sum();
        (postmaster.and_then(Postmaster::cpu_time), of_nodes)
    };
    let (server_before, nodes_before) = used();
    let begin = Instant::now();
    tokio::time::sleep(time).await;
    let (server_after, nodes_after) = used();
    let seconds = begin.elapsed().as_secs_f64();
    let percent = |after: Option<Duration>, before: Option<Duration>| {
        Some(after?.saturating_sub(before?).as_secs_f64() / seconds * 100.0)
    };
    Ok(Idle { server: percent(server_after, server_before), nodes: percent(nodes_after, nodes_before) })
}

fn mebibytes(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64 / 1_048_576.0)
}

fn of_nodes(sheet: &mut Sheet, size: usize, ready: &[f64], memory: &[f64], idle: &Idle) {
    let suffix = format!("nodes{NODE_COUNT}_n{size}");
    let head = format!("{size} runs, {NODE_COUNT} nodes");
    let title = format!("{head}, start of a process → ready");
    sheet.add(format!("ready_ms_{suffix}"), &title, Unit::Milliseconds, ready);
    let title = format!("{head}, memory of a node when ready");
    sheet.add(format!("memory_ready_mb_{suffix}"), &title, Unit::Mebibytes, memory);
    let target = Some(Target::AtMost(IDLE_PERCENT_MAX));
    let title = format!("{head}, idle, the server's share of one processor");
    let server: Vec<f64> = idle.server.into_iter().collect();
    sheet.add_aimed(format!("idle_server_percent_{suffix}"), &title, Unit::Percent, &server, target);
    let title = format!("{head}, idle, the nodes' share of one processor");
    let nodes: Vec<f64> = idle.nodes.into_iter().collect();
    sheet.add(format!("idle_nodes_percent_{suffix}"), &title, Unit::Percent, &nodes);
}

type NodeWakeTime = fn(&Woken) -> f64;

fn of_wakes(sheet: &mut Sheet, size: usize, reports: &[Report]) {
    let suffix = format!("nodes{NODE_COUNT}_n{size}");
    let head = format!("{size} runs, {NODE_COUNT} nodes");
    let memory: Vec<f64> = reports.iter().filter_map(|report| mebibytes(report.memory_peak)).collect();
    let title = format!("{head}, peak memory of a node");
    sheet.add(format!("memory_peak_mb_{suffix}"), &title, Unit::Mebibytes, &memory);
    let bare: Vec<f64> = reports.iter().flat_map(|report| report.bare_commits.clone()).collect();
    let woken: Vec<&Woken> = reports.iter().flat_map(|report| &report.woken).collect();
    let commits: Vec<f64> = woken.iter().map(|woken| woken.commit_count as f64).collect();
    let title = format!("{head}, commits from the first decision to the end");
    sheet.add(format!("commits_to_end_{suffix}"), &title, Unit::Count, &commits);
    let columns: [(&str, &str, NodeWakeTime); 2] = [
        ("wake_to_tool_start", "decision → tool started", |woken| woken.to_tool_start),
        ("wake_to_end", "first decision → run ended", |woken| woken.to_end),
    ];
    for percent in [50, 99] {
        let samples: Vec<f64> = percentile(&bare, percent).into_iter().collect();
        let title = format!("{head}, p{percent} of a bare transaction");
        sheet.add(format!("bare_commit_p{percent}_ms_{suffix}"), &title, Unit::Milliseconds, &samples);
        for (metric, what, value) in columns {
            let times: Vec<f64> = woken.iter().map(|woken| value(woken)).collect();
            let samples: Vec<f64> = percentile(&times, percent).into_iter().collect();
            let (metric, title) =
                (format!("{metric}_p{percent}_ms_{suffix}"), format!("{head}, {what}, p{percent}"));
            sheet.add(metric, &title, Unit::Milliseconds, &samples);
        }
    }
}
