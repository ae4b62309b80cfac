//! The process that sends the requests that cost the server most for their length, wave after wave.
//!
//! It is a separate process with the lowest priority: its own work is not the server's, and on another machine it would
//! not share the server's CPUs.

use std::env;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::task::JoinSet;

use crate::command::COSTLY_CLIENT;
use crate::environment::one_thread;
use crate::failure::Failure;

use super::pool::{new_thread, post};
use super::server::Site;
use super::wire::Client;

const TENANT: usize = 0;
/// Number of requests sent at the same time, in every wave.
const POSTS_AT_ONCE: usize = 24;
const READS_AT_ONCE: usize = 12;
/// Bytes that one request sends, or reads.
const BODY_BYTES: usize = 2 * 1024 * 1024 - 200;
/// Objects in the stored result that is read: two values each, just below the limit of a body.
const STORED_OBJECTS: usize = 24_900;
const READY: &str = "ready";

struct Costly {
    greedy: Client,
    /// The server refuses this body, because it has far more values than a body may have.
    body: String,
    /// The path of the large result.
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

    /// Sends all requests at once.
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

/// The other process: prints `ready`, and, when its input ends, how many of its requests were answered.
pub(crate) fn serve(address: String) -> Result<(), Failure> {
    let count = Arc::new(AtomicUsize::new(0));
    let answered = count.clone();
    thread::spawn(move || {
        for _ in io::stdin().lock().lines().map_while(Result::ok) {}
        println!("{}", answered.load(Ordering::Relaxed));
        std::process::exit(0);
    });
    one_thread()?.block_on(async move {
        let client = Client::new(Site { address, process: 0 }, TENANT);
        let costly = Arc::new(Costly::new(client).await?);
        println!("{READY}");
        io::stdout().flush()?;
        loop {
            count.fetch_add(costly.wave().await?, Ordering::Relaxed);
        }
    })
}

/// The parent's handle of the other process.
pub(crate) struct CostlyClient {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Drop for CostlyClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl CostlyClient {
    /// Returns when it is about to send its first wave.
    pub(crate) fn start(site: &Site) -> Result<Self, Failure> {
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(env::current_exe()?).args([COSTLY_CLIENT, &site.address]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| Failure::new("a process without pipes"))?;
        let mut client = Self { child, input, lines: BufReader::new(output).lines() };
        match client.next_line()?.as_str() {
            READY => Ok(client),
            other => Err(Failure::new(format!("the process of costly requests printed {other}"))),
        }
    }

    /// Returns how many of its requests were answered.
    pub(crate) fn stop(mut self) -> Result<usize, Failure> {
        drop(self.input.take());
        Ok(self.next_line()?.parse()?)
    }

    fn next_line(&mut self) -> Result<String, Failure> {
        let line = self.lines.next().transpose()?;
        line.ok_or_else(|| Failure::new("the process of costly requests ended too early"))
    }
}
