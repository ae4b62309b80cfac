//! `front-ends`: the server as another process, and hundreds of answers of many small deltas at once, each read as
//! events of our own and as a UI message stream of the AI SDK. A client that misses a character fails the measurement.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::effort::Effort;
use crate::environment::{Setting, many_threads, on};
use crate::failure::Failure;
use crate::process;
use crate::progress::Progress;
use crate::report::{Figure, Sheet, Target, Unit};
use crate::statistics::percentile;

use super::beside_this_program;
use super::pool::{message, new_thread, text};
use super::server::{DELTA_CHARS, HttpServer, Site, TENANTS, deltas_text};
use super::stream::events_of;
use super::wire::{Client, Connection};

/// How many answers stream at once, and how many deltas each has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrontEndLoad {
    pub(crate) stream_count: usize,
    pub(crate) delta_count: usize,
}

/// One stream in this many also has a reader of our own events, whose times tell when each delta was sent.
const TIMED_EVERY: usize = 25;
/// What a delta may cost the server over the AI SDK, compared with our own events.
const COST_MAX: f64 = 2.0;
const P99: usize = 99;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Own,
    AiSdk,
}

impl Protocol {
    const ALL: [Self; 2] = [Self::Own, Self::AiSdk];

    const fn metric(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::AiSdk => "ai_sdk",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Own => "our own events",
            Self::AiSdk => "the AI SDK",
        }
    }
}

/// A delta as a client received it.
struct Received {
    text: String,
    /// Milliseconds since the epoch.
    at: f64,
    /// When the server sent it, in milliseconds of the day, if the protocol says so.
    sent: Option<f64>,
}

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64() * 1_000.0)
}

/// The delta in a block of a stream, if it is one.
fn delta(protocol: Protocol, block: &str) -> Result<Option<Received>, Failure> {
    let data = block.lines().find_map(|line| line.strip_prefix("data: "));
    let is_delta = match protocol {
        Protocol::Own => block.starts_with("event: text.delta"),
        Protocol::AiSdk => data.is_some_and(|data| data.contains("\"text-delta\"")),
    };
    let (Some(data), true) = (data, is_delta) else { return Ok(None) };
    let mut data: Value = serde_json::from_str(data)?;
    let at = now_ms();
    Ok(Some(match protocol {
        Protocol::Own => {
            let sent = Some(day_ms(&text(&data, "ts")?)?);
            Received { text: text(&data["payload"], "text")?, at, sent }
        }
        Protocol::AiSdk => {
            let Value::String(text) = data["delta"].take() else { return Err(Failure::new("no delta")) };
            Received { text, at, sent: None }
        }
    }))
}

/// A time such as `2026-01-31T12:00:00.123Z`, as milliseconds of its day: the measurement is shorter than one.
fn day_ms(time: &str) -> Result<f64, Failure> {
    let wrong = || Failure::new(format!("no time: {time}"));
    let clock = time.split_once('T').and_then(|(_, clock)| clock.strip_suffix('Z')).ok_or_else(wrong)?;
    let mut seconds = 0.0;
    for part in clock.split(':') {
        seconds = seconds * 60.0 + part.parse::<f64>().map_err(|_| wrong())?;
    }
    Ok(seconds * 1_000.0)
}

/// Milliseconds from a time of the day to a time since the epoch.
fn lag_ms(sent: f64, received: f64) -> f64 {
    const DAY_MS: f64 = 86_400_000.0;
    (received - sent).rem_euclid(DAY_MS)
}

/// The deltas of one stream until it ends.
async fn read(mut connection: Connection, protocol: Protocol) -> Result<Vec<Received>, Failure> {
    let mut received = Vec::new();
    while let Some(block) = connection.next_block().await? {
        received.extend(delta(protocol, &block)?);
    }
    Ok(received)
}

/// Posts a message and reads its answer. Also returns when each delta was sent, by its offset, if that is asked for.
async fn follow(
    client: Client,
    protocol: Protocol,
    number: usize,
    is_timed: bool,
) -> Result<(Vec<Received>, BTreeMap<usize, f64>), Failure> {
    match protocol {
        Protocol::Own => {
            let posted = client.post(&new_thread(&client).await?, Some(&message("deltas"))).await?;
            let connection = client.stream(&events_of(&text(&posted, "run_id")?)).await?;
            let received = read(connection, protocol).await?;
            let times = if is_timed { times_by_offset(&received) } else { BTreeMap::new() };
            Ok((received, times))
        }
        Protocol::AiSdk => {
            let (chat, part) = (format!("chat-{number}"), json!({"type": "text", "text": "deltas"}));
            let said = json!({"id": format!("said-{number}"), "role": "user", "parts": [part]});
            let body = json!({"id": chat, "messages": [said]});
            let connection = client.stream_of_post("/v1/ai-sdk/clerk", &body).await?;
            if !is_timed {
                return Ok((read(connection, protocol).await?, BTreeMap::new()));
            }
            let runs: Value =
                serde_json::from_str(&client.text(&format!("/v1/runs?thread_id={chat}")).await?)?;
            let own = client.stream(&events_of(&text(&runs["runs"][0], "id")?)).await?;
            let (received, own) = tokio::join!(read(connection, protocol), read(own, Protocol::Own));
            Ok((received?, times_by_offset(&own?)))
        }
    }
}

