//! `costly`: one tenant sends the requests that cost the most for their length, and another tenant posts messages.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinSet;

use crate::effort::Effort;
use crate::failure::Failure;
use crate::pace::milliseconds;
use crate::progress::Progress;
use crate::report::{Figure, Sheet, Target, Unit};
use crate::stage::{Setting, many_threads, on};
use crate::statistics::percentile;

use super::beside_this_program;
use super::pool::{message, new_thread, post};
use super::server::{Server, Site};
use super::wire::Client;

const GREEDY: usize = 0;
const OTHER: usize = 1;
/// Sent at the same time, again and again.
const POSTS_AT_ONCE: usize = 24;
const READS_AT_ONCE: usize = 12;
/// What one of them sends, or reads.
const BODY_BYTES: usize = 2 * 1024 * 1024 - 200;
/// Objects in the result that is stored and read: two values each, just below the limit of a body.
const STORED_OBJECTS: usize = 24_900;
/// The other tenant's slowest requests may take this many times longer than without the first tenant.
const SLOWER_MAX: f64 = 3.0;
const P99: usize = 99;

struct Costly {
    greedy: Client,
    /// Refused: it has far more values than a body may have.
    body: String,
    /// Where the large result is read.
    result: String,
}

impl Costly {
    async fn new(greedy: Client) -> Result<Self, Failure> {
        let run = post(&greedy, "pick").await?;
        let events = format!("/v1/runs/{run}/events");
        let mut stream = greedy.stream(&events).await?;
        while let Some(block) = stream.next_block().await? {
            if block.contains("event: run.waiting") {
                break;
            }
        }
        let text = "x".repeat(BODY_BYTES / STORED_OBJECTS - 8);
        let objects = format!(r#"{{"":"{text}"}},"#).repeat(STORED_OBJECTS);
        let decision =
            format!(r#"{{"decisions":[{{"call_id":"call_0","action":"resume","result":[{objects}0]}}]}}"#);
        let path = format!("/v1/runs/{run}/decisions");
        let (status, answer) = greedy.exchange("POST", &path, Some(&decision)).await?;
        if status != 200 || !answer.contains(r#""applied""#) {
            return Err(Failure::new(format!("the large result was not taken: {status} {answer}")));
        }
        let item = r#"{"":0},"#;
        let content = item.repeat(BODY_BYTES / item.len());
        let body = format!(r#"{{"agent":"clerk","content":[{content}0]}}"#);
        Ok(Self { greedy, body, result: format!("/v1/runs/{run}/calls") })
    }

    /// Every request at once.
    async fn wave(self: &Arc<Self>) -> Result<usize, Failure> {
        let path = Arc::new(new_thread(&self.greedy).await?);
        let mut requests = JoinSet::new();
        for number in 0..POSTS_AT_ONCE + READS_AT_ONCE {
            let (costly, path) = (self.clone(), path.clone());
            requests.spawn(async move {
                if number < READS_AT_ONCE {
                    let (status, _) = costly.greedy.exchange("GET", &costly.result, None).await?;
                    return expect(status, &[200, 429]);
                }
                let (status, _) = costly.greedy.exchange("POST", &path, Some(&costly.body)).await?;
                expect(status, &[413, 429])
            });
        }
        let mut count = 0;
        while let Some(done) = requests.join_next().await {
            done??;
            count += 1;
        }
        Ok(count)
    }
}

fn expect(status: u16, allowed: &[u16]) -> Result<(), Failure> {
    if allowed.contains(&status) {
        return Ok(());
    }
    Err(Failure::new(format!("a costly request was answered with {status}, not with one of {allowed:?}")))
}

/// Milliseconds from each post of a tool round to its 202, one after the other.
async fn posts(client: &Client, count: usize) -> Result<Vec<f64>, Failure> {
    let mut taken = Vec::new();
    for _ in 0..count {
        let path = new_thread(client).await?;
        let begin = Instant::now();
        client.post(&path, Some(&message("round"))).await?;
        taken.push(milliseconds(begin.elapsed()));
    }
    Ok(taken)
}

struct Measured {
    quiet_ms: f64,
    beside_ms: f64,
    costly_count: usize,
}

async fn measured(site: Site, count: usize) -> Result<Measured, Failure> {
    let client = |tenant: usize| Client::new(site.clone(), tenant);
    let (costly, other) = (Arc::new(Costly::new(client(GREEDY)).await?), client(OTHER));
    let p99 = |taken: &[f64]| percentile(taken, P99).ok_or_else(|| Failure::new("nothing was posted"));
    // What is made with the first requests is not measured.
    posts(&other, count / 10).await?;
    let quiet_ms = p99(&posts(&other, count).await?)?;
    let mut costly_count = 0;
    let waves = async {
        loop {
            match costly.wave().await {
                Ok(sent) => costly_count += sent,
                Err(failure) => return failure,
            }
        }
    };
    let beside = tokio::select! {
        taken = posts(&other, count) => taken?,
        failure = waves => return Err(failure),
    };
    Ok(Measured { quiet_ms, beside_ms: p99(&beside)?, costly_count })
}

pub(crate) fn run(
    setting: &Setting,
    effort: Effort,
    program: Option<&Path>,
    progress: &Progress,
) -> Result<Vec<Figure>, Failure> {
    let program = program.map_or_else(beside_this_program, |path| Ok(path.to_owned()))?;
    let runtime = many_threads()?;
    let (mut quiet, mut beside, mut ratios, mut counts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 1..=effort.repetition_count {
        progress.phase(&format!(
            "{} posts beside costly requests, {number} of {}",
            effort.costly_posts, effort.repetition_count
        ));
        let server = Server::start(&program, &setting.folder)?;
        let measured = on(&runtime, measured(server.site(), effort.costly_posts))?;
        server.stop()?;
        quiet.push(measured.quiet_ms);
        beside.push(measured.beside_ms);
        ratios.push(measured.beside_ms / measured.quiet_ms);
        counts.push(measured.costly_count as f64);
    }
    let mut sheet = Sheet::of("costly", setting.kind);
    sheet.add("quiet_p99_ms", "post → 202 without costly requests, p99", Unit::Milliseconds, &quiet);
    sheet.add(
        "beside_p99_ms",
        "post → 202 beside another tenant's costly requests, p99",
        Unit::Milliseconds,
        &beside,
    );
    let target = Some(Target::AtMost(SLOWER_MAX));
    sheet.add_aimed("slower", "beside costly requests / without", Unit::Ratio, &ratios, target);
    sheet.add("costly_requests", "costly requests that were answered meanwhile", Unit::Count, &counts);
    Ok(sheet.into_figures())
}
