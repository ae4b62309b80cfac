//! `stop`: the conditions that stop a run of an agent. The first one that fires wins.

use engine::agent::StopCondition;
use machine::control::LOOP_WINDOW_MAX;
use machine::id::ToolName;

use super::pattern;
use super::table::{Entry, Table};

#[derive(Clone, Copy)]
enum StopKind {
    MaxRounds,
    Timeout,
    TokenBudget,
    ConsecutiveErrors,
    StopOnTool,
    ContentMatch,
    LoopDetection,
}

const KINDS: [(&str, StopKind); 7] = [
    ("max_rounds", StopKind::MaxRounds),
    ("timeout", StopKind::Timeout),
    ("token_budget", StopKind::TokenBudget),
    ("consecutive_errors", StopKind::ConsecutiveErrors),
    ("stop_on_tool", StopKind::StopOnTool),
    ("content_match", StopKind::ContentMatch),
    ("loop_detection", StopKind::LoopDetection),
];

/// The largest integer in TOML, whose integers are signed.
const NUMBER_MAX: u64 = i64::MAX as u64;

pub(super) fn read(entry: &Entry<'_>) -> Vec<StopCondition> {
    let items = entry.items("a list of stop conditions, such as { type = \"max_rounds\", rounds = 25 }");
    let condition = |item: Entry<'_>| {
        read_condition(item.table("a stop condition, such as { type = \"max_rounds\", rounds = 25 }")?)
    };
    items.unwrap_or_default().into_iter().filter_map(condition).collect()
}

fn read_condition(mut table: Table<'_>) -> Option<StopCondition> {
    let words: Vec<&str> = KINDS.iter().map(|(word, _)| *word).collect();
    let kind = table.require("type", &format!("one of {}", words.join(", ")))?.choice(&KINDS)?;
    let condition = match kind {
        StopKind::MaxRounds => {
            number_u32(&mut table, "rounds").map(|rounds| StopCondition::MaxRounds { rounds })
        }
        StopKind::Timeout => {
            number(&mut table, "seconds", NUMBER_MAX).map(|seconds| StopCondition::Timeout { seconds })
        }
        StopKind::TokenBudget => number(&mut table, "max_total", NUMBER_MAX)
            .map(|max_total| StopCondition::TokenBudget { max_total }),
        StopKind::ConsecutiveErrors => {
            number_u32(&mut table, "max").map(|max| StopCondition::ConsecutiveErrors { max })
        }
        StopKind::StopOnTool => {
            let name = table.require("tool_name", "the name of a tool");
            name.and_then(|entry| entry.nonempty("the name of a tool"))
                .map(|name| StopCondition::StopOnTool { tool_name: ToolName::from(name) })
        }
        StopKind::ContentMatch => table
            .require("pattern", "a regular expression")
            .and_then(|entry| pattern::read(&entry))
            .map(|pattern| StopCondition::ContentMatch { pattern }),
        StopKind::LoopDetection => window(&mut table).map(|window| StopCondition::LoopDetection { window }),
    };
    table.finish();
    condition
}

/// How many of the latest calls are compared. Unlike a limit, 0 does not disable it: less than two counts as two.
fn window(table: &mut Table<'_>) -> Option<u16> {
    let meaning = format!("how many of the latest calls are compared, from 2 to {LOOP_WINDOW_MAX}");
    let window = table.require("window", &meaning)?.integer(0, LOOP_WINDOW_MAX as u64)?;
    u16::try_from(window).ok()
}

fn number_u32(table: &mut Table<'_>, key: &'static str) -> Option<u32> {
    number(table, key, u32::MAX.into()).and_then(|number| u32::try_from(number).ok())
}

fn number(table: &mut Table<'_>, key: &'static str, max: u64) -> Option<u64> {
    table.require(key, "a whole number; 0 means no limit")?.integer(0, max)
}
