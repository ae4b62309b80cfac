//! W5, a stream: a model that streams a thousand small deltas, and the listeners that receive them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::Engine;
use engine::feed::{FeedItem, Subscription};
use engine::live::{Deltas, LiveItem};
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::store::{BoxFuture, Tenant};
use machine::event::{Fact, Message};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::effort::Effort;
use crate::environment::{Setting, agent, many_threads, on, parked, user_message};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::report::{Figure, Sheet, Target, Unit};
use crate::statistics::percentile;

const DELTA_COUNT: usize = 1_000;
/// If listeners take longer than this, one of them is lost and the model stops waiting.
const HEARING_TIME_MAX: Duration = Duration::from_secs(20);

/// How fast the model sends deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Without a pause, so that listeners get several deltas merged into one item.
    Burst,
    /// Yields to other tasks after every delta, like a model that waits for a network.
    Yielding,
}

/// What the model and its listeners share about one answer.
struct Speech {
    pieces: Vec<String>,
    whole: String,
    pace: Pace,
    listener_count: u32,
    /// Released once all listeners are subscribed.
    ready: Semaphore,
    /// One permit for each listener that has received the whole text.
    heard: Semaphore,
    begin: Instant,
    /// When each piece was sent, in nanoseconds after `begin`.
    said_at: Vec<AtomicU64>,
}

