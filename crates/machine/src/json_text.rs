//! Checks JSON text before a value is built from it.
//!
//! Text from outside is refused before parsing if its value could not be stored and read back, or would cost too much
//! memory: nested too deeply, too many values, a duplicate key in an object, a key that the JSON library reserves, half
//! a surrogate pair, a number that would change. The walk uses its own stack, so hostile nesting cannot exhaust the
//! thread's.

mod quoted;

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write};
use serde_json::Value;

use crate::json_value::{MemoryEstimate, RESERVED_KEY_PREFIX, VALUE_DEPTH_MAX, VALUE_NODES_MAX};
use quoted::{Quoted, hex_value};

/// Maximum number of path steps that a fault names, and maximum characters of each.
const PATH_STEPS_MAX: usize = 16;
const KEY_CHARS_MAX: usize = 100;

/// What a text may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub depth_max: usize,
    pub nodes_max: usize,
}

impl Bounds {
    /// Limits of one value that is to be stored.
    pub const VALUE: Self = Self { depth_max: VALUE_DEPTH_MAX, nodes_max: VALUE_NODES_MAX };
}

/// What the value of a text would cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Objects, arrays, strings, numbers, booleans and nulls. Keys are not counted.
    pub nodes: usize,
    /// Estimated memory of one [`Value`] built from the text.
    pub memory_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    NotJson(&'static str),
    TooDeep {
        depth_max: usize,
    },
    TooManyNodes {
        nodes_max: usize,
    },
    DuplicateKey(String),
    ReservedKey(String),
    LoneSurrogate,
    /// An integer beyond 64 bits, or a number beyond what a double can hold.
    NumberOutOfRange,
}

/// Why a text is refused, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFault {
    pub kind: FaultKind,
    /// `a.b[3]`, without the duplicate or reserved key itself; empty at the root. Only the first step if the nesting is
    /// too deep.
    pub path: String,
    /// Position of the byte at which the walk stopped; both start at 1.
    pub line: usize,
    pub column: usize,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(what) => f.write_str(what),
            Self::TooDeep { depth_max } => write!(f, "nested too deeply, at most {depth_max} levels"),
            Self::TooManyNodes { nodes_max } => write!(f, "more than {nodes_max} JSON values"),
            Self::DuplicateKey(key) => write!(f, "the key {key:?} appears twice in its object"),
            Self::ReservedKey(key) => write!(f, "the key {key:?} is reserved and cannot be stored"),
            Self::LoneSurrogate => f.write_str("a string has half of a surrogate pair"),
            Self::NumberOutOfRange => f.write_str("a number is out of range and would be changed"),
        }
    }
}

impl fmt::Display for TextFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, path, line, column } = self;
        if path.is_empty() {
            write!(f, "{kind}, at line {line} column {column}")
        } else {
            write!(f, "{kind}, in {path:?} at line {line} column {column}")
        }
    }
}

impl TextFault {
    /// The text is not JSON at all.
    #[must_use]
    pub const fn is_syntax(&self) -> bool {
        matches!(self.kind, FaultKind::NotJson(_))
    }
}

/// Builds the value of a text that passes the walk.
pub fn parse(text: &str, bounds: &Bounds) -> Result<Value, TextFault> {
    walk(text.as_bytes(), bounds)?;
    serde_json::from_str(text).map_err(|error| TextFault {
        kind: FaultKind::NotJson("it cannot be read as JSON"),
        path: String::new(),
        line: error.line(),
        column: error.column(),
    })
}

/// Like [`parse`], for bytes that may not be UTF-8.
pub fn parse_bytes(bytes: &[u8], bounds: &Bounds) -> Result<Value, TextFault> {
    match core::str::from_utf8(bytes) {
        Ok(text) => parse(text, bounds),
        Err(error) => {
            Err(Walk::new(bytes, bounds).fault_at(error.valid_up_to(), FaultKind::NotJson("not UTF-8")))
        }
    }
}

/// The cost of the text's value, or the first reason to refuse it.
pub fn walk(bytes: &[u8], bounds: &Bounds) -> Result<Cost, TextFault> {
    let mut walk = Walk::new(bytes, bounds);
    if let Err(error) = core::str::from_utf8(bytes) {
        return Err(walk.fault_at(error.valid_up_to(), FaultKind::NotJson("not UTF-8")));
    }
    match walk.document() {
        Ok(()) => Ok(Cost { nodes: walk.nodes, memory_bytes: walk.memory.bytes() }),
        Err(kind) => Err(walk.fault_at(walk.at, kind)),
    }
}

/// A container that has begun and not ended.
enum OpenContainer {
    Array {
        index: usize,
    },
    Object {
        /// Index of its first key in [`Walk::keys`].
        keys_from: usize,
    },
}

