//! Splits bytes into messages: server-sent events, or one JSON text per line. All buffers are bounded.

use std::mem;

/// How an answer is split into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Server-sent events. Event names are ignored, because the data contains the type too.
    Events,
    /// One JSON text per line.
    Lines,
}

/// Limit for one message, regardless of the length of the answer.
const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Why the bytes cannot be split into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameError {
    NotText,
    TooLong,
}

impl FrameError {
    pub(super) fn why(self) -> String {
        match self {
            Self::NotText => "the stream is no UTF-8".to_owned(),
            Self::TooLong => format!("a message of the stream is longer than {MESSAGE_BYTES_MAX} bytes"),
        }
    }
}

#[derive(Debug)]
pub(super) struct FrameParser {
    framing: Framing,
    bytes: Vec<u8>,
    /// Everything before this offset has been returned.
    begin: usize,
    /// There is no line end before this offset.
    scanned: usize,
    /// Data lines of the event that has not ended.
    data: Option<String>,
}

impl FrameParser {
    pub(super) const fn new(framing: Framing) -> Self {
        Self { framing, bytes: Vec::new(), begin: 0, scanned: 0, data: None }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.begin);
        self.scanned -= self.begin;
        self.begin = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete message.
    pub(super) fn next(&mut self) -> Result<Option<String>, FrameError> {
        while let Some(line) = self.line()? {
            if let Some(message) = self.take(&line) {
                return Ok(Some(message));
            }
        }
        let waiting = self.bytes.len() - self.begin + self.data.as_ref().map_or(0, String::len);
        if waiting > MESSAGE_BYTES_MAX { Err(FrameError::TooLong) } else { Ok(None) }
    }

    /// The bytes after the last complete message when the stream has ended: some servers omit the final line end.
    pub(super) fn rest(mut self) -> Result<Option<String>, FrameError> {
        let line = text(self.bytes.get(self.begin..).unwrap_or_default())?;
        let last = self.take(&line);
        Ok(last.or(self.data).filter(|message| !message.is_empty()))
    }

    fn line(&mut self) -> Result<Option<String>, FrameError> {
        let unread = self.bytes.get(self.scanned..).unwrap_or_default();
        let Some(length) = unread.iter().position(|byte| *byte == b'\n') else {
            self.scanned = self.bytes.len();
            return Ok(None);
        };
        let end = self.scanned + length;
        let line = text(self.bytes.get(self.begin..end).unwrap_or_default())?;
        self.begin = end + 1;
        self.scanned = self.begin;
        Ok(Some(line))
    }

    /// Returns a message if this line ends one.
    fn take(&mut self, line: &str) -> Option<String> {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        match self.framing {
            Framing::Lines => Some(line.trim().to_owned()).filter(|line| !line.is_empty()),
            Framing::Events if line.is_empty() => mem::take(&mut self.data).filter(|data| !data.is_empty()),
            Framing::Events => {
                if let Some(data) = line.strip_prefix("data:") {
                    let data = data.strip_prefix(' ').unwrap_or(data);
                    match &mut self.data {
                        Some(known) => {
                            known.push('\n');
                            known.push_str(data);
                        }
                        None => self.data = Some(data.to_owned()),
                    }
                }
                None
            }
        }
    }
}

fn text(bytes: &[u8]) -> Result<String, FrameError> {
    str::from_utf8(bytes).map(str::to_owned).map_err(|_| FrameError::NotText)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages that are parsed when the bytes arrive in chunks of this size.
    fn parse_all(framing: Framing, bytes: &[u8], piece: usize) -> Result<Vec<String>, FrameError> {
        let mut frames = FrameParser::new(framing);
        let mut messages = Vec::new();
        for piece in bytes.chunks(piece) {
            frames.push(piece);
            while let Some(message) = frames.next()? {
                messages.push(message);
            }
        }
        messages.extend(frames.rest()?);
        Ok(messages)
    }

    #[test]
    fn events_are_the_same_however_they_are_cut_into_pieces() {
        let stream = "\u{feff}: hello\r\nevent: a\r\ndata: {\"n\":\r\ndata:1}\r\n\r\n\n\nid: 7\ndata: é😀\n\ndata: last";
        for piece in [1, 2, 3, 7, stream.len()] {
            let messages = parse_all(Framing::Events, stream.as_bytes(), piece).expect("readable");
            assert_eq!(messages, ["{\"n\":\n1}", "é😀", "last"], "pieces of {piece}");
        }
    }

    #[test]
    fn lines_are_the_same_however_they_are_cut_into_pieces() {
        let stream = "{\"a\":1}\r\n\n{\"b\":\"é\"}\n{\"c\":3}";
        for piece in [1, 2, 5, stream.len()] {
            let messages = parse_all(Framing::Lines, stream.as_bytes(), piece).expect("readable");
            assert_eq!(messages, ["{\"a\":1}", "{\"b\":\"é\"}", "{\"c\":3}"], "pieces of {piece}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        assert_eq!(parse_all(Framing::Events, b"data: \xff\xfe\n\n", 64), Err(FrameError::NotText));
    }

    #[test]
    fn a_message_without_an_end_is_refused_before_it_fills_the_memory() {
        let endless = vec![b'x'; MESSAGE_BYTES_MAX + 1];
        assert_eq!(parse_all(Framing::Lines, &endless, 1 << 20), Err(FrameError::TooLong));
        let many_lines = "data: xxxxxxxxxxxxxxxx\n".repeat(MESSAGE_BYTES_MAX / 16);
        assert_eq!(parse_all(Framing::Events, many_lines.as_bytes(), 1 << 20), Err(FrameError::TooLong));
    }
}
