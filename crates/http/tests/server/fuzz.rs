//! Arbitrary requests on a real port: paths, queries, cursors, headers and whatever else comes before a body. They
//! are answered or refused in the usual form, never with an error of the server, and nothing changes.

#[path = "../../../machine/tests/fuzz/chance.rs"]
#[allow(dead_code, reason = "requests need little of what runs need")]
pub(crate) mod chance;
#[path = "../../../machine/tests/fuzz/mutation.rs"]
mod mutation;

use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chance::Chance;
use mutation::mutated;
use serde_json::Value;

use crate::client::Client;
use crate::test_server::{StoreKind, TestPlan, on_both_stores};

const CASE_COUNT: u64 = 3_000;
const CLIENT_COUNT: usize = 16;
/// Until a server has enough of waiting for the rest of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(10);

const PIECES: [&str; 36] = [
    "%00",
    "%",
    "%ff%fe",
    "%F0%9F%8E%89",
    "+",
    "&",
    "&&=",
    "=",
    "?",
    "#",
    "..",
    "/",
    "//",
    "\r\n",
    "\r",
    "\n",
    "\u{0}",
    "\u{e9}",
    " ",
    "limit=0",
    "limit=-1",
    "limit=99999999999999999999",
    "cursor=.",
    "cursor=9223372036854775808.x",
    "cursor=1.'%3B--",
    "after=18446744073709551616",
    "status=runing",
    "last-event-id: -1\r\n",
    "last-event-id: 18446744073709551616\r\n",
    "last-event-id: \u{e9}\r\n",
    "idempotency-key: \r\n",
    "accept: text/event-stream\r\n",
    "content-length: 5\r\n",
    "transfer-encoding: chunked\r\n",
    "host: example.org\r\n",
    "authorization: Bearer \r\n",
];

on_both_stores! {
    arbitrary_requests_are_answered_or_refused_and_change_nothing;
}