struct Walk<'t> {
    bytes: &'t [u8],
    at: usize,
    bounds: &'t Bounds,
    open: Vec<OpenContainer>,
    /// The keys of all open objects, those of the innermost last.
    keys: Vec<Cow<'t, str>>,
    nodes: usize,
    memory: MemoryEstimate,
}

impl<'t> Walk<'t> {
    const fn new(bytes: &'t [u8], bounds: &'t Bounds) -> Self {
        Self {
            bytes,
            at: 0,
            bounds,
            open: Vec::new(),
            keys: Vec::new(),
            nodes: 0,
            memory: MemoryEstimate::new(),
        }
    }

    fn document(&mut self) -> Result<(), FaultKind> {
        loop {
            self.value()?;
            if !self.after_value()? {
                break;
            }
        }
        match self.peek_token() {
            None => Ok(()),
            Some(_) => Err(FaultKind::NotJson("more text after the end of the value")),
        }
    }

    /// Consumes a scalar, an empty container, or the beginning of a container up to its first value.
    fn value(&mut self) -> Result<(), FaultKind> {
        loop {
            self.count_node()?;
            match self.peek_token() {
                Some(b'[') => {
                    self.at += 1;
                    if self.peek_token() == Some(b']') {
                        self.at += 1;
                        return Ok(());
                    }
                    self.open.push(OpenContainer::Array { index: 0 });
                }
                Some(b'{') => {
                    self.at += 1;
                    if self.peek_token() == Some(b'}') {
                        self.at += 1;
                        return Ok(());
                    }
                    self.open.push(OpenContainer::Object { keys_from: self.keys.len() });
                    self.key()?;
                }
                Some(b'"') => {
                    let length = self.string()?.raw.len();
                    self.memory.add_text(length);
                    return Ok(());
                }
                Some(b'-' | b'0'..=b'9') => return self.number(),
                Some(b't') => return self.literal(b"true"),
                Some(b'f') => return self.literal(b"false"),
                Some(b'n') => return self.literal(b"null"),
                Some(_) => return Err(FaultKind::NotJson("expected a JSON value")),
                None => return Err(FaultKind::NotJson("the text ends where a value is expected")),
            }
        }
    }

    /// Closes the containers that end here. False if the whole document has ended, true if another value follows.
    fn after_value(&mut self) -> Result<bool, FaultKind> {
        loop {
            let token = self.peek_token();
            match (self.open.last_mut(), token) {
                (None, _) => return Ok(false),
                (Some(OpenContainer::Array { index }), Some(b',')) => {
                    *index += 1;
                    self.at += 1;
                    return Ok(true);
                }
                (Some(OpenContainer::Object { .. }), Some(b',')) => {
                    self.at += 1;
                    self.key()?;
                    return Ok(true);
                }
                (Some(OpenContainer::Array { .. }), Some(b']')) => {
                    self.open.pop();
                }
                (Some(&mut OpenContainer::Object { keys_from }), Some(b'}')) => {
                    self.close_object(keys_from)?
                }
                (Some(OpenContainer::Array { .. }), _) => {
                    return Err(FaultKind::NotJson("expected `,` or `]`"));
                }
                (Some(OpenContainer::Object { .. }), _) => {
                    return Err(FaultKind::NotJson("expected `,` or `}`"));
                }
            }
            self.at += 1;
        }
    }

    fn close_object(&mut self, keys_from: usize) -> Result<(), FaultKind> {
        let keys = self.keys.get_mut(keys_from..).unwrap_or_default();
        self.memory.add_object(keys.len());
        keys.sort_unstable();
        let twice = keys.windows(2).find_map(|pair| match pair {
            [one, next] if one == next => Some(truncate_key(one)),
            _ => None,
        });
        self.keys.truncate(keys_from);
        self.open.pop();
        twice.map_or(Ok(()), |key| Err(FaultKind::DuplicateKey(key)))
    }

    fn count_node(&mut self) -> Result<(), FaultKind> {
        self.nodes += 1;
        self.memory.add_node();
        if self.open.len() >= self.bounds.depth_max {
            return Err(FaultKind::TooDeep { depth_max: self.bounds.depth_max });
        }
        if self.nodes > self.bounds.nodes_max {
            return Err(FaultKind::TooManyNodes { nodes_max: self.bounds.nodes_max });
        }
        Ok(())
    }

