//! Applies RFC 6902 patches to the state document.

use serde_json::Value;

/// Applies all operations or none. Returns false if one of them does not apply.
pub(super) fn apply_patch(document: &mut Value, patch: &Value) -> bool {
    let Some(operations) = patch.as_array() else { return false };
    let mut changed = document.clone();
    let applied = operations.iter().all(|operation| apply(&mut changed, operation).is_some());
    if applied {
        *document = changed;
    }
    applied
}

/// The operations that Holdpoint records: `add`, `replace` and `remove`.
fn apply(document: &mut Value, operation: &Value) -> Option<()> {
    let path = operation.get("path")?.as_str()?;
    let value = operation.get("value");
    match operation.get("op")?.as_str()? {
        "add" => add(document, path, value?.clone()),
        "replace" => {
            *document.pointer_mut(path)? = value?.clone();
            Some(())
        }
        "remove" => remove(document, path),
        _ => None,
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *document = value;
        return Some(());
    }
    let (parent, key) = parent_of(document, path)?;
    match parent {
        Value::Object(members) => {
            members.insert(key, value);
        }
        Value::Array(items) => {
            let at = if key == "-" { items.len() } else { key.parse().ok()? };
            if at > items.len() {
                return None;
            }
            items.insert(at, value);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &str) -> Option<()> {
    let (parent, key) = parent_of(document, path)?;
    match parent {
        Value::Object(members) => members.remove(&key).map(drop),
        Value::Array(items) => {
            let at: usize = key.parse().ok()?;
            (at < items.len()).then(|| drop(items.remove(at)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// What the last part of a pointer is in, and that part.
fn parent_of<'d>(document: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    let (parent, key) = path.rsplit_once('/')?;
    Some((document.pointer_mut(parent)?, key.replace("~1", "/").replace("~0", "~")))
}