async fn arbitrary_requests_are_answered_or_refused_and_change_nothing(store_kind: StoreKind) {
    let mut plan = TestPlan::one_write(store_kind);
    // For those that never say all that they announce.
    (plan.limits.head_timeout, plan.limits.body_timeout) = (REQUEST_TIMEOUT, REQUEST_TIMEOUT);
    let test_server = plan.build().await;
    let client = &test_server.client;
    let (run, approval) = client.begin_held_run("write it").await;
    client.post_nothing(&format!("/v1/approvals/{approval}/approve")).await.ok(200);
    let ended = client.run_reaches(&run, "completed").await;
    let (_, held) = client.begin_held_run("write it too").await;
    let thread = ended["thread_id"].as_str().unwrap();
    let paths = paths(&run, thread, &held);
    let corpus = corpus(client.address, &run, thread, &held);
    let corpus: Vec<&[u8]> = corpus.iter().map(String::as_bytes).collect();
    let before = everything(client).await;
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    // `FUZZ_SEED=n` replays one request, `FUZZ_RUNS=n` tries that many.
    let seeds = match number("FUZZ_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FUZZ_RUNS").unwrap_or(CASE_COUNT),
    };
    let address = client.address;
    let (answered, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for first in 0..CLIENT_COUNT {
            let (seeds, corpus, paths) = (seeds.clone(), &corpus, &paths);
            let (answered, refused) = (&answered, &refused);
            scope.spawn(move || {
                for seed in seeds.skip(first).step_by(CLIENT_COUNT) {
                    let mut chance = Chance::from_seed(seed);
                    let request = if chance.one_in(3) {
                        mutated(&mut chance, corpus, &PIECES)
                    } else {
                        composed(&mut chance, paths, address)
                    };
                    let count = match status_of(address, &request, seed) {
                        Some(200..300) => answered,
                        Some(_) | None => refused,
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (answered, refused) = (answered.into_inner(), refused.into_inner());
    assert_eq!(everything(client).await, before, "something was changed");
    // Of a few nothing can be asked.
    if seeds.end - seeds.start >= CASE_COUNT {
        assert!(answered > CASE_COUNT / 10 && refused > CASE_COUNT / 10, "{answered}, {refused} refused");
    }
}

/// Nothing in it changes anything, however it is mutated: what is posted goes to an approval that does not exist.
fn corpus(address: SocketAddr, run: &str, thread: &str, approval: &str) -> Vec<String> {
    let get = |path: &str, headers: &str| format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{headers}\r\n");
    let body = format!("{{\"expect_digest\":\"{}\"}}", "0".repeat(64));
    let json = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    vec![
        get(
            &format!("/v1/runs?status=completed&thread_id={thread}&agent=assistant&limit=10"),
            "x-request-id: abc-1\r\n",
        ),
        get(&format!("/v1/runs?cursor=1767225600000.{run}"), "authorization: Bearer abc\r\n"),
        get(&format!("/v1/runs/{run}"), ""),
        get(&format!("/v1/runs/{run}/events?after=3&limit=7"), "last-event-id: 4\r\n"),
        get(&format!("/v1/runs/{run}/events"), "last-event-id: 2\r\naccept: text/event-stream\r\n"),
        get(&format!("/v1/runs/{run}/calls"), ""),
        get(&format!("/v1/runs/{run}/state"), ""),
        get(&format!("/v1/threads/{thread}/messages?limit=2"), "accept: application/json\r\n"),
        get("/v1/threads?limit=1&cursor=1767225600000.thr_1", &format!("origin: http://{address}\r\n")),
        get(&format!("/v1/approvals?status=pending&thread_id={thread}&limit=1"), ""),
        get(&format!("/v1/approvals/{approval}"), ""),
        get("/v1/agents/assistant", ""),
        format!(
            "POST /v1/approvals/absent/approve HTTP/1.1\r\nhost: {address}\r\nidempotency-key: k-1\r\n{json}\r\n{body}"
        ),
    ]
}

fn paths(run: &str, thread: &str, approval: &str) -> Vec<String> {
    let lists = ["/v1/runs", "/v1/threads", "/v1/approvals"].map(str::to_owned);
    let more = [
        format!("/v1/runs/{run}/events"),
        format!("/v1/threads/{thread}/messages"),
        format!("/v1/runs/{run}"),
        format!("/v1/approvals/{approval}"),
    ];
    lists.into_iter().chain(more).collect()
}

const FIELDS: [&str; 8] = ["limit", "cursor", "after", "status", "run_id", "thread_id", "agent", "Limit"];
const HEADERS: [&str; 7] =
    ["last-event-id", "idempotency-key", "authorization", "accept", "x-request-id", "origin", "content-type"];
const VALUES: [&str; 16] = [
    "1",
    "10",
    "1000",
    "0",
    "007",
    "pending",
    "completed",
    "assistant",
    "1767225600000.run_1",
    "1.x",
    "1.'x",
    "9223372036854775807.z",
    "1.%",
    "text/event-stream",
    "Bearer abc",
    "http://127.0.0.1:1",
];

/// A request whose every part has its place, and in each place something that is almost right.
fn composed(chance: &mut Chance, paths: &[String], address: SocketAddr) -> Vec<u8> {
    let corpus = VALUES.map(str::as_bytes);
    let mut request = format!("GET {}", chance.pick(paths)).into_bytes();
    for place in 0..chance.below(4) {
        request.push(if place == 0 { b'?' } else { b'&' });
        request.extend_from_slice(chance.pick(&FIELDS).as_bytes());
        request.push(b'=');
        for byte in mutated(chance, &corpus, &PIECES) {
            if byte.is_ascii_alphanumeric() || b".:-_".contains(&byte) {
                request.push(byte);
            } else {
                request.extend_from_slice(format!("%{byte:02x}").as_bytes());
            }
        }
    }
    request.extend_from_slice(format!(" HTTP/1.1\r\nhost: {address}\r\n").as_bytes());
    for _ in 0..chance.below(3) {
        request.extend_from_slice(chance.pick(&HEADERS).as_bytes());
        request.extend_from_slice(b": ");
        // What a line cannot hold would begin another.
        let value = mutated(chance, &corpus, &PIECES);
        request.extend(value.into_iter().filter(|byte| *byte >= b' ' && *byte != 0x7f));
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request
}

/// None where the connection was closed without an answer, as it may be for a request that cannot be parsed.
fn status_of(address: SocketAddr, request: &[u8], seed: u64) -> Option<u16> {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit can be set");
    // A whole request follows, so that the connection is closed in the end.
    let last = format!("\r\n\r\nGET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    // A server that has refused a request need not read the rest of it.
    let _ = stream.write_all(&[request, last.as_bytes()].concat());
    let mut answer = Vec::new();
    if let Err(why) = stream.read_to_end(&mut answer) {
        assert_eq!(why.kind(), std::io::ErrorKind::ConnectionReset, "seed {seed}: no answer in time");
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.contains("HTTP/1.1 5"), "seed {seed}: {answer}");
    let status = answer.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok();
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    if status.is_some_and(|status: u16| status >= 400) && body.starts_with('{') {
        let mut values = serde_json::Deserializer::from_str(body).into_iter::<Value>();
        let refusal = values.next().expect("there is a body").expect("a refusal is JSON");
        let error = &refusal["error"];
        assert!(error["code"].is_string() && error["message"].is_string(), "seed {seed}: {refusal}");
    }
    status
}

/// All that can be read.
async fn everything(client: &Client) -> Vec<Value> {
    let mut all = Vec::new();
    for path in ["/v1/threads", "/v1/runs", "/v1/approvals?status=approved", "/v1/approvals"] {
        all.push(client.get(path).await.ok(200));
    }
    let runs: Vec<Value> = all[1]["runs"].as_array().unwrap().clone();
    for run in runs {
        all.extend(client.log(run["id"].as_str().unwrap()).await);
    }
    all
}
