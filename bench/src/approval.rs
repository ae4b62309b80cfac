//! W2, an approval: three calls, of which A and B are held and C is not; then A is decided, then B.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use engine::Engine;
use engine::agent::Agent;
use engine::deciding::Decide;
use engine::feed::Subscription;
use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::store::{BoxFuture, Store};
use engine::tool::{FunctionTool, Tool, ToolDefinition, ToolRequest};
use machine::event::Fact;
use machine::id::{CallId, RunId};
use machine::inbox::Verdict;
use serde_json::json;

use crate::decisions;
use crate::effort::Effort;
use crate::environment::{AskOnce, Setting, StoreKind, agent, echo, many_threads, on, until, user_message};
use crate::failure::Failure;
use crate::pace::{Done, milliseconds, repeat};
use crate::progress::Progress;
use crate::recording_store::StoreRecords;
use crate::report::{Figure, Sheet, Target, Unit};
use crate::statistics::percentile;
use crate::tool_process;

/// Warm-up runs before a repetition, for each lane; they do not count.
const WARM_UP_COUNT: usize = 4;

/// Times of one run in milliseconds, and the commits of its decisions.
pub(crate) struct Approval {
    start_to_held: f64,
    /// The decisions on A and on B.
    pub(crate) decisions: [Decided; 2],
    /// From the decision on B until the model is called again.
    to_model: f64,
    /// From the decision on B until the run has ended.
    to_end: f64,
}

#[derive(Clone, Copy)]
pub(crate) struct Decided {
    /// Until the tool's body is entered.
    pub(crate) to_tool_start: f64,
    /// Until the verdict is returned.
    to_verdict: f64,
    /// Commits counted by the store until the tool's body is entered.
    pub(crate) commit_count: u64,
}

/// When the model or a tool was entered, and the store's commit count at that time.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) at: Instant,
    commit_count: u64,
}

/// A tool call has its id; the model has none.
type Entered = (RunId, Option<CallId>);

/// When the model and each tool call were entered.
#[derive(Clone)]
pub(crate) struct Entries {
    store: Arc<dyn Store>,
    entries: Arc<Mutex<BTreeMap<Entered, Entry>>>,
}

impl Entries {
    pub(crate) fn of(store: &Arc<dyn Store>) -> Self {
        Self { store: store.clone(), entries: Arc::default() }
    }

    pub(crate) fn enter(&self, run: &RunId, call: Option<&CallId>, at: Instant) {
        let entry = Entry { at, commit_count: self.store.metrics().commits };
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.insert((run.clone(), call.cloned()), entry);
    }

    pub(crate) fn take(&self, run: &RunId, call: Option<&CallId>) -> Result<Entry, Failure> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries
            .remove(&(run.clone(), call.cloned()))
            .ok_or_else(|| Failure::new(format!("run {run} never entered {call:?}")))
    }
}

/// Records when the model is called again.
struct TimedModel {
    model: AskOnce,
    entries: Entries,
}

impl Model for TimedModel {
    fn answers_at_once(&self) -> bool {
        true
    }

    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        if request.ordinal == 2 {
            self.entries.enter(&request.run, None, Instant::now());
        }
        self.model.answer(request, deltas)
    }
}

fn transfer(entries: &Entries) -> impl Tool + use<> {
    let entries = entries.clone();
    let definition = ToolDefinition::new("transfer", "Moves money");
    FunctionTool::new(definition, move |request: ToolRequest| {
        entries.enter(&request.run, Some(&request.call), Instant::now());
        std::future::ready(json!("sent"))
    })
}

pub(crate) fn approvals(entries: &Entries) -> Agent {
    approvals_by(entries, transfer(entries))
}

/// Like `approvals`, but with another tool for the held calls.
pub(crate) fn approvals_by(entries: &Entries, transfer: impl Tool) -> Agent {
    let model = AskOnce::new(&[("a", "transfer"), ("b", "transfer"), ("c", "echo")]);
    agent(TimedModel { model, entries: entries.clone() }).tool(transfer).tool(echo())
}

/// How fast the approver decides.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Reader {
    /// Reads the request first; by then the run has left memory.
    Slow,
    Instant,
}

