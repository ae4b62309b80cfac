//! Parses server-sent events: returns the data of one frame after the other, and how the stream ends.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

/// The server sends a keep-alive every fifteen seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Larger than any event.
const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One stream, until it ends.
pub(super) struct SseStream {
    body: Incoming,
    parser: SseParser,
}

/// Why the stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The server closed it.
    Closed,
    /// The connection broke, or was silent for too long.
    Broken,
    /// The response is not a stream of events.
    Unreadable,
}

impl SseStream {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, parser: SseParser::default() }
    }

    /// The data of the next frame. A frame that is incomplete when the stream ends is dropped.
    pub(super) async fn next(&mut self) -> Result<String, StreamEnd> {
        loop {
            if let Some(data) = self.parser.next()? {
                return Ok(data);
            }
            match timeout(SILENCE_MAX, self.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    self.parser.bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                }
                Ok(Some(Err(_))) | Err(_) => return Err(StreamEnd::Broken),
                Ok(None) => return Err(StreamEnd::Closed),
            }
        }
    }
}

/// Splits received bytes into frames.
#[derive(Debug, Default)]
struct SseParser {
    bytes: Vec<u8>,
    /// There is no line break before this index.
    scanned: usize,
    data: Option<String>,
}

impl SseParser {
    fn next(&mut self) -> Result<Option<String>, StreamEnd> {
        while let Some(line) = self.line()? {
            if line.is_empty() {
                if let Some(data) = self.data.take() {
                    return Ok(Some(data));
                }
            } else if let Some(more) = line.strip_prefix("data:") {
                let more = more.strip_prefix(' ').unwrap_or(more);
                match &mut self.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(more);
                    }
                    None => self.data = Some(more.to_owned()),
                }
            }
        }
        let waiting = self.bytes.len() + self.data.as_ref().map_or(0, String::len);
        if waiting > FRAME_BYTES_MAX { Err(StreamEnd::Unreadable) } else { Ok(None) }
    }

    fn line(&mut self) -> Result<Option<String>, StreamEnd> {
        let unread = self.bytes.get(self.scanned..).unwrap_or_default();
        let Some(length) = unread.iter().position(|byte| *byte == b'\n') else {
            self.scanned = self.bytes.len();
            return Ok(None);
        };
        let rest = self.bytes.split_off(self.scanned + length + 1);
        let mut line = std::mem::replace(&mut self.bytes, rest);
        self.scanned = 0;
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line).map(Some).map_err(|_| StreamEnd::Unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the bytes in pieces of this size.
    fn parse_all(bytes: &[u8], piece: usize) -> Result<Vec<String>, StreamEnd> {
        let mut parser = SseParser::default();
        let mut frames = Vec::new();
        for piece in bytes.chunks(piece) {
            parser.bytes.extend_from_slice(piece);
            while let Some(data) = parser.next()? {
                frames.push(data);
            }
        }
        Ok(frames)
    }

    #[test]
    fn frames_are_the_same_however_they_are_cut_and_half_a_frame_is_none() {
        let stream =
            ": alive\n\nid: 1\nevent: a\ndata: {\"n\":1}\n\r\ndata:é\r\ndata: b\r\n\r\nid: 3\ndata: half";
        for piece in [1, 2, 3, 7, stream.len()] {
            assert_eq!(
                parse_all(stream.as_bytes(), piece).expect("readable"),
                ["{\"n\":1}", "é\nb"],
                "{piece}"
            );
        }
    }

    #[test]
    fn what_is_no_text_or_has_no_end_is_refused() {
        assert_eq!(parse_all(b"data: \xff\n\n", 64), Err(StreamEnd::Unreadable));
        assert_eq!(parse_all(&vec![b'x'; FRAME_BYTES_MAX + 1], 1 << 20), Err(StreamEnd::Unreadable));
    }
}
