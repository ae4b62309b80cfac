//! A client that follows one run over connections that break, and keeps the received events byte for byte.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Take, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// A stream sends at least a keep-alive every fifteen seconds, so one that is silent for this long is stuck.
const SILENT_AFTER: Duration = Duration::from_secs(60);
const TERMINAL: [&str; 3] = ["run.completed", "run.failed", "run.interrupted"];

/// The events of one run that one client received, over all of its connections.
pub(crate) struct Follower {
    pub(crate) run: String,
    /// The `data:` of every stored event, in the order of arrival. The first has sequence number 1.
    pub(crate) events: Vec<Vec<u8>>,
    pub(crate) ended: bool,
    words: DeltaTexts,
    pub(crate) seen: FollowerStats,
}

/// Counts of what happened to a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FollowerStats {
    pub(crate) connections: u64,
    /// Connections that ended in the middle of a frame.
    pub(crate) torn: u64,
    pub(crate) deltas: u64,
    /// Stored answers that were compared with the deltas received before them.
    pub(crate) compared: u64,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// The run has ended, and the server has no more events.
    Ended,
    /// This client dropped it, or the server was killed.
    BrokenOff,
}

impl Follower {
    pub(crate) fn new(run: &str) -> Self {
        Self {
            run: run.to_owned(),
            events: Vec::new(),
            ended: false,
            words: DeltaTexts::default(),
            seen: FollowerStats::default(),
        }
    }

    /// Opens a connection and drops it after `bytes_max` bytes. Calls `on_event` for every stored event.
    pub(crate) fn connect(
        &mut self,
        address: &str,
        bytes_max: u64,
        mut on_event: impl FnMut(),
    ) -> ConnectionEnd {
        let behind = self.events.len();
        let Ok(mut stream) = EventStream::open(address, &self.run, behind, bytes_max) else {
            return ConnectionEnd::BrokenOff;
        };
        self.seen.connections += 1;
        self.words.begin();
        match stream.status {
            200 => assert!(!self.ended, "{} has ended, but the server streams on", self.run),
            204 => {
                assert!(self.ended, "{} has not ended, but there is no event after {behind}", self.run);
                return ConnectionEnd::Ended;
            }
            other => panic!("{} after event {behind}: status {other}", self.run),
        }
        while let Some(block) = stream.next_block() {
            assert!(!self.ended, "an event follows the end of {}: {block}", self.run);
            if !block.starts_with(':') {
                self.process_block(&block, &mut on_event);
            }
        }
        self.seen.torn += u64::from(stream.is_torn());
        ConnectionEnd::BrokenOff
    }

    fn process_block(&mut self, block: &str, on_event: &mut impl FnMut()) {
        let field = |name: &str| {
            let mut values = block.lines().filter_map(|line| line.strip_prefix(name));
            let value = values.next();
            assert!(values.next().is_none(), "{name} occurs twice in {block}");
            value
        };
        let data = field("data: ").unwrap_or_else(|| panic!("a frame without data: {block}"));
        let value: Value = serde_json::from_str(data).unwrap_or_else(|why| panic!("{why}: {data}"));
        assert_eq!(value["type"].as_str(), field("event: "), "{block}");
        assert_eq!(value["run_id"].as_str(), Some(self.run.as_str()), "{block}");
        let Some(id) = field("id: ") else {
            assert!(value.get("seq").is_none(), "{block}");
            self.seen.deltas += u64::from(self.words.process_delta(&value));
            return;
        };
        let next = self.events.len() + 1;
        assert_eq!(id, next.to_string(), "a gap or a repeat in {}: {block}", self.run);
        assert_eq!(value["seq"], next, "{block}");
        self.seen.compared += u64::from(self.words.compare(&value));
        self.ended = TERMINAL.contains(&value["type"].as_str().unwrap_or_default());
        self.events.push(data.as_bytes().to_vec());
        on_event();
    }
}

/// The delta texts of unfinished answers, by message, kind and index of the part, with the attempt that streams them.
#[derive(Default)]
struct DeltaTexts {
    /// Over all connections, also by attempt. Two connections never get different texts for the same position.
    texts: BTreeMap<(String, u64, String, u64), Vec<char>>,
    /// On this connection: the attempt, and how much of its text was received.
    positions: BTreeMap<(String, String, u64), (u64, usize)>,
}

impl DeltaTexts {
    /// After a reconnect the server sends the text so far again.
    fn begin(&mut self) {
        self.positions.clear();
    }