/// With notes, each decision waits until the run has left memory.
pub(crate) async fn one(
    engine: Engine,
    entries: Entries,
    notes: Option<Arc<StoreRecords>>,
) -> Result<Approval, Failure> {
    let begin = Instant::now();
    let (posted, mut watched) = engine.stream(user_message()).await?;
    held(&mut watched).await?;
    let start_to_held = milliseconds(begin.elapsed());
    let (a, _) = decide(&engine, &entries, &posted.run, "a", notes.as_deref()).await?;
    held(&mut watched).await?;
    let (b, asked) = decide(&engine, &entries, &posted.run, "b", notes.as_deref()).await?;
    until(&mut watched, |committed| matches!(committed.event.fact, Fact::RunEnded { .. })).await?;
    let to_end = milliseconds(asked.elapsed());
    let again = entries.take(&posted.run, None)?;
    let to_model = milliseconds(again.at.duration_since(asked));
    let decisions = [a.entered(&entries, &posted.run)?, b.entered(&entries, &posted.run)?];
    Ok(Approval { start_to_held, decisions, to_model, to_end })
}

async fn held(watched: &mut Subscription) -> Result<(), Failure> {
    until(watched, |committed| matches!(committed.event.fact, Fact::RunWaiting { .. })).await?;
    Ok(())
}

/// A pending decision: the tool may be entered after the verdict has been returned.
struct Deciding {
    call: CallId,
    asked: Instant,
    to_verdict: f64,
    commit_count_before: u64,
}

impl Deciding {
    fn entered(self, entries: &Entries, run: &RunId) -> Result<Decided, Failure> {
        let entry = entries.take(run, Some(&self.call))?;
        Ok(Decided {
            to_tool_start: milliseconds(entry.at.duration_since(self.asked)),
            to_verdict: self.to_verdict,
            commit_count: entry.commit_count - self.commit_count_before,
        })
    }
}

async fn decide(
    engine: &Engine,
    entries: &Entries,
    run: &RunId,
    call: &str,
    notes: Option<&StoreRecords>,
) -> Result<(Deciding, Instant), Failure> {
    if let Some(notes) = notes {
        notes.parked(engine).await?;
    }
    let call = CallId::from(call);
    let decision = Decide::approve(run, &call, "ann");
    let commit_count_before = entries.store.metrics().commits;
    let asked = Instant::now();
    let verdict = engine.decide(decision).await?;
    let to_verdict = milliseconds(asked.elapsed());
    if verdict != Verdict::Accepted {
        return Err(Failure::new(format!("the decision on {call} is {verdict}")));
    }
    Ok((Deciding { call, asked, to_verdict, commit_count_before }, asked))
}

pub(crate) fn repetition(
    setting: &Setting,
    effort: Effort,
    at_once: usize,
    reader: Reader,
) -> Result<Done<Approval>, Failure> {
    let setting = setting.clone();
    on(&many_threads()?, async move {
        let mut opened = setting.open().await?;
        let entries = Entries::of(&opened.store);
        let notes = match reader {
            Reader::Slow => Some(opened.recording()),
            Reader::Instant => None,
        };
        let engine = opened.start(approvals(&entries)).await?;
        let run = {
            let (engine, entries) = (engine.clone(), entries.clone());
            move || one(engine.clone(), entries.clone(), notes.clone())
        };
        // A new connection first prepares its statements, and a few measured runs would have to bear that cost.
        let warm_up_count = WARM_UP_COUNT * at_once;
        let warm_up = Effort { run_count_max: warm_up_count, run_count_min: warm_up_count, ..effort };
        repeat(&opened.store, opened.postmaster(), warm_up, at_once, run.clone()).await?;
        let done = repeat(&opened.store, opened.postmaster(), effort, at_once, run.clone()).await?;
        drop((run, entries));
        opened.close(engine).await?;
        Ok(done)
    })
}

/// Selects one of a run's times.
type ApprovalValue = fn(&Approval) -> f64;

