//! Whether an event has the fields of its type, each in its form.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::event::AgUiDialect;
use super::event_fields::{AgUiField, AgUiForm};
use super::verify::{AgUiFault, AgUiRule};

const OPERATIONS: [&str; 6] = ["add", "remove", "replace", "move", "copy", "test"];
const NEW_OUTCOME_FIELDS: [&str; 1] = ["pendingToolCallIds"];

/// A rule that a value breaks, and how.
type AgUiProblem = (AgUiRule, String);

pub(super) fn check_fields(
    kind: &str,
    event: &Value,
    fields: &[AgUiField],
    dialect: AgUiDialect,
) -> Result<(), AgUiFault> {
    let fault = |(rule, detail): AgUiProblem| AgUiFault::new(rule, kind, detail);
    let members = event.as_object().ok_or_else(|| fault(malformed("type", "not a member of an object")))?;
    for (name, value) in members {
        check_member(name, value, fields, dialect).map_err(fault)?;
    }
    for field in fields.iter().filter(|field| field.is_required) {
        if !members.contains_key(field.name) {
            return Err(fault(malformed(field.name, "missing")));
        }
    }
    Ok(())
}

/// The text of a field that was checked. Empty if it is absent.
pub(super) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The items of a list that was checked. Empty if it is absent.
pub(super) fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn malformed(name: &str, problem: &str) -> AgUiProblem {
    (AgUiRule::Malformed, format!("`{name}` is {problem}"))
}

fn check_member(
    name: &str,
    value: &Value,
    fields: &[AgUiField],
    dialect: AgUiDialect,
) -> Result<(), AgUiProblem> {
    match name {
        "type" => return Ok(()),
        "timestamp" if value.is_i64() => return Ok(()),
        "timestamp" => return Err((AgUiRule::Timestamp, format!("`timestamp` is {value}"))),
        "metadata" => return check_form(name, value, AgUiForm::Object, dialect),
        _ => {}
    }
    let known = fields.iter().find(|field| field.name == name);
    match known.filter(|field| dialect == AgUiDialect::V1_0 || !field.is_new) {
        Some(field) => check_form(name, value, field.form, dialect),
        None => Err((AgUiRule::UnknownField, format!("the client does not know `{name}`"))),
    }
}

fn check_form(name: &str, value: &Value, form: AgUiForm, dialect: AgUiDialect) -> Result<(), AgUiProblem> {
    if value.is_null() && form != AgUiForm::Any {
        return Err((AgUiRule::NullField, format!("`{name}` is null; it has to be absent")));
    }
    let is_right = match form {
        AgUiForm::Any => true,
        AgUiForm::Text => value.is_string(),
        AgUiForm::Object => value.is_object(),
        AgUiForm::List => value.is_array(),
        AgUiForm::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
        AgUiForm::Content => value.is_string() || (dialect == AgUiDialect::V1_0 && value.is_array()),
        AgUiForm::Outcome => return check_outcome(value, dialect),
        AgUiForm::SubagentOutcome => return check_subagent_outcome(value),
        AgUiForm::Messages => return check_messages(value, dialect),
        AgUiForm::Patch => return check_patch(value),
    };
    if is_right { Ok(()) } else { Err(malformed(name, &format!("not of the form {form:?}"))) }
}

fn check_outcome(outcome: &Value, dialect: AgUiDialect) -> Result<(), AgUiProblem> {
    let wrong = |detail: &str| (AgUiRule::Outcome, detail.to_owned());
    let members = outcome.as_object().ok_or_else(|| wrong("the outcome is not an object"))?;
    let kind = text(outcome, "type");
    let known: &[&str] = match (kind, dialect) {
        ("success", AgUiDialect::V1_0) => &NEW_OUTCOME_FIELDS,
        ("success", AgUiDialect::Before) | ("cancelled", AgUiDialect::V1_0) => &[],
        ("interrupt", _) => &["interrupts"],
        _ => return Err(wrong(&format!("the client does not know the outcome `{kind}`"))),
    };
    if let Some(name) = members.keys().find(|name| *name != "type" && !known.contains(&name.as_str())) {
        return Err(wrong(&format!("the client does not know `{name}` in the outcome `{kind}`")));
    }
    if kind == "interrupt" { check_interrupts(list(outcome, "interrupts"), dialect) } else { Ok(()) }
}