impl Speech {
    fn new(pace: Pace, listener_count: u32) -> Self {
        // Four bytes each and all different, so that any loss or reordering is detected.
        let pieces: Vec<String> = (0..DELTA_COUNT).map(|number| format!("{number:03} ")).collect();
        Self {
            whole: pieces.concat(),
            pace,
            listener_count,
            ready: Semaphore::new(0),
            heard: Semaphore::new(0),
            begin: Instant::now(),
            said_at: pieces.iter().map(|_| AtomicU64::new(0)).collect(),
            pieces,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    async fn say(&self, deltas: &Deltas) {
        if let Ok(permit) = self.ready.acquire().await {
            permit.forget();
        }
        for (piece, said_at) in self.pieces.iter().zip(&self.said_at) {
            said_at.store(self.now(), Ordering::Relaxed);
            deltas.text(piece);
            if self.pace == Pace::Yielding {
                tokio::task::yield_now().await;
            }
        }
        // The final answer would replace the deltas that listeners have not read yet.
        let everybody = self.heard.acquire_many(self.listener_count);
        let _ = tokio::time::timeout(HEARING_TIME_MAX, everybody).await;
    }
}

/// Holds the current speech. There is one at a time.
#[derive(Clone, Default)]
struct Speaker(Arc<Mutex<Option<Arc<Speech>>>>);

impl Speaker {
    fn next(&self, speech: Arc<Speech>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(speech);
    }

    fn speech(&self) -> Option<Arc<Speech>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Model for Speaker {
    fn answer<'a>(
        &'a self,
        _: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        Box::pin(async move {
            let Some(speech) = self.speech() else { return Ok(ModelAnswer::default()) };
            speech.say(&deltas).await;
            Ok(ModelAnswer::text(speech.whole.clone()))
        })
    }
}

/// What one listener received.
pub(crate) struct Heard {
    pub(crate) item_count: usize,
    /// When the text was complete, in nanoseconds after the beginning of the speech.
    complete_at: u64,
    /// For each item, the time from sending its last piece until it was received.
    lags: Vec<f64>,
}

async fn listen(speech: Arc<Speech>, mut watched: Subscription) -> Result<Heard, Failure> {
    let mut text = String::new();
    let mut heard = Heard { item_count: 0, complete_at: 0, lags: Vec::new() };
    while let Some(item) = watched.next().await {
        match item? {
            FeedItem::Live(LiveItem::Delta(delta)) => {
                let now = speech.now();
                if delta.offset != text.len() as u64 {
                    let why = format!("a delta at {} came after {} bytes", delta.offset, text.len());
                    return Err(Failure::new(why));
                }
                text += &delta.text;
                heard.item_count += 1;
                let said_at = (text.len() / 4).checked_sub(1).and_then(|last| speech.said_at.get(last));
                let said_at = said_at.map_or(now, |said_at| said_at.load(Ordering::Relaxed));
                heard.lags.push(now.saturating_sub(said_at) as f64 / 1_000.0);
                if text.len() == speech.whole.len() {
                    heard.complete_at = now;
                    speech.heard.add_permits(1);
                }
            }
            FeedItem::Live(LiveItem::Reset { .. } | LiveItem::Note(_)) | FeedItem::Unreadable(_) => {}
            FeedItem::Event(committed) => {
                if let Fact::MessageAdded(Message::Assistant { text: whole, .. }) = &committed.event.fact
                    && (*whole != speech.whole || text != speech.whole)
                {
                    return Err(Failure::new(format!("{} of {} bytes arrived", text.len(), whole.len())));
                }
            }
        }
    }
    Ok(heard)
}

pub(crate) struct Streamed {
    pub(crate) heard: Vec<Heard>,
    /// From the first delta until the last listener had the whole text.
    seconds: f64,
    /// From the first delta until the model had sent the last one.
    saying_seconds: f64,
}

/// Streams `stream_count` answers one after the other, on one store and one engine.
pub(crate) async fn streams(
    setting: Setting,
    pace: Pace,
    listener_count: u32,
    stream_count: usize,
) -> Result<Vec<Streamed>, Failure> {
    let speaker = Speaker::default();
    let opened = setting.open().await?;
    let engine = opened.start(agent(speaker.clone())).await?;
    let mut streamed = Vec::new();
    for _ in 0..stream_count {
        let speech = Arc::new(Speech::new(pace, listener_count));
        speaker.next(speech.clone());
        streamed.push(spoken(&engine, &speech).await?);
        parked(&engine).await;
    }
    opened.close(engine).await?;
    Ok(streamed)
}

async fn spoken(engine: &Engine, speech: &Arc<Speech>) -> Result<Streamed, Failure> {
    let posted = engine.post(user_message()).await?;
    let mut listeners = JoinSet::new();
    for _ in 0..speech.listener_count {
        let watched = engine.subscribe(&Tenant::default(), &posted.run, 0);
        listeners.spawn(listen(speech.clone(), watched));
    }
    // All listeners read the events so far, and then wait.
    for _ in 0..speech.listener_count {
        tokio::task::yield_now().await;
    }
    speech.ready.add_permits(1);
    let mut heard = Vec::new();
    while let Some(one) = listeners.join_next().await {
        heard.push(one??);
    }
    let at = |piece: Option<&AtomicU64>| piece.map_or(0, |said_at| said_at.load(Ordering::Relaxed));
    let (first, last) = (at(speech.said_at.first()), at(speech.said_at.last()));
    let complete = heard.iter().map(|one| one.complete_at).max().unwrap_or(0);
    let seconds = |until: u64| until.saturating_sub(first) as f64 / 1e9;
    Ok(Streamed { heard, seconds: seconds(complete), saying_seconds: seconds(last) })
}

pub(crate) fn run(setting: &Setting, effort: Effort, progress: &Progress) -> Result<Vec<Figure>, Failure> {
    let runtime = many_threads()?;
    let mut sheet = Sheet::of("W5", setting.kind);
    for (pace, name) in [(Pace::Burst, "burst"), (Pace::Yielding, "yielding")] {
        for listener_count in [1, 100] {
            let title = format!("{name}, {listener_count} listening");
            progress.phase(&title);
            let work = streams(setting.clone(), pace, listener_count, effort.stream_count);
            let streamed = on(&runtime, work)?;
            let suffix = format!("{name}_r{listener_count}");
            figures(&mut sheet, &suffix, &title, &streamed);
        }
    }
    Ok(sheet.into_figures())
}

fn figures(sheet: &mut Sheet, suffix: &str, title: &str, streamed: &[Streamed]) {
    let column =
        |value: &dyn Fn(&Streamed) -> f64| -> Vec<f64> { streamed.iter().map(value).collect::<Vec<f64>>() };
    let deltas = DELTA_COUNT as f64;
    let heard = column(&|one| deltas / one.seconds);
    let metric = format!("deltas_per_s_{suffix}");
    let target = suffix.ends_with("_r1").then_some(Target::AtLeast(1_000_000.0));
    sheet.add_aimed(
        metric,
        &format!("{title}, deltas until received by all"),
        Unit::PerSecond,
        &heard,
        target,
    );
    let said = column(&|one| deltas / one.saying_seconds);
    sheet.add(format!("said_per_s_{suffix}"), &format!("{title}, deltas sent"), Unit::PerSecond, &said);
    let delivered = column(&|one| deltas * one.heard.len() as f64 / one.seconds);
    let metric = format!("delivered_per_s_{suffix}");
    sheet.add(metric, &format!("{title}, deltas × listeners"), Unit::PerSecond, &delivered);
    let items: Vec<f64> =
        streamed.iter().flat_map(|one| &one.heard).map(|heard| heard.item_count as f64).collect();
    let metric = format!("items_{suffix}");
    sheet.add(metric, &format!("{title}, items that 1,000 deltas came as"), Unit::Count, &items);
    for percent in [50, 99] {
        let lags = |one: &Streamed| {
            let all: Vec<f64> = one.heard.iter().flat_map(|heard| heard.lags.iter().copied()).collect();
            percentile(&all, percent)
        };
        let values: Vec<f64> = streamed.iter().filter_map(lags).collect();
        let metric = format!("lag_p{percent}_us_{suffix}");
        sheet.add(metric, &format!("{title}, lag of an item, p{percent}"), Unit::Microseconds, &values);
    }
}
