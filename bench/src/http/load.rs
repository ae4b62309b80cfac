//! The load: tool rounds at an even pace, decisions and streams beside them, and what clients and server use.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::failure::Failure;
use crate::pace::milliseconds;
use crate::process;

use super::Load;
use super::pool::{Pool, locked, message, new_thread, text};
use super::server::Site;
use super::stream::{Ended, Followed, ShownEvent, is_terminal};

const DECISIONS_PER_SECOND: u32 = 20;
/// Maximum number of unended tool rounds. If there are more, the server does not keep up.
const UNENDED_MAX: usize = 1_000;
/// One in this many tool rounds is compared with the log, in addition to all streams that stay open.
const COMPARED_ONE_IN: u32 = 10;
/// Maximum number of logs that are read at the same time.
const COMPARING_MAX: usize = 32;
const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// One tool round.
pub(crate) struct HttpRun {
    pub(crate) accepted_ms: f64,
    pub(crate) completed_ms: f64,
}

pub(crate) struct Loaded {
    pub(crate) seconds: f64,
    pub(crate) rounds: Vec<HttpRun>,
    pub(crate) decided_ms: Vec<f64>,
    pub(crate) heard_in_each_second: Vec<u64>,
    pub(crate) compared_count: usize,
    pub(crate) server_cpu: Option<Duration>,
    pub(crate) clients_cpu: Option<Duration>,
    /// In MiB, once a second.
    pub(crate) server_memory: Vec<f64>,
    pub(crate) open_counts: Vec<f64>,
}

pub(crate) async fn run(site: Site, asked: Load) -> Result<Loaded, Failure> {
    let second_count = asked.duration.as_secs() as usize;
    let pool = Arc::new(Pool::new(&site, second_count));
    let mut streams = JoinSet::new();
    for number in 0..asked.stream_count {
        let says = if number < asked.busy_count { "busy" } else { "held" };
        streams.spawn(pool.clone().follow(number, says));
    }
    tokio::select! {
        opened = pool.all_open(asked.stream_count) => opened?,
        failed = first_to_end(&mut streams) => return Err(failed),
    }
    let server_cpu = || process::times_of(site.process).map(|times| times.own);
    let (server_before, clients_before) = (server_cpu(), process::cpu_time());
    let (mut server_memory, mut open_counts) = (Vec::new(), Vec::new());
    let begin = pool.begin();
    let rounds = tokio::select! {
        rounds = post_rounds(&pool, asked) => rounds?,
        failed = first_to_end(&mut streams) => return Err(failed),
        failed = decide(&pool) => return Err(never(failed)),
        failed = sample(&pool, site.process, &mut server_memory, &mut open_counts) => return Err(never(failed)),
    };
    let seconds = begin.elapsed().as_secs_f64();
    let server_cpu = server_cpu().zip(server_before).map(|(after, before)| after - before);
    let clients_cpu = process::cpu_time().zip(clients_before).map(|(after, before)| after - before);
    pool.stop().await?;
    let mut ended = Vec::new();
    while let Some(stream) = streams.join_next().await {
        ended.extend(stream??);
    }
    let mut measured = Vec::new();
    for (round, stream) in rounds {
        measured.push(round);
        ended.extend(stream);
    }
    let compared_count = ended.len();
    compare(ended).await?;
    let decided_ms = std::mem::take(&mut *locked(&pool.decided_ms));
    let heard_in_each_second = pool.told.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    Ok(Loaded {
        seconds,
        rounds: measured,
        decided_ms,
        heard_in_each_second,
        compared_count,
        server_cpu,
        clients_cpu,
        server_memory,
        open_counts,
    })
}

fn never(failed: Result<Infallible, Failure>) -> Failure {
    match failed {
        Err(failure) => failure,
        Ok(never) => match never {},
    }
}

/// No stream may end before the measurement does.
async fn first_to_end(streams: &mut JoinSet<Result<Vec<Ended>, Failure>>) -> Failure {
    match streams.join_next().await {
        Some(Ok(Err(failure))) => failure,
        Some(Err(error)) => error.into(),
        Some(Ok(Ok(_))) | None => Failure::new("a stream ended before the measurement did"),
    }
}

async fn decide(pool: &Pool) -> Result<Infallible, Failure> {
    let mut ticks = interval(Duration::from_secs(1) / DECISIONS_PER_SECOND);
    loop {
        ticks.tick().await;
        pool.decide_one().await?;
    }
}

async fn sample(
    pool: &Pool,
    server: u32,
    memory: &mut Vec<f64>,
    open_counts: &mut Vec<f64>,
) -> Result<Infallible, Failure> {
    let mut ticks = interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        memory.extend(process::memory_of(server).map(|bytes| bytes as f64 / MEBIBYTE));
        open_counts.push(pool.open_count.load(Ordering::Relaxed) as f64);
    }
}

/// Posts at an even pace, whether earlier rounds have ended or not.
async fn post_rounds(pool: &Arc<Pool>, asked: Load) -> Result<Vec<(HttpRun, Option<Ended>)>, Failure> {
    let count = asked.runs_per_second * u32::try_from(asked.duration.as_secs())?;
    let mut ticks = interval(Duration::from_secs(1) / asked.runs_per_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut unended, mut rounds) = (JoinSet::new(), Vec::new());
    for number in 0..count {
        ticks.tick().await;
        unended.spawn(round(pool.clone(), number));
        while let Some(ended) = unended.try_join_next() {
            rounds.push(ended??);
        }
        if unended.len() > UNENDED_MAX {
            return Err(Failure::new(format!("more than {UNENDED_MAX} tool rounds have not ended")));
        }
    }
    while let Some(ended) = unended.join_next().await {
        rounds.push(ended??);
    }
    Ok(rounds)
}

async fn round(pool: Arc<Pool>, number: u32) -> Result<(HttpRun, Option<Ended>), Failure> {
    let client = pool.client(number as usize);
    let path = new_thread(client).await?;
    let begin = Instant::now();
    let posted = client.post(&path, Some(&message("round"))).await?;
    let accepted_ms = milliseconds(begin.elapsed());
    let mut followed = Followed::open(client, &text(&posted, "run_id")?).await?;
    loop {
        let ShownEvent::Event(kind) = followed.next().await? else { continue };
        if kind == "run.completed" {
            break;
        }
        if is_terminal(&kind) {
            return Err(Failure::new(format!("a tool round ended with {kind}: {}", followed.payload()?)));
        }
    }
    let completed_ms = milliseconds(begin.elapsed());
    let ended = followed.end().await?;
    Ok((HttpRun { accepted_ms, completed_ms }, number.is_multiple_of(COMPARED_ONE_IN).then_some(ended)))
}

async fn compare(ended: Vec<Ended>) -> Result<(), Failure> {
    let mut comparing = JoinSet::new();
    for stream in ended {
        if comparing.len() >= COMPARING_MAX {
            comparing.join_next().await.transpose()?.transpose()?;
        }
        comparing.spawn(async move { stream.compare().await });
    }
    while let Some(compared) = comparing.join_next().await {
        compared??;
    }
    Ok(())
}
