//! W4, a long run: many tool rounds, kept in memory or parked and reloaded at every step. Does a late step cost
//! more than an early one?

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::deciding::Decide;
use engine::live::Deltas;
use engine::model::{Messages, Model, ModelAnswer, ModelFailure, ModelMessage, ModelRequest};
use engine::store::{BoxFuture, Store, Tenant};
use engine::tool::{FunctionTool, Tool, ToolDefinition, ToolRequest};
use engine::{Engine, Settings};
use machine::id::{CallId, RunId};
use machine::inbox::Verdict;
use machine::termination::Termination;
use machine::tool::Arguments;
use tokio::sync::Semaphore;

use crate::effort::Effort;
use crate::environment::{
    Setting, StoreKind, agent, asking, last_answer, many_threads, on, parked, user_message,
};
use crate::failure::Failure;
use crate::pace::milliseconds;
use crate::process;
use crate::progress::Progress;
use crate::recording_store::StoreRecords;
use crate::report::{Figure, Sheet, Target, Unit};
use crate::statistics::{mean, median};

/// The windows of steps whose means are compared.
const EARLY_STEPS: RangeInclusive<u32> = 50..=150;
const LATE_STEPS: RangeInclusive<u32> = 900..=1_000;
const GROWTH_MAX: f64 = 1.2;
/// The steps that are reported, each as the median of the steps around it.
const SHOWN_STEPS: [u32; 3] = [10, 200, 1_000];
const AROUND: u32 = 5;

/// Whether the run leaves memory between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stay {
    Kept,
    /// Each round's call is held, and decided only after the run has left memory. Its transcript is read from the
    /// store at every step.
    Parked,
    /// The same with the engine's default settings: it caches the transcripts of recently released runs.
    Shelved,
}

impl Stay {
    pub(crate) const ALL: [Self; 3] = [Self::Kept, Self::Parked, Self::Shelved];

    const fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Parked => "parked",
            Self::Shelved => "shelved",
        }
    }

    fn tool(self) -> ToolDefinition {
        let definition = ToolDefinition::new("echo", "Says it again");
        match self {
            Self::Kept => definition.read(),
            Self::Parked | Self::Shelved => definition,
        }
    }

    fn settings(self) -> Settings {
        match self {
            Self::Kept | Self::Shelved => Settings::default(),
            Self::Parked => Settings { transcript_cache_bytes: 0, ..Settings::default() },
        }
    }
}

/// One call of the model.
#[derive(Clone, Copy)]
struct Mark {
    entered: Instant,
    left: Instant,
    /// From the first read of the log until the model was entered, while the transcript was loaded.
    load: Option<Duration>,
    message_count: usize,
    store_bytes: u64,
    bytes_written: u64,
}

/// Asks for one call after the other, reads everything it is given, and records marks.
struct Rounds {
    rounds: u32,
    marks: Arc<Mutex<Vec<Mark>>>,
    answered: Arc<Semaphore>,
    store: Arc<dyn Store>,
    notes: Arc<StoreRecords>,
}

impl Model for Rounds {
    fn answers_at_once(&self) -> bool {
        true
    }

    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        _: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        let entered = Instant::now();
        let load = self.notes.take_first_log_read().map(|first| entered.duration_since(first));
        black_box(byte_count(&request.messages));
        let answer = if request.ordinal > self.rounds {
            last_answer()
        } else {
            asking(&[(&call_id(request.ordinal), "echo")])
        };
        let mark = Mark {
            entered,
            load,
            message_count: request.messages.len(),
            store_bytes: self.store.metrics().bytes,
            bytes_written: process::bytes_written().unwrap_or(0),
            left: Instant::now(),
        };
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
        self.answered.add_permits(1);
        Box::pin(std::future::ready(Ok(answer)))
    }
}

fn call_id(round: u32) -> String {
    format!("call_{round}")
}

/// The least a provider does with a transcript: it reads every message.
fn byte_count(messages: &Messages) -> usize {
    let arguments = |arguments: &Arguments| match arguments {
        Arguments::Valid { value, .. } => value.as_object().map_or(0, serde_json::Map::len),
        Arguments::Invalid { raw, .. } => raw.len(),
    };
    messages
        .iter()
        .map(|message| match message {
            ModelMessage::User { content, .. } => content.as_str().map_or(0, str::len),
            ModelMessage::Assistant { text, calls, .. } => {
                text.len() + calls.iter().map(|call| arguments(&call.arguments)).sum::<usize>()
            }
            ModelMessage::Tool { text, .. }
            | ModelMessage::Note { text, .. }
            | ModelMessage::Notice { text } => text.len(),
        })
        .sum()
}

