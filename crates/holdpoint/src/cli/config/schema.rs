//! A JSON Schema, as a table, as JSON in a string, or in a file: the `parameters` of a tool, the `output_schema` of an
//! agent.

use engine::arguments::Schema;
use machine::json_text::{self, Bounds};
use serde_json::Value;

use super::table::Entry;

pub(super) const PARAMETERS: &str =
    "a JSON Schema, such as { type = \"object\" } or { file = \"NAME.json\" }";

pub(super) fn read(entry: &Entry<'_>) -> Option<Value> {
    let schema = if entry.is_text() {
        parse(entry, entry.text(PARAMETERS)?, "")?
    } else {
        match schema_file(entry) {
            Some(path) => parse(entry, &entry.location.read_text(path)?, &format!("{path}: "))?,
            None => {
                entry.table(PARAMETERS)?;
                entry.json()?
            }
        }
    };
    if !schema.is_object() {
        return entry.location.refuse(format!("this is no JSON object; write {PARAMETERS}"));
    }
    match Schema::compile(&schema) {
        Ok(_) => Some(schema),
        Err(why) => entry.location.refuse(format!("this is no JSON Schema: {why}")),
    }
}

fn parse(entry: &Entry<'_>, text: &str, from: &str) -> Option<Value> {
    match json_text::parse(text, &Bounds::VALUE) {
        Ok(schema) => Some(schema),
        Err(fault) if !fault.is_syntax() => entry.location.refuse(format!("{from}{fault}; correct it")),
        Err(why) => entry.location.refuse(format!("{from}this is not JSON: {why}; correct it")),
    }
}

/// The path, if `file` is the only key of the table: such a table would make no sense as a schema.
fn schema_file<'f>(entry: &Entry<'f>) -> Option<&'f str> {
    if !entry.is_table() {
        return None;
    }
    let mut table = entry.table(PARAMETERS)?;
    if table.keys().ne(["file"]) {
        return None;
    }
    let file = table.take("file")?;
    if file.is_text() { file.text("a path") } else { None }
}
