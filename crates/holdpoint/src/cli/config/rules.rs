//! `[[agents.NAME.rules]]`: decisions that depend on the arguments of a call.

use engine::agent::{ArgumentTest, Condition, Rule, RuleAction};
use machine::id::ToolName;
use serde_json::Value;

use super::agents::Tools;
use super::pattern;
use super::schema_analysis::SchemaAnalysis;
use super::source::Location;
use super::table::{Entry, Table};

const OPERATORS: [&str; 10] = ["eq", "ne", "lt", "lte", "gt", "gte", "in", "matches", "present", "absent"];
const THEN: [(&str, RuleAction); 3] =
    [("allow", RuleAction::Allow), ("ask", RuleAction::Ask), ("deny", RuleAction::Deny)];

/// In the order of the file: a refused call names its rule by its index, starting at 0.
pub(super) fn read(entry: &Entry<'_>, tools: &Tools) -> Vec<Rule> {
    let items = entry.items("[[agents.NAME.rules]] tables").unwrap_or_default();
    let tables = items.iter().filter_map(|item| item.table("a table with tool, when and then"));
    let read: Vec<(Rule, Vec<LocatedCondition<'_>>)> =
        tables.filter_map(|table| read_rule(table, tools)).collect();
    let rules: Vec<Rule> = read.iter().map(|(rule, _)| rule.clone()).collect();
    for (rule, when) in &read {
        if let Some(definition) = tools.definition(rule.tool.as_str()) {
            check(rule, when, &definition.parameters, &rules);
        }
    }
    rules
}

fn read_rule<'f>(mut table: Table<'f>, tools: &Tools) -> Option<(Rule, Vec<LocatedCondition<'f>>)> {
    let tool = table.require("tool", "the name of a tool of this agent").and_then(|entry| {
        let name = entry.text("the name of a tool of this agent")?;
        if tools.include(name) {
            return Some(ToolName::from(name));
        }
        entry.location.refuse(match tools.names() {
            [] => format!("this agent has no tool {name:?}; add it to tools"),
            known => format!(
                "this agent has no tool {name:?}; add it to tools, or use one of {}",
                known.join(", ")
            ),
        })
    });
    let when = table.take("when").map(|entry| conditions(&entry)).unwrap_or_default();
    let then = table.require("then", "one of allow, ask, deny").and_then(|entry| entry.choice(&THEN));
    table.finish();
    let conditions = when.iter().map(|located| located.condition.clone()).collect();
    Some((Rule { tool: tool?, when: conditions, then: then? }, when))
}

/// A condition, with the locations of its path and its test.
struct LocatedCondition<'f> {
    condition: Condition,
    path: Location<'f>,
    test: Location<'f>,
}

const WHEN: &str = "conditions, such as { amount = { gte = 0, lte = 100 } }";

fn conditions<'f>(entry: &Entry<'f>) -> Vec<LocatedCondition<'f>> {
    let mut found = Vec::new();
    if let Some(table) = entry.table(WHEN) {
        if table.keys().next().is_none() {
            entry
                .location
                .fault("there is no condition; write one, or remove `when` for a rule that always holds");
        }
        collect_conditions(table, &[], &mut found);
    }
    found
}

/// A path is written as one key with dots or as nested tables. A table that contains only tests ends the path.
fn collect_conditions<'f>(table: Table<'f>, above: &[String], found: &mut Vec<LocatedCondition<'f>>) {
    for (key, entry) in table.into_entries() {
        let path: Vec<String> = above.iter().cloned().chain(key.split('.').map(String::from)).collect();
        if !entry.is_table() {
            entry.location.fault(format!(
                "this is no condition; write a test, such as {{ eq = … }}; the tests are {}",
                OPERATORS.join(", ")
            ));
            continue;
        }
        let Some(inner) = entry.table(WHEN) else { continue };
        let key_count = inner.keys().count();
        let test_count = inner.keys().filter(|key| OPERATORS.contains(key)).count();
        if key_count == 0 {
            entry.location.fault(format!("there is no test; write one of {}", OPERATORS.join(", ")));
        } else if test_count == key_count {
            for (operator, written) in inner.into_entries() {
                found.extend(test(operator, &written).map(|test| LocatedCondition {
                    condition: Condition { path: path.clone(), test },
                    path: entry.location.clone(),
                    test: written.location,
                }));
            }
        } else if test_count == 0 {
            collect_conditions(inner, &path, found);
        } else {
            entry.location.fault(format!(
                "tests and other keys stand side by side; the tests are {}, and a path goes into one key in quotes",
                OPERATORS.join(", ")
            ));
        }
    }
}

fn test(operator: &str, entry: &Entry<'_>) -> Option<ArgumentTest> {
    match operator {
        "eq" => entry.json().map(ArgumentTest::Eq),
        "ne" => entry.json().map(ArgumentTest::Ne),
        "lt" => entry.number().map(ArgumentTest::Lt),
        "lte" => entry.number().map(ArgumentTest::Lte),
        "gt" => entry.number().map(ArgumentTest::Gt),
        "gte" => entry.number().map(ArgumentTest::Gte),
        "in" => {
            let items = entry.items("a list of values")?;
            if items.is_empty() {
                return entry.location.refuse("nothing is in an empty list; write the values");
            }
            items.iter().map(Entry::json).collect::<Option<Vec<_>>>().map(ArgumentTest::In)
        }
        "matches" => pattern::read(entry).map(ArgumentTest::Matches),
        "present" => require_true(entry, "absent").map(|()| ArgumentTest::Present),
        "absent" => require_true(entry, "present").map(|()| ArgumentTest::Absent),
        other => entry.location.refuse(format!("{other:?} is no test")),
    }
}