    /// True for a delta.
    fn process_delta(&mut self, frame: &Value) -> bool {
        let (kind, payload) = (frame["type"].as_str().unwrap_or_default(), &frame["payload"]);
        let message = payload["message_id"].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| payload[name].as_u64().unwrap_or_else(|| panic!("no {name}: {frame}"));
        match kind {
            "text.delta" | "reasoning.delta" | "tool.arguments_delta" => {}
            "step.reset" => {
                let attempt = number("attempt");
                self.positions.retain(|(of, ..), (told, _)| *of != message || *told >= attempt);
                return false;
            }
            "tool.log" | "tool.progress" => return false,
            other => panic!("unknown frame without an id: {other}"),
        }
        let (attempt, index, offset) = (number("attempt"), number("index"), number("offset"));
        let text: Vec<char> = payload["text"].as_str().unwrap_or_default().chars().collect();
        let offset = usize::try_from(offset).expect("an offset fits");
        let place = (message.clone(), kind.to_owned(), index);
        let (told_of, told) = self.positions.get(&place).copied().unwrap_or((attempt, 0));
        let from = if told_of == attempt { told } else { 0 };
        assert!(attempt >= told_of, "attempt {told_of} was over: {frame}");
        assert_eq!(offset, from, "on one connection a text continues where it stopped: {frame}");
        self.positions.insert(place, (attempt, offset + text.len()));
        let said = self.texts.entry((message, attempt, kind.to_owned(), index)).or_default();
        for (at, letter) in text.into_iter().enumerate().map(|(at, letter)| (offset + at, letter)) {
            match said.get(at) {
                Some(before) => assert_eq!(*before, letter, "another text at {at} of {frame}"),
                None => said.push(letter),
            }
        }
        true
    }

    /// Asserts that the stored text begins with the deltas of this connection. True if there was something to compare.
    fn compare(&mut self, event: &Value) -> bool {
        let message = &event["payload"]["message"];
        if event["type"] != "message.added" || message["role"] != "assistant" {
            return false;
        }
        let (id, text) = (message["id"].as_str().unwrap_or_default(), message["content"].as_str());
        let place = (id.to_owned(), "text.delta".to_owned(), 0);
        let Some((attempt, told)) = self.positions.remove(&place) else { return false };
        let said = &self.texts[&(place.0, attempt, place.1, place.2)][..told];
        let stored: Vec<char> = text.unwrap_or_default().chars().collect();
        assert!(stored.starts_with(said), "the deltas were {said:?}, but stored is {event}");
        true
    }
}

/// The response to a stream request: its status, and then one block after the other.
pub(crate) struct EventStream {
    pub(crate) status: u16,
    reader: BufReader<Take<TcpStream>>,
    /// Unread bytes of the current chunk.
    left: usize,
    /// The beginning of an incomplete frame.
    unread: Vec<u8>,
}

impl EventStream {
    fn open(address: &str, run: &str, behind: usize, bytes_max: u64) -> io::Result<Self> {
        let seen = if behind == 0 { String::new() } else { format!("last-event-id: {behind}\r\n") };
        Self::request(address, &format!("/v1/runs/{run}/events"), &seen, bytes_max)
    }

    /// The connection ends after `bytes_max` bytes.
    pub(crate) fn request(address: &str, path: &str, headers: &str, bytes_max: u64) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(SILENT_AFTER))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n{headers}\r\n"
        )?;
        let mut reader = BufReader::new(stream.take(bytes_max));
        let (mut line, mut status) = (String::new(), None);
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            if !line.ends_with("\r\n") {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            status = status.or_else(|| line.split(' ').nth(1)?.parse().ok());
            if line == "\r\n" {
                let status = status.ok_or(io::ErrorKind::InvalidData)?;
                return Ok(Self { status, reader, left: 0, unread: Vec::new() });
            }
        }
    }

    /// The next frame or comment without its empty line; none if the connection is over.
    pub(crate) fn next_block(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let rest = self.unread.split_off(end + 2);
                let mut block = std::mem::replace(&mut self.unread, rest);
                block.truncate(end);
                return Some(String::from_utf8(block).expect("a stream is UTF-8"));
            }
            self.read_more().ok()??;
        }
    }

    /// Whether the connection ended in the middle of a frame.
    pub(crate) const fn is_torn(&self) -> bool {
        !self.unread.is_empty()
    }

    /// None at the end.
    fn read_more(&mut self) -> io::Result<Option<()>> {
        if self.left == 0 {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            if line == "\r\n" {
                line.clear();
                self.reader.read_line(&mut line)?;
            }
            let Some(length) = line.strip_suffix("\r\n") else { return Ok(None) };
            self.left = usize::from_str_radix(length, 16).map_err(io::Error::other)?;
            if self.left == 0 {
                return Ok(None);
            }
        }
        let ready = match self.reader.fill_buf() {
            Err(why) if matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                panic!("not even a keep-alive for {SILENT_AFTER:?}")
            }
            ready => ready?,
        };
        let count = ready.len().min(self.left);
        self.unread.extend_from_slice(&ready[..count]);
        self.reader.consume(count);
        self.left -= count;
        Ok((count > 0).then_some(()))
    }
}
