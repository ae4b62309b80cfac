//! `holdpoint runs watch RUN`: follows a run across lost connections and server restarts until it ends.

use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep};

use crate::cli::client::connection::{Connection, RequestError, percent_encoded};
use crate::cli::client::live_text::LiveText;
use crate::cli::client::sse::{SseStream, StreamEnd};
use crate::cli::client::times;
use crate::cli::client::wire::{Event, Run, read};
use crate::cli::output::{print_raw, print_stderr, write_stdout};
use crate::cli::problem::Problem;
use crate::cli::{CommandResult, CommandStatus};

/// The first and the longest pause between two attempts to connect.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// Give up on a server that has been unreachable for this long.
const RECONNECT_MAX: Duration = Duration::from_secs(300);

/// Follow a run until it ends
///
/// Prints every event as it happens, beginning with the first, and the text of the model while it is streamed. If the
/// connection is lost, for example because the server restarts, the command reconnects and continues after the last
/// event. Exits with 0 if the run is completed, with 1 if it fails or is interrupted. With --json, prints every frame
/// of the stream on its own line.
#[derive(Debug, Args)]
pub(super) struct Watch {
    /// The id of the run
    run: String,
    /// Begin after the event with this number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: u64,
}

impl Watch {
    pub(super) async fn run(&self, connection: &Connection, json: bool) -> CommandResult {
        let path = format!("/v1/runs/{}", percent_encoded(&self.run));
        let run: Run = read(connection, &connection.get(&path).await?)?;
        let live = (!json).then(|| LiveText::starting_at(times::parse_ms(&run.created_at)));
        let mut watcher = Watcher { seen: self.after, live };
        let events = format!("{path}/events");
        let mut pause = PAUSE_FIRST;
        let mut reached_at = Instant::now();
        loop {
            match connection.follow(&events, watcher.seen).await {
                // The run has ended and there are no more events.
                Ok(None) => {
                    let run: Run = read(connection, &connection.get(&path).await?)?;
                    return Ok(command_status(&run.status));
                }
                Ok(Some(frames)) => {
                    reached_at = Instant::now();
                    let before = watcher.seen;
                    if let Some(done) = watcher.follow(connection, frames).await? {
                        return Ok(done);
                    }
                    if watcher.seen > before {
                        pause = PAUSE_FIRST;
                    }
                    watcher.end_line()?;
                    print_stderr(&format!(
                        "The connection was lost after event {}; trying again.",
                        watcher.seen
                    ));
                }
                Err(failed) => {
                    if !failed.is_retryable() || reached_at.elapsed() > RECONNECT_MAX {
                        return Err(failed.into());
                    }
                    print_stderr(&format!("{}; trying again in {pause:?}.", first_line(failed)));
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

fn first_line(failed: RequestError) -> String {
    let text = Problem::from(failed).to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

fn command_status(status: &str) -> CommandStatus {
    if status == "completed" { CommandStatus::Success } else { CommandStatus::Failure }
}

/// What was received of a run so far, over all connections.
struct Watcher {
    seen: u64,
    /// None with `--json`: the frames are printed as they are.
    live: Option<LiveText>,
}

impl Watcher {
    /// Returns when the run ends, the connection ends, or the reader of standard output is gone.
    async fn follow(
        &mut self,
        connection: &Connection,
        mut frames: SseStream,
    ) -> Result<Option<CommandStatus>, Problem> {
        loop {
            let data = match frames.next().await {
                Ok(data) => data,
                Err(StreamEnd::Closed | StreamEnd::Broken) => return Ok(None),
                Err(StreamEnd::Unreadable) => return Err(connection.not_holdpoint("")),
            };
            let event: Event = read(connection, &data)?;
            if let Some(seq) = event.seq {
                // Skip events that the server sends again after it lost our position.
                if seq <= self.seen {
                    continue;
                }
                self.seen = seq;
            }
            let is_read = match &mut self.live {
                Some(live) => write_stdout(&live.process(&event))?,
                None => print_raw(&data)?,
            };
            if let Some(status) = event.final_status() {
                return Ok(Some(command_status(status)));
            }
            if !is_read {
                return Ok(Some(CommandStatus::Failure));
            }
        }
    }

    fn end_line(&mut self) -> Result<(), Problem> {
        let end = self.live.as_mut().map_or("", LiveText::finish_line);
        write_stdout(end).map(|_| ())
    }
}