pub(crate) fn run(
    setting: &Setting,
    effort: Effort,
    concurrency: usize,
    progress: &Progress,
) -> Result<Vec<Figure>, Failure> {
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for number in 1..=effort.repetition_count {
        let of = effort.repetition_count;
        progress.phase(&format!("one at a time, {number} of {of}"));
        alone.push(repetition(setting, effort, 1, Reader::Slow)?);
        progress.phase(&format!("{concurrency} at once, {number} of {of}"));
        together.push(repetition(setting, effort, concurrency, Reader::Instant)?);
    }
    let mut sheet = Sheet::of("W2", setting.kind);
    let columns: [(&str, &str, ApprovalValue); 6] = [
        ("start_to_suspended", "start → held", |run| run.start_to_held),
        ("decisionA_to_tool_start", "decision A → tool started", |run| run.decisions[0].to_tool_start),
        ("decisionA_call", "decision A → verdict", |run| run.decisions[0].to_verdict),
        ("decisionB_to_tool_start", "decision B → tool started", |run| run.decisions[1].to_tool_start),
        ("decisionB_to_model", "decision B → run continued", |run| run.to_model),
        ("decisionB_call_to_final", "decision B → run ended", |run| run.to_end),
    ];
    for (metric, title, value) in columns {
        for percent in [50, 99] {
            let of = |done: &Done<Approval>| {
                percentile(&done.results.iter().map(value).collect::<Vec<f64>>(), percent)
            };
            let values: Vec<f64> = alone.iter().filter_map(of).collect();
            let title = format!("parked, {title}, p{percent}");
            sheet.add(format!("{metric}_p{percent}_ms"), &title, Unit::Milliseconds, &values);
        }
    }
    let commits: Vec<f64> = alone
        .iter()
        .flat_map(|done| &done.results)
        .flat_map(|run| run.decisions)
        .map(|decided| decided.commit_count as f64)
        .collect();
    let title = "parked, commits from decision to tool start";
    let target = Some(match setting.kind {
        StoreKind::Memory | StoreKind::Sqlite => Target::Exactly(1.0),
        StoreKind::Postgres => Target::AtMost(2.0),
    });
    sheet.add_aimed("commits_decision_to_tool_start", title, Unit::Count, &commits, target);
    if setting.kind == StoreKind::Sqlite && effort.remote_run_count > 0 {
        progress.phase("a tool that is another process");
        tool_process::figures(&mut sheet, &tool_process::measure(setting, effort)?);
    }
    if setting.kind == StoreKind::Postgres {
        progress.phase("decisions in turns with bare transactions");
        decisions::figures(&mut sheet, &decisions::measure(setting, effort)?);
    }
    pace(&mut sheet, "seq", "parked, one at a time", &alone);
    pace(&mut sheet, &format!("c{concurrency}"), &format!("{concurrency} at once"), &together);
    sheet.add("peak_rss_mb", "peak memory of the process", Unit::Mebibytes, &setting.peak_memory());
    Ok(sheet.into_figures())
}

fn pace(sheet: &mut Sheet, suffix: &str, title: &str, repetitions: &[Done<Approval>]) {
    let per_run = |total: fn(&Done<Approval>) -> Option<f64>| -> Vec<f64> {
        repetitions.iter().filter_map(|done| Some(total(done)? / done.run_count())).collect()
    };
    let runs: Vec<f64> = repetitions.iter().map(Done::per_second).collect();
    sheet.add(format!("runs_per_s_{suffix}"), &format!("{title}, runs"), Unit::PerSecond, &runs);
    let cpu = per_run(|done| done.used.cpu.map(milliseconds));
    let metric = format!("cpu_ms_per_run_{suffix}");
    sheet.add(metric, &format!("{title}, processor time of a run"), Unit::Milliseconds, &cpu);
    let server_cpu = per_run(|done| done.used.server_cpu.map(milliseconds));
    let metric = format!("server_cpu_ms_per_run_{suffix}");
    let server_title = format!("{title}, processor time of a run in the server");
    sheet.add(metric, &server_title, Unit::Milliseconds, &server_cpu);
    let commits = per_run(|done| Some(done.used.counts.commits as f64));
    sheet.add(format!("commits_per_run_{suffix}"), &format!("{title}, commits"), Unit::Count, &commits);
    if sheet.store() == StoreKind::Memory {
        return;
    }
    let bytes = per_run(|done| Some(done.used.counts.bytes as f64));
    let metric = format!("store_bytes_per_run_{suffix}");
    sheet.add(metric, &format!("{title}, bytes given to the store"), Unit::Bytes, &bytes);
}
