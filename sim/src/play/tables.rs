//! The coverage tables: every cell, and why some of them can never be counted.

use std::fmt::Write as _;

use machine::phase::Phase;
use machine::status::CallStatus;
use machine::suspension::{ResumeMode, SuspensionKind};
use machine::termination::StopCode;

use crate::play::coverage::{Cell, Coverage, Table};
use crate::play::names;

const ACTIONS: [&str; 13] = [
    "set_state",
    "end",
    "add_instruction",
    "hide_tool",
    "set_param",
    "replace_message",
    "skip_inference",
    "drop_call",
    "set_arguments",
    "block",
    "suspend",
    "set_result",
    "add_note",
];
const HAPPENINGS: [&str; 6] = ["decision", "interrupt", "expiry", "crash", "new message", "child's end"];
const RUN_STATUSES: [&str; 6] =
    ["Queued", "Running", "Waiting(person)", "Waiting(tool)", "Interrupting", "Done"];
const STORE: [&str; 5] = [
    "worker lost before the append",
    "worker lost after the append",
    "append fenced",
    "append behind",
    "lease handed to another worker",
];
const STOP_CONDITIONS: [&str; 7] = [
    "MaxRounds",
    "Timeout",
    "TokenBudget",
    "ConsecutiveErrors",
    "StopOnTool",
    "ContentMatch",
    "LoopDetection",
];
const TERMINATIONS: [&str; 10] = [
    "NaturalEnd",
    "BehaviorRequested",
    "Cancelled(Interrupted)",
    "Cancelled(Superseded)",
    "Cancelled(ByParent)",
    "Blocked",
    "Error(Model)",
    "Error(Hook)",
    "Error(Output)",
    "Error(Unknown)",
];
const OUTCOMES: [&str; 6] = ["success", "success with warning", "error", "pending", "not sent", "unknown"];
const CHECKPOINTS: [&str; 6] =
    ["user_message", "assistant_turn", "tool_results", "replay_results", "waiting", "run_finished"];
const MESSAGES: [&str; 7] = [
    "Hold",
    "Enqueue",
    "Supersede",
    "Refuse(ActiveRun)",
    "Refuse(QueueFull)",
    "Refuse(InDoubt)",
    "LooseningRefused",
];

/// Every cell of every table, in printing order.
#[must_use]
pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    single(&mut cells, Table::Event, &names::FACTS);
    for from in CallStatus::ALL {
        for to in CallStatus::ALL {
            if from.transition_to(to).is_ok() {
                cells.push((Table::CallTransition, names::call_status(from), names::call_status(to)));
            }
        }
    }
    for (from, to) in run_transitions() {
        cells.push((Table::RunTransition, from, to));
    }
    single(&mut cells, Table::Rejection, &names::REJECTIONS);
    single(&mut cells, Table::Answer, &["Done", "Duplicate", "ToolChanged"]);
    single(&mut cells, Table::Decision, &names::VERDICTS);
    single(&mut cells, Table::LateAnswer, &names::VERDICTS);
    single(&mut cells, Table::EarlyDecision, &names::VERDICTS);
    for kind in SuspensionKind::ALL {
        cells.extend(HAPPENINGS.map(|what| (Table::Suspension, kind.as_str(), what)));
    }
    for (field, values) in names::POLICY_VALUES {
        cells.extend(values.iter().map(|value| (Table::Policy, field, *value)));
    }
    single(&mut cells, Table::StopCondition, &STOP_CONDITIONS);
    single(&mut cells, Table::Termination, &TERMINATIONS);
    single(&mut cells, Table::Termination, &StopCode::ALL.map(StopCode::as_str));
    for phase in Phase::ALL {
        cells.extend(ACTIONS.map(|action| (Table::PhaseAction, names::phase(phase), action)));
        cells.push((Table::PhaseAction, names::phase(phase), "failed"));
    }
    for mode in ResumeMode::ALL {
        for column in ["resumed", "chosen by the decision"] {
            cells.push((Table::ResumeMode, names::resume_mode(mode), column));
        }
    }
    single(&mut cells, Table::Outcome, &OUTCOMES);
    single(&mut cells, Table::CallError, &names::CALL_ERRORS);
    single(&mut cells, Table::CancelReason, &names::CANCEL_REASONS);
    single(&mut cells, Table::Checkpoint, &CHECKPOINTS);
    single(&mut cells, Table::Message, &MESSAGES);
    single(&mut cells, Table::Store, &STORE);
    cells
}

