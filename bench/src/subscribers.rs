//! The speed of a run without subscribers, and of one with thousands of them, half of which never read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use engine::feed::{FeedItem, Subscription};
use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::store::{BoxFuture, Tenant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::effort::Effort;
use crate::environment::{Setting, agent, asking, echo, last_answer, many_threads, on, parked, user_message};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::report::{Figure, Sheet, Unit};

/// Asks for two echo calls in each round. Waits before the first until all readers are subscribed.
struct Watched {
    rounds: u32,
    signs: Arc<Signs>,
}

/// Signals between the model and the measuring task.
struct Signs {
    /// One permit for each subscriber that has started reading.
    watching: Semaphore,
    ready: Semaphore,
    done: Semaphore,
    begin: Instant,
    /// Nanoseconds after `begin`.
    first_at: AtomicU64,
    last_at: AtomicU64,
}

impl Signs {
    fn new() -> Self {
        Self {
            watching: Semaphore::new(0),
            ready: Semaphore::new(0),
            done: Semaphore::new(0),
            begin: Instant::now(),
            first_at: AtomicU64::new(0),
            last_at: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Model for Watched {
    fn answers_at_once(&self) -> bool {
        true
    }

    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        Box::pin(async move {
            let signs = &self.signs;
            if request.ordinal == 1 {
                if let Ok(permit) = signs.ready.acquire().await {
                    permit.forget();
                }
                signs.first_at.store(signs.now(), Ordering::Relaxed);
            }
            if request.ordinal > self.rounds {
                signs.last_at.store(signs.now(), Ordering::Relaxed);
                signs.done.add_permits(1);
                return Ok(last_answer());
            }
            deltas.text("Let me see.");
            let [first, second] = ["a", "b"].map(|call| format!("{call}_{}", request.ordinal));
            Ok(asking(&[(&first, "echo"), (&second, "echo")]))
        })
    }
}

/// Rounds per second. Every reader must see every event.
pub(crate) async fn watched_run(
    setting: Setting,
    rounds: u32,
    subscriber_count: usize,
) -> Result<f64, Failure> {
    let signs = Arc::new(Signs::new());
    let opened = setting.open().await?;
    let engine = opened.start(agent(Watched { rounds, signs: signs.clone() }).tool(echo())).await?;
    let posted = engine.post(user_message()).await?;
    let mut reading = JoinSet::new();
    let mut idle: Vec<Subscription> = Vec::new();
    for number in 0..subscriber_count {
        let watched = engine.subscribe(&Tenant::default(), &posted.run, 0);
        if number % 2 == 0 {
            reading.spawn(read(watched, signs.clone()));
        } else {
            idle.push(watched);
        }
    }
    // Measures a run that is watched, not the time it takes to subscribe.
    let reader_count = u32::try_from(reading.len())?;
    signs.watching.acquire_many(reader_count).await?.forget();
    signs.ready.add_permits(1);
    signs.done.acquire().await?.forget();
    let mut seen = Vec::new();
    while let Some(count) = reading.join_next().await {
        seen.push(count??);
    }
    parked(&engine).await;
    let last_seq = engine.view(&Tenant::default(), &posted.run).await?.map(|view| view.seq);
    if let Some(missed) = seen.iter().find(|count| Some(**count) != last_seq) {
        return Err(Failure::new(format!("a reader saw {missed} of {last_seq:?} events")));
    }
    drop(idle);
    opened.close(engine).await?;
    let nanoseconds = signs.last_at.load(Ordering::Relaxed) - signs.first_at.load(Ordering::Relaxed);
    Ok(f64::from(rounds) * 1e9 / nanoseconds as f64)
}

async fn read(mut watched: Subscription, signs: Arc<Signs>) -> Result<u64, Failure> {
    let mut count = 0;
    let mut first = true;
    while let Some(item) = watched.next().await {
        if std::mem::take(&mut first) {
            signs.watching.add_permits(1);
        }
        match item? {
            FeedItem::Event(_) | FeedItem::Unreadable(_) => count += 1,
            FeedItem::Live(_) => {}
        }
    }
    Ok(count)
}

pub(crate) fn run(setting: &Setting, effort: Effort, progress: &Progress) -> Result<Vec<Figure>, Failure> {
    let runtime = many_threads()?;
    let count = effort.subscriber_count;
    let (mut unwatched, mut watched, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=effort.repetition_count {
        progress.phase(&format!("0 and {count} subscribers, {number} of {}", effort.repetition_count));
        let speed = |subscriber_count| {
            on(&runtime, watched_run(setting.clone(), effort.watched_rounds, subscriber_count))
        };
        let (alone, crowded) = (speed(0)?, speed(count)?);
        unwatched.push(alone);
        watched.push(crowded);
        ratios.push(crowded / alone);
    }
    let mut sheet = Sheet::of("subscribers", setting.kind);
    sheet.add("rounds_per_s_s0", "no subscriber, rounds", Unit::PerSecond, &unwatched);
    let title = format!("{count} subscribers, half never read, rounds");
    sheet.add(format!("rounds_per_s_s{count}"), &title, Unit::PerSecond, &watched);
    let title = format!("speed with {count} subscribers / with none");
    sheet.add(format!("ratio_s{count}"), &title, Unit::Ratio, &ratios);
    Ok(sheet.into_figures())
}