/// One round, without the model's own time, without the time that the run rested, and without loading and unloading the
/// transcript.
pub(crate) struct Step {
    milliseconds: f64,
    store_bytes: f64,
    bytes_written: f64,
    /// Time to load the transcript, in microseconds per message.
    load_per_message: Option<f64>,
    pub(crate) load_milliseconds: Option<f64>,
    /// Until the transcript has left memory, after the run was released.
    unload_milliseconds: Option<f64>,
}

pub(crate) struct LongRun {
    pub(crate) steps: Vec<Step>,
    seconds: f64,
    bytes_at_rest: Option<u64>,
}

fn echo(stay: Stay) -> impl Tool {
    FunctionTool::new(stay.tool(), |request: ToolRequest| async move { (*request.arguments).clone() })
}

pub(crate) async fn long_run(setting: Setting, rounds: u32, stay: Stay) -> Result<LongRun, Failure> {
    let (marks, answered) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
    let mut opened = setting.open().await?;
    let store = opened.store.clone();
    let notes = opened.recording();
    let model =
        Rounds { rounds, marks: marks.clone(), answered: answered.clone(), store, notes: notes.clone() };
    let engine = opened.start_with(agent(model).tool(echo(stay)), stay.settings()).await?;
    let begin = Instant::now();
    let posted = engine.post(user_message()).await?;
    let mut rests = Vec::new();
    match stay {
        Stay::Kept => answered.acquire_many(rounds).await?.forget(),
        Stay::Parked | Stay::Shelved => {
            for round in 1..=rounds {
                answered.acquire().await?.forget();
                let released = notes.parked(&engine).await?;
                let parked = Instant::now();
                approve(&engine, &posted.run, round).await?;
                rests.push(parked.duration_since(released.unwrap_or(parked)));
            }
        }
    }
    answered.acquire().await?.forget();
    parked(&engine).await;
    let seconds = begin.elapsed().as_secs_f64();
    let view = engine.view(&Tenant::default(), &posted.run).await?;
    let ended = view.as_ref().and_then(|view| view.control.as_ref()?.ended());
    if ended != Some(&Termination::NaturalEnd) {
        return Err(Failure::new(format!("the long run ended as {ended:?}")));
    }
    let bytes_at_rest = opened.close(engine).await?;
    let marks = std::mem::take(&mut *marks.lock().unwrap_or_else(PoisonError::into_inner));
    if marks.len() != rounds as usize + 1 {
        return Err(Failure::new(format!("{rounds} rounds asked the model {} times", marks.len())));
    }
    Ok(LongRun { steps: steps(&marks, &rests), seconds, bytes_at_rest })
}

async fn approve(engine: &Engine, run: &RunId, round: u32) -> Result<(), Failure> {
    let decision = Decide::approve(run, &CallId::from(call_id(round)), "ann");
    let verdict = engine.decide(decision).await?;
    if verdict == Verdict::Accepted {
        return Ok(());
    }
    Err(Failure::new(format!("the decision of round {round} is {verdict}")))
}

/// A run rests from its release until it is decided on; meanwhile its transcript leaves memory.
fn steps(marks: &[Mark], rests: &[Duration]) -> Vec<Step> {
    let rests = rests.iter().copied().chain(std::iter::repeat(Duration::ZERO));
    marks
        .windows(2)
        .zip(rests)
        .filter_map(|(pair, rest)| {
            let [from, to] = pair else { return None };
            let load = to.load.unwrap_or_default();
            let time = to.entered.duration_since(from.left).saturating_sub(rest + load);
            Some(Step {
                milliseconds: milliseconds(time),
                store_bytes: to.store_bytes.saturating_sub(from.store_bytes) as f64,
                bytes_written: to.bytes_written.saturating_sub(from.bytes_written) as f64,
                load_per_message: to.load.map(|load| load.as_secs_f64() * 1e6 / to.message_count as f64),
                load_milliseconds: to.load.map(milliseconds),
                unload_milliseconds: to.load.map(|_| milliseconds(rest)),
            })
        })
        .collect()
}

