//! How deeply a value may be nested. What is deeper could be stored, but never read back.

use alloc::vec;
use serde_json::Value;

/// Far below what a JSON parser takes, with room for the event around the value.
pub const VALUE_DEPTH_MAX: usize = 64;

/// Walks with a stack of its own: a hostile value must not exhaust the thread's.
#[must_use]
pub fn too_deep(value: &Value) -> bool {
    let mut stack = vec![(value, 1)];
    while let Some((here, depth)) = stack.pop() {
        if depth > VALUE_DEPTH_MAX {
            return true;
        }
        match here {
            Value::Array(items) => stack.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(fields) => stack.extend(fields.values().map(|field| (field, depth + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}