fn single(cells: &mut Vec<Cell>, table: Table, rows: &[&'static str]) {
    cells.extend(rows.iter().map(|row| (table, *row, "")));
}

/// Every pair of the run's table.
fn run_transitions() -> Vec<(&'static str, &'static str)> {
    let mut pairs = Vec::new();
    for from in RUN_STATUSES {
        for to in RUN_STATUSES {
            let legal = match from {
                "Queued" => matches!(to, "Running" | "Interrupting" | "Done"),
                "Running" => matches!(to, "Waiting(person)" | "Waiting(tool)" | "Interrupting" | "Done"),
                "Waiting(person)" => matches!(to, "Running" | "Waiting(tool)" | "Interrupting" | "Done"),
                "Waiting(tool)" => matches!(to, "Running" | "Waiting(person)" | "Interrupting" | "Done"),
                "Interrupting" => to == "Done",
                _ => false,
            };
            if legal {
                pairs.push((from, to));
            }
        }
    }
    pairs
}

/// Why a cell can never be counted, if it cannot.
#[must_use]
pub fn impossible(cell: Cell) -> Option<&'static str> {
    match cell {
        (Table::Rejection, "Broken", _) => Some("a breach of an invariant: it ends the world"),
        (Table::LateAnswer | Table::EarlyDecision, "ToolChanged", _) => {
            Some("only a decision on an open approval was made on what was shown")
        }
        (Table::LateAnswer, "AlreadyApplied" | "Refused(IdUsed)", _) => {
            Some("a late answer has no decision id")
        }
        (Table::LateAnswer, "Refused(Expired)", _) => Some("a late answer does not expire"),
        (Table::LateAnswer, "Refused(DigestMismatch)" | "Refused(Invalid)", _) => {
            Some("a late answer says nothing about arguments and is no decision")
        }
        (
            Table::EarlyDecision,
            "Refused(Answered)" | "Refused(Expired)" | "Refused(DigestMismatch)" | "Refused(Invalid)",
            _,
        ) => Some("an early decision is judged when its call is held"),
        (Table::Suspension, "child_run", "expiry") => Some("a child run is held without an expiry"),
        (Table::RunTransition, "Waiting(tool)", "Waiting(person)") => {
            Some("whatever asks a person executed before, so the run had resumed")
        }
        (Table::RunTransition, "Queued", "Done") => Some("a queued run ends through Interrupting"),
        (Table::RunTransition, "Waiting(person)" | "Waiting(tool)", "Done") => {
            Some("what ends a waiting run wakes it first, or goes through Interrupting")
        }
        (Table::Termination, "Error(Unknown)", _) => Some("only read from a foreign log"),
        (Table::Message, "Refuse(QueueFull)", _) => {
            Some("no world has a hundred messages on one thread; the admission table test has")
        }
        _ => None,
    }
}

/// The printed tables, and the possible cells that were never counted.
#[must_use]
pub fn print(coverage: &Coverage) -> (String, Vec<String>) {
    let mut text = String::new();
    let mut missing = Vec::new();
    let mut last = None;
    for cell in cells() {
        let (table, row, column) = cell;
        if last != Some(table) {
            let _ = writeln!(text, "\n{}", title(table));
            last = Some(table);
        }
        let name = if column.is_empty() { row.to_owned() } else { format!("{row} × {column}") };
        let count = coverage.of(cell);
        let _ = match (count, impossible(cell)) {
            (0, Some(reason)) => writeln!(text, "  {name:<52} impossible: {reason}"),
            (count, Some(reason)) => {
                missing.push(format!("{}: {name} is said to be impossible: {reason}", title(table)));
                writeln!(text, "  {name:<52} {count:>12}  said to be impossible: {reason}")
            }
            (count, None) => {
                if count == 0 {
                    missing.push(format!("{}: {name}", title(table)));
                }
                writeln!(text, "  {name:<52} {count:>12}")
            }
        };
    }
    for (table, row, column) in coverage.unlisted(&cells()) {
        missing.push(format!("{}: {row} {column} is in no table", title(table)));
    }
    (text, missing)
}

const fn title(table: Table) -> &'static str {
    match table {
        Table::Event => "Events",
        Table::CallTransition => "Call transitions",
        Table::RunTransition => "Run transitions",
        Table::Rejection => "Rejections",
        Table::Answer => "Answers",
        Table::Decision => "Verdicts on decisions",
        Table::LateAnswer => "Verdicts on late answers",
        Table::EarlyDecision => "Verdicts on early decisions",
        Table::Suspension => "Open suspension × what happens",
        Table::Policy => "Policy values of runs",
        Table::StopCondition => "Stop conditions of agents",
        Table::Termination => "How runs ended",
        Table::PhaseAction => "Phase × action of a hook (outside of its phase: a fault)",
        Table::ResumeMode => "Resume modes",
        Table::Outcome => "Outcomes of attempts",
        Table::CallError => "Why calls failed",
        Table::CancelReason => "Why calls were cancelled",
        Table::Checkpoint => "Checkpoints",
        Table::Message => "Messages met",
        Table::Store => "Store",
    }
}
