//! `[[agents.NAME.rules]]`: what is decided by the arguments of a call.

use engine::agent::{Condition, Rule, Test, Then};
use machine::id::ToolName;

use super::agents::Tools;
use super::pattern;
use super::table::{Entry, Table};

const OPERATORS: [&str; 8] = ["eq", "ne", "lt", "lte", "gt", "gte", "in", "matches"];
const THEN: [(&str, Then); 3] = [("allow", Then::Allow), ("ask", Then::Ask), ("deny", Then::Deny)];

/// In the order of the file: a refused call names its rule by its place, from 0.
pub(super) fn read(entry: &Entry<'_>, tools: &Tools) -> Vec<Rule> {
    let items = entry.items("[[agents.NAME.rules]] tables").unwrap_or_default();
    let rule = |item: Entry<'_>| read_rule(item.table("a table with tool, when and then")?, tools);
    items.into_iter().filter_map(rule).collect()
}

fn read_rule(mut table: Table<'_>, tools: &Tools) -> Option<Rule> {
    let tool = table.needed("tool", "the name of a tool of this agent").and_then(|entry| {
        let name = entry.text("the name of a tool of this agent")?;
        if tools.include(name) {
            return Some(ToolName::from(name));
        }
        entry.place.refuse(match tools.names() {
            [] => format!("this agent has no tool {name:?}; add it to tools"),
            known => format!(
                "this agent has no tool {name:?}; add it to tools, or use one of {}",
                known.join(", ")
            ),
        })
    });
    let when = table.take("when").map(|entry| conditions(&entry));
    let then = table.needed("then", "one of allow, ask, deny").and_then(|entry| entry.choice(&THEN));
    table.finish();
    Some(Rule { tool: tool?, when: when.unwrap_or_default(), then: then? })
}

const WHEN: &str = "conditions, such as { amount = { lte = 100 } }";

fn conditions(entry: &Entry<'_>) -> Vec<Condition> {
    let mut found = Vec::new();
    if let Some(table) = entry.table(WHEN) {
        if table.keys().next().is_none() {
            entry
                .place
                .fault("there is no condition; write one, or remove `when` for a rule that always holds");
        }
        gather(table, &[], &mut found);
    }
    found
}

/// A path is written as one key with dots or as tables inside of each other; a table of nothing but tests ends it.
fn gather(table: Table<'_>, above: &[String], found: &mut Vec<Condition>) {
    for (key, entry) in table.named() {
        let path: Vec<String> = above.iter().cloned().chain(key.split('.').map(String::from)).collect();
        if !entry.is_table() {
            entry.place.fault(format!(
                "this is no condition; write a test, such as {{ eq = … }}; the tests are {}",
                OPERATORS.join(", ")
            ));
            continue;
        }
        let Some(inner) = entry.table(WHEN) else { continue };
        let key_count = inner.keys().count();
        let test_count = inner.keys().filter(|key| OPERATORS.contains(key)).count();
        if key_count == 0 {
            entry.place.fault(format!("there is no test; write one of {}", OPERATORS.join(", ")));
        } else if test_count == key_count {
            for (operator, entry) in inner.named() {
                found.extend(test(operator, &entry).map(|test| Condition { path: path.clone(), test }));
            }
        } else if test_count == 0 {
            gather(inner, &path, found);
        } else {
            entry.place.fault(format!(
                "tests and other keys stand side by side; the tests are {}, and a path goes into one key in quotes",
                OPERATORS.join(", ")
            ));
        }
    }
}

fn test(operator: &str, entry: &Entry<'_>) -> Option<Test> {
    match operator {
        "eq" => entry.json().map(Test::Eq),
        "ne" => entry.json().map(Test::Ne),
        "lt" => entry.number().map(Test::Lt),
        "lte" => entry.number().map(Test::Lte),
        "gt" => entry.number().map(Test::Gt),
        "gte" => entry.number().map(Test::Gte),
        "in" => {
            let items = entry.items("a list of values")?;
            if items.is_empty() {
                return entry.place.refuse("nothing is in an empty list; write the values");
            }
            items.iter().map(Entry::json).collect::<Option<Vec<_>>>().map(Test::In)
        }
        "matches" => pattern::read(entry).map(Test::Matches),
        other => entry.place.refuse(format!("{other:?} is no test")),
    }
}
