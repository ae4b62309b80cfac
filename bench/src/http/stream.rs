//! The events that one stream delivers of one run, kept for comparison with the log.

use serde_json::Value;

use crate::failure::Failure;

use super::wire::{Client, Connection};

const PAGE: usize = 1_000;
const TERMINAL: [&str; 3] = ["run.completed", "run.failed", "run.interrupted"];

/// An open stream of a run, and the `data:` of every stored event so far.
pub(crate) struct Followed {
    pub(crate) run: String,
    client: Client,
    connection: Connection,
    told: Vec<String>,
}

/// An item received from a stream.
pub(crate) enum ShownEvent {
    /// A stored event, with its type.
    Event(String),
    /// A live delta.
    Live,
}

impl Followed {
    pub(crate) async fn open(client: &Client, run: &str) -> Result<Self, Failure> {
        let connection = client.stream(&events_of(run)).await?;
        Ok(Self { run: run.to_owned(), client: client.clone(), connection, told: Vec::new() })
    }

    pub(crate) async fn next(&mut self) -> Result<ShownEvent, Failure> {
        loop {
            let Some(block) = self.connection.next_block().await? else {
                return Err(Failure::new(format!("the stream of {} was closed before the end", self.run)));
            };
            if block.starts_with(':') {
                continue;
            }
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
            let Some(id) = field("id: ") else { return Ok(ShownEvent::Live) };
            let wanted = self.told.len() + 1;
            if id != wanted.to_string() {
                return Err(Failure::new(format!("{}: event {id} arrived instead of {wanted}", self.run)));
            }
            let kind = field("event: ").unwrap_or_default().to_owned();
            self.told.push(field("data: ").unwrap_or_default().to_owned());
            return Ok(ShownEvent::Event(kind));
        }
    }

    /// The payload of the last event.
    pub(crate) fn payload(&self) -> Result<Value, Failure> {
        let last = self.told.last().map_or("null", String::as_str);
        Ok(serde_json::from_str::<Value>(last)?["payload"].take())
    }

    /// Called after the terminal event: fails if anything follows. `compare` then expects the same bytes in the log.
    pub(crate) async fn end(mut self) -> Result<Ended, Failure> {
        if let Some(block) = self.connection.next_block().await? {
            return Err(Failure::new(format!("something follows the end of {}: {block}", self.run)));
        }
        self.client.give_back(self.connection);
        Ok(Ended { run: self.run, client: self.client, told: self.told })
    }
}

/// What a stream delivered from the beginning to the end.
pub(crate) struct Ended {
    run: String,
    client: Client,
    told: Vec<String>,
}

impl Ended {
    pub(crate) async fn compare(&self) -> Result<(), Failure> {
        for (number, page) in self.told.chunks(PAGE).enumerate() {
            let path = format!("{}?after={}&limit={PAGE}", events_of(&self.run), number * PAGE);
            let stored = self.client.text(&path).await?;
            let told = format!("{{\"events\":[{}],\"last_seq\":{},", page.join(","), self.told.len());
            if !stored.starts_with(&told) {
                return Err(Failure::new(format!("{}: stream and stored log differ", self.run)));
            }
        }
        Ok(())
    }
}

pub(crate) fn is_terminal(kind: &str) -> bool {
    TERMINAL.contains(&kind)
}

pub(crate) fn events_of(run: &str) -> String {
    format!("/v1/runs/{run}/events")
}