pub(crate) fn run(setting: &Setting, effort: Effort, progress: &Progress) -> Result<Vec<Figure>, Failure> {
    let runtime = many_threads()?;
    let mut sheet = Sheet::of("W4", setting.kind);
    for stay in Stay::ALL {
        for rounds in effort.rounds {
            let mut runs = Vec::new();
            for number in 1..=effort.long_run_count {
                let of = effort.long_run_count;
                progress.phase(&format!("{rounds} rounds, {}, {number} of {of}", stay.name()));
                runs.push(on(&runtime, long_run(setting.clone(), rounds, stay))?);
            }
            figures(&mut sheet, rounds, stay, &runs);
        }
    }
    Ok(sheet.into_figures())
}

type StepValue = fn(&Step) -> Option<f64>;

fn figures(sheet: &mut Sheet, rounds: u32, stay: Stay, runs: &[LongRun]) {
    // No extra prefix, as for the peers, which keep all runs in memory.
    let prefix = match stay {
        Stay::Kept => format!("rounds{rounds}"),
        Stay::Parked | Stay::Shelved => format!("{}_rounds{rounds}", stay.name()),
    };
    let title = format!("{rounds} rounds, {}", stay.name());
    let of_runs =
        |value: &dyn Fn(&LongRun) -> Option<f64>| -> Vec<f64> { runs.iter().filter_map(value).collect() };
    let total = of_runs(&|run| Some(run.seconds));
    sheet.add(format!("{prefix}_total_s"), &format!("{title}, in all"), Unit::Seconds, &total);
    let mut columns: Vec<(&str, &str, Unit, StepValue)> =
        vec![("ms", "time", Unit::Milliseconds, |step| Some(step.milliseconds))];
    // A store in memory counts no bytes.
    if sheet.store() == StoreKind::Sqlite {
        columns.push(("store_bytes", "bytes to the store", Unit::Bytes, |step| Some(step.store_bytes)));
        columns.push(("bytes", "bytes written", Unit::Bytes, |step| Some(step.bytes_written)));
    }
    columns.push(("load_ms", "load", Unit::Milliseconds, |step| step.load_milliseconds));
    columns.push(("load_us_per_message", "load a message", Unit::Microseconds, |step| step.load_per_message));
    columns.push(("unload_ms", "unload", Unit::Milliseconds, |step| step.unload_milliseconds));
    for (ending, what, unit, value) in &columns {
        for shown in SHOWN_STEPS.into_iter().filter(|shown| *shown <= rounds) {
            let window = shown.saturating_sub(AROUND)..=shown + AROUND;
            let values = of_runs(&|run| median(&within(run, &window, *value)));
            let (metric, title) =
                (format!("{prefix}_step{shown}_{ending}"), format!("{title}, step {shown}"));
            sheet.add(metric, &format!("{title}, {what}"), *unit, &values);
        }
    }
    for (ending, what, _, value) in columns.iter().filter(|(ending, ..)| !ending.contains("load")) {
        let title = format!("{title}, steps 900–1,000 / 50–150, {what}");
        let growth = |middle: fn(&[f64]) -> Option<f64>| {
            of_runs(&|run| {
                Some(middle(&within(run, &LATE_STEPS, *value))? / middle(&within(run, &EARLY_STEPS, *value))?)
            })
        };
        let target = Some(Target::AtMost(GROWTH_MAX));
        let metric = format!("{prefix}_growth_{ending}");
        sheet.add_aimed(metric, &format!("{title}, means"), Unit::Ratio, &growth(mean), target);
        // Here a single step that the operating system delayed has little weight.
        let metric = format!("{prefix}_growth_median_{ending}");
        sheet.add_aimed(metric, &format!("{title}, medians"), Unit::Ratio, &growth(median), target);
    }
    let at_rest = of_runs(&|run| run.bytes_at_rest.map(|bytes| bytes as f64));
    let metric = format!("{prefix}_bytes_at_rest");
    sheet.add(metric, &format!("{title}, bytes of the file at rest"), Unit::Bytes, &at_rest);
}

/// Steps count from 1.
fn within(run: &LongRun, window: &RangeInclusive<u32>, value: StepValue) -> Vec<f64> {
    (1..)
        .zip(&run.steps)
        .filter(|(number, _)| window.contains(number))
        .filter_map(|(_, step)| value(step))
        .collect()
}
