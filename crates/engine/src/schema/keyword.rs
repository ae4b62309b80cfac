//! Reports what is wrong with a schema by its keyword, and what to write there instead.
//!
//! The library validates a schema against the meta-schema, and its messages are about that one.

use jsonschema::ValidationError;
use serde_json::Value;

/// Longer values are cut off.
const SHOWN_CHARS_MAX: usize = 60;

pub(super) fn fault(error: &ValidationError<'_>) -> String {
    let path = error.instance_path().to_string();
    let value = shortened(error.instance());
    match Position::at(&path) {
        Position::Keyword(keyword) => match expected(keyword) {
            Some(expected) => format!("`{}` is {value}; write {expected}", dotted(&path)),
            None => format!("`{}`: {error}", dotted(&path)),
        },
        Position::Schema if path.is_empty() => format!("it is {value}; write {SCHEMA}"),
        Position::Schema => format!("`{}` is {value}; write {SCHEMA}", dotted(&path)),
    }
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

fn dotted(path: &str) -> String {
    let parts = path.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"));
    parts.collect::<Vec<String>>().join(".")
}

/// What a path in a schema leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position<'p> {
    /// The value of a keyword, or a part of it that is not a schema.
    Keyword(&'p str),
    Schema,
}

impl<'p> Position<'p> {
    fn at(path: &'p str) -> Self {
        let mut position = Position::Schema;
        for part in path.split('/').skip(1) {
            position = match position {
                Position::Schema => Position::Keyword(part),
                Position::Keyword(keyword) if has_named_schemas(keyword) || has_list_of_schemas(keyword) => {
                    Position::Schema
                }
                // The keyword is itself a schema, and this is a keyword in it.
                Position::Keyword(keyword) if is_schema(keyword) => Position::Keyword(part),
                Position::Keyword(keyword) => Position::Keyword(keyword),
            };
        }
        position
    }
}

fn has_named_schemas(keyword: &str) -> bool {
    matches!(keyword, "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas")
}

fn has_list_of_schemas(keyword: &str) -> bool {
    matches!(keyword, "allOf" | "anyOf" | "oneOf" | "prefixItems")
}

fn is_schema(keyword: &str) -> bool {
    matches!(
        keyword,
        "items"
            | "additionalProperties"
            | "additionalItems"
            | "contains"
            | "propertyNames"
            | "unevaluatedItems"
            | "unevaluatedProperties"
            | "not"
            | "if"
            | "then"
            | "else"
    )
}

const SCHEMA: &str = "a schema: an object such as {\"type\": \"string\"}, or true or false";

/// What to write there. None for rarely used keywords.
fn expected(keyword: &str) -> Option<&'static str> {
    Some(match keyword {
        "type" => "one of array, boolean, integer, null, number, object, string, or a list of these",
        "required" => "a list of the names of properties, each once",
        "enum" => "a list of values",
        "pattern" => "a regular expression",
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => "a number",
        "multipleOf" => "a number greater than 0",
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
        | "minContains" | "maxContains" => "a whole number, 0 or more",
        "uniqueItems" | "deprecated" | "readOnly" | "writeOnly" => "true or false",
        "description" | "title" | "format" | "$ref" | "$schema" | "$id" | "$comment" => "a text",
        keyword if has_named_schemas(keyword) => "an object with a name and a schema for each",
        keyword if has_list_of_schemas(keyword) => "a list of schemas that is not empty",
        keyword if is_schema(keyword) => SCHEMA,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::schema::Schema;

    #[test]
    fn a_fault_names_the_keyword_and_says_what_to_write() {
        for (schema, expected) in [
            (json!({"type": "thing"}), "`type` is \"thing\"; write one of array, boolean,"),
            (
                json!({"properties": {"to": {"type": "text"}}}),
                "`properties.to.type` is \"text\"; write one of",
            ),
            (
                json!({"properties": {"type": "string"}}),
                "`properties.type` is \"string\"; write a schema: an object",
            ),
            (json!({"properties": []}), "`properties` is []; write an object with a name"),
            (json!({"required": "to"}), "`required` is \"to\"; write a list of the names"),
            (json!({"required": ["to", 1]}), "`required.1` is 1; write a list of the names"),
            (json!({"items": {"minLength": -1}}), "`items.minLength` is -1; write a whole number, 0 or more"),
            (json!({"anyOf": [{"minimum": "1"}]}), "`anyOf.0.minimum` is \"1\"; write a number"),
            (json!({"additionalProperties": "no"}), "`additionalProperties` is \"no\"; write a schema"),
        ] {
            let why = Schema::compile(&schema).expect_err("it is wrong");
            assert!(why.starts_with(expected), "{schema}: {why}");
            assert!(!why.contains("anyOf' keyword"), "{why}");
        }
    }
}