    /// A key and the colon after it.
    fn key(&mut self) -> Result<(), FaultKind> {
        if self.peek_token() != Some(b'"') {
            return Err(FaultKind::NotJson("expected a key in quotes"));
        }
        let key = self.string()?.unescaped();
        if key.starts_with(RESERVED_KEY_PREFIX) {
            if let Some(OpenContainer::Object { keys_from }) = self.open.pop() {
                self.keys.truncate(keys_from);
            }
            return Err(FaultKind::ReservedKey(truncate_key(&key)));
        }
        self.memory.add_text(key.len());
        self.keys.push(key);
        if self.peek_token() != Some(b':') {
            return Err(FaultKind::NotJson("expected `:`"));
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<Quoted<'t>, FaultKind> {
        self.at += 1;
        let from = self.at;
        let mut escaped = false;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let raw = self.bytes.get(from..self.at).unwrap_or_default();
                    self.at += 1;
                    return Ok(Quoted { raw, escaped });
                }
                Some(b'\\') => {
                    escaped = true;
                    self.at += 1;
                    self.escape()?;
                }
                Some(0..0x20) => return Err(FaultKind::NotJson("a control character in a string")),
                Some(_) => self.at += 1,
                None => return Err(FaultKind::NotJson("the text ends within a string")),
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<(), FaultKind> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => match self.hex4()? {
                0xd800..0xdc00 => {
                    if self.bytes.get(self.at..self.at + 2) != Some(b"\\u") {
                        return Err(FaultKind::LoneSurrogate);
                    }
                    self.at += 1;
                    match self.hex4()? {
                        0xdc00..0xe000 => Ok(()),
                        _ => Err(FaultKind::LoneSurrogate),
                    }
                }
                0xdc00..0xe000 => Err(FaultKind::LoneSurrogate),
                _ => Ok(()),
            },
            Some(_) | None => Err(FaultKind::NotJson("an escape that JSON does not have")),
        }
    }

    /// `u` and four digits.
    fn hex4(&mut self) -> Result<u32, FaultKind> {
        let digits = self.bytes.get(self.at + 1..self.at + 5);
        match digits.and_then(hex_value) {
            Some(code) => {
                self.at += 5;
                Ok(code)
            }
            None => Err(FaultKind::NotJson("`\\u` without four hexadecimal digits")),
        }
    }

    fn number(&mut self) -> Result<(), FaultKind> {
        let from = self.at;
        let negative = self.take(b'-');
        if self.take(b'0') {
            if matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(FaultKind::NotJson("a number with a leading zero"));
            }
        } else {
            self.digits()?;
        }
        let mut integer = true;
        if self.take(b'.') {
            integer = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            integer = false;
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        let text =
            core::str::from_utf8(self.bytes.get(from..self.at).unwrap_or_default()).unwrap_or_default();
        let fits = match (integer, negative) {
            (true, false) => text.parse::<u64>().is_ok(),
            (true, true) => text.parse::<i64>().is_ok(),
            (false, _) => text.parse::<f64>().is_ok_and(f64::is_finite),
        };
        if fits { Ok(()) } else { Err(FaultKind::NumberOutOfRange) }
    }

    fn digits(&mut self) -> Result<(), FaultKind> {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == from { Err(FaultKind::NotJson("expected a digit")) } else { Ok(()) }
    }

    fn literal(&mut self, literal: &'static [u8]) -> Result<(), FaultKind> {
        if self.bytes.get(self.at..self.at + literal.len()) != Some(literal) {
            return Err(FaultKind::NotJson("expected a JSON value"));
        }
        self.at += literal.len();
        Ok(())
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The next byte that is not white space.
    fn peek_token(&mut self) -> Option<u8> {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
        self.peek()
    }

    fn fault_at(&self, at: usize, kind: FaultKind) -> TextFault {
        let before = self.bytes.get(..at).unwrap_or(self.bytes);
        let line_from = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let steps = match &kind {
            FaultKind::TooDeep { .. } => 1,
            FaultKind::NotJson(_)
            | FaultKind::TooManyNodes { .. }
            | FaultKind::DuplicateKey(_)
            | FaultKind::ReservedKey(_)
            | FaultKind::LoneSurrogate
            | FaultKind::NumberOutOfRange => PATH_STEPS_MAX,
        };
        TextFault {
            path: self.path(steps),
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            column: before.len() - line_from + 1,
            kind,
        }
    }

    fn path(&self, steps_max: usize) -> String {
        let mut path = String::new();
        for (place, open) in self.open.iter().enumerate().take(steps_max) {
            match open {
                OpenContainer::Array { index } => {
                    let _ = write!(path, "[{index}]");
                }
                OpenContainer::Object { keys_from } => {
                    // The last key of an object is the one whose value is open.
                    let inner = self.open.iter().skip(place + 1).find_map(|open| match open {
                        OpenContainer::Object { keys_from } => Some(*keys_from),
                        OpenContainer::Array { .. } => None,
                    });
                    let until = inner.unwrap_or(self.keys.len());
                    let key = self.keys.get(*keys_from..until).and_then(<[_]>::last);
                    if let Some(key) = key {
                        let dot = if path.is_empty() { "" } else { "." };
                        let _ = write!(path, "{dot}{}", truncate_key(key));
                    }
                }
            }
        }
        path
    }
}

fn truncate_key(key: &str) -> String {
    match key.char_indices().nth(KEY_CHARS_MAX) {
        Some((end, _)) => key.get(..end).unwrap_or_default().to_string() + "…",
        None => key.to_string(),
    }
}
