//! Which values can be stored and read back, and what they cost in memory.
//!
//! Text from outside is checked before a value is built ([`json_text`](crate::json_text)). Values that a tool or a
//! plugin built in this process are checked here.

use alloc::vec;
use core::fmt;
use serde_json::Value;

/// Maximum depth of one stored value. Far below a JSON parser's limit, with room for the event around the value.
pub const VALUE_DEPTH_MAX: usize = 64;
/// Maximum objects, arrays and scalars of one stored value: at most some 20 MB of memory.
pub const VALUE_NODES_MAX: usize = 50_000;
/// `serde_json` gives keys with this prefix a special meaning: an object that has one is not read back as it was
/// written, or not at all.
pub const RESERVED_KEY_PREFIX: &str = "$serde_json::private::";

/// Why a value cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueFault {
    TooDeep,
    TooManyNodes { nodes_max: usize },
    ReservedKey,
}

impl fmt::Display for ValueFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep => f.write_str("nested too deeply"),
            Self::TooManyNodes { nodes_max } => write!(f, "more than {nodes_max} JSON values"),
            Self::ReservedKey => write!(f, "a key begins with `{RESERVED_KEY_PREFIX}`, which is reserved"),
        }
    }
}

/// None if the value can be stored and read back.
#[must_use]
pub fn fault(value: &Value) -> Option<ValueFault> {
    fault_within(value, VALUE_NODES_MAX)
}

/// Like [`fault`] with another size limit. Uses its own stack: a hostile value must not exhaust the thread's.
#[must_use]
pub fn fault_within(value: &Value, nodes_max: usize) -> Option<ValueFault> {
    let mut stack = vec![(value, 1)];
    let mut nodes = 0_usize;
    while let Some((here, depth)) = stack.pop() {
        nodes += 1;
        if depth > VALUE_DEPTH_MAX {
            return Some(ValueFault::TooDeep);
        }
        if nodes > nodes_max {
            return Some(ValueFault::TooManyNodes { nodes_max });
        }
        match here {
            Value::Array(items) => stack.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(fields) => {
                if fields.keys().any(|key| is_reserved(key)) {
                    return Some(ValueFault::ReservedKey);
                }
                stack.extend(fields.values().map(|field| (field, depth + 1)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    None
}

fn is_reserved(key: &str) -> bool {
    key.starts_with(RESERVED_KEY_PREFIX)
}

/// Estimated memory of a value.
#[must_use]
pub fn memory_bytes(value: &Value) -> usize {
    let mut memory = MemoryEstimate::new();
    let mut stack = vec![value];
    while let Some(here) = stack.pop() {
        memory.add_node();
        match here {
            Value::Array(items) => stack.extend(items),
            Value::Object(fields) => {
                memory.add_object(fields.len());
                fields.keys().for_each(|key| memory.add_text(key.len()));
                stack.extend(fields.values());
            }
            Value::String(text) => memory.add_text(text.len()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    memory.bytes()
}

/// A sum over the parts of a value. Objects dominate: an object with one entry takes as much as one with eleven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryEstimate(usize);

/// Its slot in an array that grows by doubling.
const NODE_BYTES: usize = 48;
/// The allocator's overhead for a text.
const TEXT_BYTES: usize = 16;
/// A leaf of an object's B-tree, which is about half full.
const LEAF_BYTES: usize = 656;
const LEAF_ENTRIES: usize = 6;

impl MemoryEstimate {
    pub(crate) const fn new() -> Self {
        Self(0)
    }

    pub(crate) const fn add_node(&mut self) {
        self.0 += NODE_BYTES;
    }

    pub(crate) const fn add_text(&mut self, length: usize) {
        self.0 += if length == 0 { 0 } else { length + TEXT_BYTES };
    }

    /// The object without its keys and values.
    pub(crate) const fn add_object(&mut self, entries: usize) {
        self.0 += entries.div_ceil(LEAF_ENTRIES) * LEAF_BYTES;
    }

    pub(crate) const fn bytes(self) -> usize {
        self.0
    }
}