fn times_by_offset(received: &[Received]) -> BTreeMap<usize, f64> {
    let mut offset = 0;
    let mut times = BTreeMap::new();
    for delta in received {
        if let Some(sent) = delta.sent {
            times.insert(offset, sent);
        }
        offset += delta.text.len();
    }
    times
}

#[derive(Default)]
struct StreamedAnswers {
    seconds: f64,
    deltas: f64,
    lags_ms: Vec<f64>,
    server_cpu: Option<Duration>,
}

async fn stream_all(site: Site, protocol: Protocol, load: FrontEndLoad) -> Result<StreamedAnswers, Failure> {
    let clients: Vec<Client> = (0..TENANTS.len()).map(|tenant| Client::new(site.clone(), tenant)).collect();
    let cpu = || process::times_of(site.process).map(|times| times.all());
    let (began, cpu_before) = (Instant::now(), cpu());
    let mut streams = JoinSet::new();
    for number in 0..load.stream_count {
        let client = clients[number % clients.len()].clone();
        streams.spawn(follow(client, protocol, number, number % TIMED_EVERY == 0));
    }
    let expected = deltas_text(load.delta_count);
    let mut streamed = StreamedAnswers::default();
    while let Some(ended) = streams.join_next().await {
        let (received, times) = ended??;
        let whole: String = received.iter().map(|delta| delta.text.as_str()).collect();
        if whole != expected {
            return Err(Failure::new(format!("a client of {} has a gap", protocol.title())));
        }
        streamed.deltas += whole.len() as f64 / DELTA_CHARS as f64;
        let mut offset = 0;
        for delta in received {
            streamed.lags_ms.extend(times.get(&offset).map(|sent| lag_ms(*sent, delta.at)));
            offset += delta.text.len();
        }
    }
    streamed.seconds = began.elapsed().as_secs_f64();
    streamed.server_cpu = cpu().zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    Ok(streamed)
}

pub(crate) fn run(
    setting: &Setting,
    effort: Effort,
    program: Option<&Path>,
    progress: &Progress,
) -> Result<Vec<Figure>, Failure> {
    let program = program.map_or_else(beside_this_program, |path| Ok(path.to_owned()))?;
    let (runtime, load) = (many_threads()?, effort.front_ends);
    let mut all: BTreeMap<&str, Vec<StreamedAnswers>> = BTreeMap::new();
    for number in 1..=effort.repetition_count {
        for protocol in Protocol::ALL {
            progress.phase(&format!(
                "{} streams of {} deltas over {}, {number} of {}",
                load.stream_count,
                load.delta_count,
                protocol.title(),
                effort.repetition_count
            ));
            let server = HttpServer::start_with(&program, &setting.folder, load.delta_count)?;
            let streamed = on(&runtime, stream_all(server.site(), protocol, load))?;
            server.stop()?;
            all.entry(protocol.metric()).or_default().push(streamed);
        }
    }
    let mut sheet = Sheet::of("front-ends", setting.kind);
    for protocol in Protocol::ALL {
        add_figures(&mut sheet, protocol, &all[protocol.metric()]);
    }
    let costs = |protocol: Protocol| all[protocol.metric()].iter().filter_map(cost_us);
    let ratios: Vec<f64> =
        costs(Protocol::AiSdk).zip(costs(Protocol::Own)).map(|(one, other)| one / other).collect();
    let title = "processor time for each delta, the AI SDK / our own events";
    sheet.add_aimed("cost_ratio", title, Unit::Ratio, &ratios, Some(Target::AtMost(COST_MAX)));
    Ok(sheet.into_figures())
}

/// Microseconds of the server's processor time for each delta of each stream.
fn cost_us(streamed: &StreamedAnswers) -> Option<f64> {
    Some(streamed.server_cpu?.as_secs_f64() * 1_000_000.0 / streamed.deltas)
}

fn add_figures(sheet: &mut Sheet, protocol: Protocol, streamed: &[StreamedAnswers]) {
    let (metric, title) = (protocol.metric(), protocol.title());
    let rates: Vec<f64> = streamed.iter().map(|one| one.deltas / one.seconds).collect();
    sheet.add(
        format!("{metric}_deltas_per_s"),
        &format!("{title}, deltas received"),
        Unit::PerSecond,
        &rates,
    );
    let lags: Vec<f64> = streamed.iter().filter_map(|one| percentile(&one.lags_ms, P99)).collect();
    sheet.add(
        format!("{metric}_lag_p99_ms"),
        &format!("{title}, sent → received, p99"),
        Unit::Milliseconds,
        &lags,
    );
    let costs: Vec<f64> = streamed.iter().filter_map(cost_us).collect();
    let title = format!("{title}, the server's processor time for each delta");
    sheet.add(format!("{metric}_cpu_us_per_delta"), &title, Unit::Microseconds, &costs);
}