fn check_interrupts(interrupts: &[Value], dialect: AgUiDialect) -> Result<(), AgUiProblem> {
    if interrupts.is_empty() {
        return Err((AgUiRule::InterruptsEmpty, "there is nothing to answer".to_owned()));
    }
    let mut ids = BTreeSet::new();
    for interrupt in interrupts {
        let members =
            interrupt.as_object().ok_or_else(|| malformed("interrupts", "not a list of objects"))?;
        for (name, value) in members {
            let form = match name.as_str() {
                "id" | "reason" | "message" | "toolCallId" => AgUiForm::Text,
                "expiresAt" | "subagentRunId" if dialect == AgUiDialect::V1_0 => AgUiForm::Text,
                "responseSchema" | "metadata" => AgUiForm::Object,
                _ => return Err((AgUiRule::UnknownField, format!("`{name}` of an interrupt"))),
            };
            check_form(name, value, form, dialect)?;
        }
        require(members, &["id", "reason"])?;
        let id = text(interrupt, "id");
        if !ids.insert(id) {
            return Err((AgUiRule::InterruptRepeated, format!("two interrupts are `{id}`")));
        }
    }
    Ok(())
}

fn check_subagent_outcome(outcome: &Value) -> Result<(), AgUiProblem> {
    let known: &[&str] = match text(outcome, "type") {
        "success" => &[],
        "suspended" => &["interruptIds"],
        other => return Err((AgUiRule::Outcome, format!("a subagent cannot end as `{other}`"))),
    };
    let members = outcome.as_object().into_iter().flat_map(Map::keys);
    match members.into_iter().find(|name| *name != "type" && !known.contains(&name.as_str())) {
        Some(name) => Err((AgUiRule::Outcome, format!("`{name}` in the outcome of a subagent"))),
        None => Ok(()),
    }
}

fn check_messages(messages: &Value, dialect: AgUiDialect) -> Result<(), AgUiProblem> {
    let messages = messages.as_array().ok_or_else(|| malformed("messages", "not a list"))?;
    for message in messages {
        let members = message.as_object().ok_or_else(|| malformed("messages", "not a list of objects"))?;
        if let Some((name, _)) = members.iter().find(|(_, value)| value.is_null()) {
            return Err((AgUiRule::NullField, format!("`{name}` of a message is null")));
        }
        let required: &[&str] = match text(message, "role") {
            "assistant" => &["id"],
            "tool" => &["id", "toolCallId", "content"],
            "user" | "reasoning" | "system" | "developer" => &["id", "content"],
            other => return Err(malformed("role", &format!("`{other}`, which is not a role"))),
        };
        require(members, required)?;
        if let Some(content) = message.get("content") {
            let takes_parts = text(message, "role") == "user";
            let form = if takes_parts { AgUiForm::Any } else { AgUiForm::Content };
            check_form("content", content, form, dialect)?;
        }
        for call in list(message, "toolCalls") {
            let function = call.get("function").and_then(Value::as_object);
            require(call.as_object().unwrap_or(&Map::new()), &["id", "type"])?;
            require(function.unwrap_or(&Map::new()), &["name", "arguments"])?;
        }
    }
    Ok(())
}

/// These members are there, and the scalar ones among them are text.
fn require(members: &Map<String, Value>, names: &[&str]) -> Result<(), AgUiProblem> {
    for name in names {
        match members.get(*name) {
            None => return Err(malformed(name, "missing")),
            Some(Value::String(_) | Value::Array(_) | Value::Object(_)) => {}
            Some(Value::Null | Value::Bool(_) | Value::Number(_)) => {
                return Err(malformed(name, "not a string"));
            }
        }
    }
    Ok(())
}

fn check_patch(patch: &Value) -> Result<(), AgUiProblem> {
    for operation in patch.as_array().ok_or_else(|| malformed("delta", "not a list"))? {
        let name = text(operation, "op");
        if !OPERATIONS.contains(&name) {
            return Err(malformed("op", &format!("`{name}`, which is no operation")));
        }
        let pointers = ["path", "from"].into_iter().filter(|field| match *field {
            "from" => matches!(name, "move" | "copy"),
            _ => true,
        });
        for field in pointers {
            let pointer = operation.get(field).and_then(Value::as_str);
            if !pointer.is_some_and(|pointer| pointer.is_empty() || pointer.starts_with('/')) {
                return Err((AgUiRule::PatchPath, format!("`{field}` is not a JSON pointer")));
            }
        }
        if matches!(name, "add" | "replace" | "test") && operation.get("value").is_none() {
            return Err(malformed("value", "missing"));
        }
    }
    Ok(())
}