/// `opposite` is the test that `false` would mean.
fn require_true(entry: &Entry<'_>, opposite: &str) -> Option<()> {
    if entry.boolean()? {
        return Some(());
    }
    entry.location.refuse(format!("this test is never off; write {opposite} = true for the opposite"))
}

/// Compares a rule with its tool's schema. A test that the schema makes impossible is a fault. A gap that the schema
/// leaves open and a model could use is a warning.
fn check(rule: &Rule, when: &[LocatedCondition<'_>], schema: &Value, all: &[Rule]) {
    let Some(analysis) = SchemaAnalysis::new(schema) else { return };
    let mut checked: Vec<&[String]> = Vec::new();
    for located in when {
        let path = located.condition.path.as_slice();
        if !checked.contains(&path) {
            checked.push(path);
            let here: Vec<&LocatedCondition<'_>> =
                when.iter().filter(|other| other.condition.path == path).collect();
            if check_path(rule, &here, &analysis) && rule.then != RuleAction::Allow {
                warn_if_optional(rule, &here, &analysis, all);
            }
        }
    }
    if rule.then == RuleAction::Allow {
        warn_if_open(rule, when, &analysis);
    }
}

/// Checks all tests of one path. False if they can never pass.
fn check_path(rule: &Rule, here: &[&LocatedCondition<'_>], analysis: &SchemaAnalysis<'_>) -> bool {
    let Some(first) = here.first() else { return true };
    let (tool, path) = (&rule.tool, first.condition.path.as_slice());
    let name = path.join(".");
    let values = analysis.at(path);
    if values.is_empty() {
        let above = path.split_last().map_or(path, |(_, above)| above);
        let keys: Vec<String> = analysis.at(above).keys().into_iter().map(|key| format!("{key:?}")).collect();
        let next = match keys.as_slice() {
            [] => "correct the path, or the schema".to_owned(),
            keys => format!("use one of {}, or correct the schema", keys.join(", ")),
        };
        first.path.fault(format!(
            "the schema of tool {tool} does not allow {name:?}, so this rule never matches; {next}"
        ));
        return false;
    }
    let mut each_can_hold = true;
    for located in here {
        let test = &located.condition.test;
        let can_hold = match test {
            ArgumentTest::Absent => !analysis.requires(path),
            ArgumentTest::Eq(_)
            | ArgumentTest::Ne(_)
            | ArgumentTest::Lt(_)
            | ArgumentTest::Lte(_)
            | ArgumentTest::Gt(_)
            | ArgumentTest::Gte(_)
            | ArgumentTest::In(_)
            | ArgumentTest::Matches(_)
            | ArgumentTest::Present => values.can_pass(&[test]),
        };
        if !can_hold {
            each_can_hold = false;
            located.test.fault(if *test == ArgumentTest::Absent {
                format!(
                    "the schema of tool {tool} requires {name:?}, so this rule never matches; remove the test, or \
                     make the argument optional"
                )
            } else {
                format!(
                    "the schema of tool {tool} allows no {name:?} that passes this test, so this rule never \
                     matches; there it is {}: correct the test, or the schema",
                    values.describe()
                )
            });
        }
    }
    let tests: Vec<&ArgumentTest> = here.iter().map(|located| &located.condition.test).collect();
    if each_can_hold && tests != [&ArgumentTest::Absent] && !values.can_pass(&tests) {
        first.path.fault(format!(
            "no {name:?} that the schema of tool {tool} allows passes all of these tests, so this rule never matches; \
             correct the tests, or write a rule for each"
        ));
        return false;
    }
    each_can_hold
}

/// A model can get around a `deny` or `ask` rule by omitting the argument.
fn warn_if_optional(
    rule: &Rule,
    here: &[&LocatedCondition<'_>],
    analysis: &SchemaAnalysis<'_>,
    all: &[Rule],
) {
    let Some(first) = here.first() else { return };
    let path = first.condition.path.as_slice();
    let asks_only_whether = here
        .iter()
        .all(|located| matches!(located.condition.test, ArgumentTest::Present | ArgumentTest::Absent));
    let covers = |other: &Rule| {
        let is_about_absence = |condition: &Condition| {
            condition.test == ArgumentTest::Absent && path.starts_with(&condition.path)
        };
        other.tool == rule.tool && other.then >= rule.then && other.when.iter().all(is_about_absence)
    };
    if asks_only_whether || analysis.requires(path) || all.iter().any(covers) {
        return;
    }
    let (name, last) = (path.join("."), path.last().map(String::as_str).unwrap_or_default());
    first.path.warn(format!(
        "the model can leave {name:?} out, and then this rule does not match; make the schema of tool {} require it \
         (type = \"object\", required = [{last:?}]), or add a rule with {name:?} = {{ absent = true }}",
        rule.tool
    ));
}

/// An `allow` rule also allows arguments that it does not test.
fn warn_if_open(rule: &Rule, when: &[LocatedCondition<'_>], analysis: &SchemaAnalysis<'_>) {
    let open = when.iter().find_map(|located| Some((located, analysis.first_open(&located.condition.path)?)));
    if let Some((located, above)) = open {
        let inside = if above.is_empty() { String::new() } else { format!(" in {:?}", above.join(".")) };
        located.path.warn(format!(
            "the schema of tool {} allows other keys{inside}, which this rule does not check and the tool may read \
             (such as another spelling of this one); add additionalProperties = false to the schema",
            rule.tool
        ));
    }
}
