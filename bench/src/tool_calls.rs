//! Calls of an HTTP tool: calls per second, time per call, and number of connections.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::Engine;
use engine::agent::Agent;
use engine::store::BoxFuture;
use engine::tool::{Approval, Outcome, Tool, ToolDefinition, ToolRequest};
use tokio::runtime::Runtime;
use tools::http::{HttpSettings, HttpTool};

use crate::effort::Effort;
use crate::environment::{AskOnce, Setting, StoreKind, agent, many_threads, on};
use crate::failure::Failure;
use crate::pace::{milliseconds, repeat};
use crate::progress::Progress;
use crate::report::{Figure, Sheet, Target, Unit};
use crate::statistics::percentile;
use crate::tool_round;
use crate::tool_server::ToolServer;

/// The calls of one model answer.
const CALLS: [(&str, &str); 8] = [
    ("call_0", "remote"),
    ("call_1", "remote"),
    ("call_2", "remote"),
    ("call_3", "remote"),
    ("call_4", "remote"),
    ("call_5", "remote"),
    ("call_6", "remote"),
    ("call_7", "remote"),
];
const RUNS_AT_ONCE: usize = 8;
/// Warm-up runs for each of the concurrent runs; they do not count.
const WARM_UP_COUNT: usize = 4;
/// For the store that writes nothing to disk, with the tool's process and everything else on the same machine.
const READS_PER_S_MIN: f64 = 3_000.0;
const CALLS_AT_ONCE: usize = RUNS_AT_ONCE * CALLS.len();

/// One repetition on a store and with a tool's process of its own.
struct CallRepetition {
    calls: f64,
    seconds: f64,
    /// From sending a request to having its answer, in milliseconds.
    exchanges: Vec<f64>,
    run_times: Vec<f64>,
    commits: f64,
    cpu: Option<Duration>,
    tool_cpu: Option<Duration>,
    connections: f64,
}

pub(crate) fn run(setting: &Setting, effort: Effort, progress: &Progress) -> Result<Vec<Figure>, Failure> {
    let runtime = many_threads()?;
    let mut repetitions = Vec::new();
    for number in 1..=effort.repetition_count {
        progress.phase(&format!("{CALLS_AT_ONCE} calls at once, {number} of {}", effort.repetition_count));
        repetitions.push(repetition(&runtime, setting, effort)?);
    }
    let mut sheet = Sheet::of("tools", setting.kind);
    figures(&mut sheet, &repetitions);
    Ok(sheet.into_figures())
}

fn repetition(runtime: &Runtime, setting: &Setting, effort: Effort) -> Result<CallRepetition, Failure> {
    let setting = setting.clone();
    on(runtime, async move {
        let mut server = ToolServer::start()?;
        let opened = setting.open().await?;
        let exchanges: Exchanges = Arc::default();
        let engine = opened.start(asking(setting.kind, &server, &exchanges)?).await?;
        let warm_up_count = WARM_UP_COUNT * RUNS_AT_ONCE;
        let warm_up = Effort { run_count_max: warm_up_count, run_count_min: warm_up_count, ..effort };
        let run = {
            let engine: Engine = engine.clone();
            move || tool_round::one(engine.clone())
        };
        repeat(&opened.store, opened.postmaster(), warm_up, RUNS_AT_ONCE, run.clone()).await?;
        let before = server.seen()?;
        lock(&exchanges).clear();
        let done = repeat(&opened.store, opened.postmaster(), effort, RUNS_AT_ONCE, run.clone()).await?;
        let after = server.seen()?;
        drop(run);
        let (runs, calls) = (done.results.len(), (after.requests - before.requests) as f64);
        if after.requests - before.requests != (runs * CALLS.len()) as u64 {
            return Err(Failure::new(format!("{runs} runs, and {calls} calls at the tool")));
        }
        opened.close(engine).await?;
        let exchanges = std::mem::take(&mut *lock(&exchanges));
        Ok(CallRepetition {
            calls,
            seconds: done.seconds,
            exchanges,
            run_times: done.results.iter().map(tool_round::MeasuredRun::milliseconds).collect(),
            commits: done.used.counts.commits as f64,
            cpu: done.used.cpu,
            tool_cpu: after.cpu.zip(before.cpu).map(|(after, before)| after.saturating_sub(before)),
            connections: after.connections as f64,
        })
    })
}

fn figures(sheet: &mut Sheet, repetitions: &[CallRepetition]) {
    let column = |value: fn(&CallRepetition) -> Option<f64>| -> Vec<f64> {
        repetitions.iter().filter_map(value).collect()
    };
    let writes = sheet.store() != StoreKind::Memory;
    let what = if writes { "that write, intent committed" } else { "that read" };
    let target = (!writes).then_some(Target::AtLeast(READS_PER_S_MIN));
    let rates = column(|repetition| Some(repetition.calls / repetition.seconds));
    sheet.add_aimed("calls_per_s", &format!("calls {what}"), Unit::PerSecond, &rates, target);
    for (percent, exchange, whole) in [
        (
            50,
            column(|repetition| percentile(&repetition.exchanges, 50)),
            column(|repetition| percentile(&repetition.run_times, 50)),
        ),
        (
            99,
            column(|repetition| percentile(&repetition.exchanges, 99)),
            column(|repetition| percentile(&repetition.run_times, 99)),
        ),
    ] {
        let title = format!("request → answer of a call, p{percent}");
        sheet.add(format!("exchange_p{percent}_ms"), &title, Unit::Milliseconds, &exchange);
        let title = format!("a run of {} parallel calls, p{percent}", CALLS.len());
        sheet.add(format!("run_of_calls_p{percent}_ms"), &title, Unit::Milliseconds, &whole);
    }
    let per_call = |time: Option<Duration>, calls: f64| Some(milliseconds(time?) * 1_000.0 / calls);
    let cpu: Vec<f64> =
        repetitions.iter().filter_map(|repetition| per_call(repetition.cpu, repetition.calls)).collect();
    sheet.add("cpu_us_per_call", "processor time of a call", Unit::Microseconds, &cpu);
    let cpu: Vec<f64> =
        repetitions.iter().filter_map(|repetition| per_call(repetition.tool_cpu, repetition.calls)).collect();
    sheet.add("tool_cpu_us_per_call", "the same, of the tool's process", Unit::Microseconds, &cpu);
    let commits = column(|repetition| Some(repetition.commits / repetition.calls));
    sheet.add("commits_per_call", "commits for a call", Unit::Count, &commits);
    let connections = column(|repetition| Some(repetition.connections));
    let title = "connections that the tool's process accepted, in all";
    sheet.add("connections", title, Unit::Count, &connections);
}

fn asking(kind: StoreKind, server: &ToolServer, exchanges: &Exchanges) -> Result<Agent, Failure> {
    let definition = ToolDefinition::new("remote", "Does something elsewhere");
    let definition = match kind {
        StoreKind::Memory => definition.read(),
        // No approval is needed, because the call itself is what is measured.
        StoreKind::Sqlite | StoreKind::Postgres => definition.approval(Approval::Never),
    };
    let http = HttpTool::new(definition, &HttpSettings::at(&server.url()))?;
    Ok(agent(AskOnce::new(&CALLS)).tool(TimedTool { http, exchanges: exchanges.clone() }))
}

/// Milliseconds, in no particular order.
type Exchanges = Arc<Mutex<Vec<f64>>>;

fn lock(exchanges: &Exchanges) -> std::sync::MutexGuard<'_, Vec<f64>> {
    exchanges.lock().unwrap_or_else(PoisonError::into_inner)
}

struct TimedTool {
    http: HttpTool,
    exchanges: Exchanges,
}

impl Tool for TimedTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        self.http.definition()
    }

    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let begin = Instant::now();
            let outcome = self.http.call(request).await;
            lock(&self.exchanges).push(milliseconds(begin.elapsed()));
            outcome
        })
    }
}
