//! The bare machine: what one decision costs, and whether a late step costs more than an early one.

pub(crate) mod allocations;
pub(crate) mod measurement;
mod workload;

use std::hint::black_box;
use std::ops::RangeInclusive;

use machine::event_codec;
use machine::{Control, Event, Input, Run};

use crate::progress::Progress;
use crate::report::{Figure, Unit};
use crate::statistics::{Summary, median};
use measurement::{Cost, MachineEffort, cost, measured};
use workload::{
    after, answer, approve, drive, gate_echo, gate_transfer, held, long_step, queued, returned, say, start,
    time_of, w1,
};

/// The windows of steps whose medians are compared. The machine remembers up to 128 settled calls, so that memory is
/// still filling up in the first window and full in the others.
const EARLY_STEPS: RangeInclusive<u32> = 50..=150;
const MIDDLE_STEPS: RangeInclusive<u32> = 200..=300;
const LATE_STEPS: RangeInclusive<u32> = 950..=1_050;

pub(crate) fn run(effort: MachineEffort, progress: &Progress) -> Vec<Figure> {
    progress.phase("decide + apply");
    let mut results = decisions(effort);
    progress.phase("W1");
    results.extend(tool_round(effort));
    progress.phase("control");
    results.extend(control(effort, "W1", "two calls under way", &two_calls_under_way()));
    results.extend(control(effort, "machine", "64 held calls", &held(64)));
    progress.phase("W4");
    results.extend(long_run(effort));
    results
}

fn two_calls_under_way() -> Run {
    after(queued().0, &w1().into_iter().take(2).flatten().collect::<Vec<Input>>())
}

/// One `decide` and the `apply` of its events.
fn decisions(effort: MachineEffort) -> Vec<Figure> {
    let calls = |tools: &[&'static str]| -> Vec<(String, &'static str)> {
        (0..).map(|index: usize| format!("call_{index}")).zip(tools.iter().copied()).collect()
    };
    let two = answer(1, "", &calls(&["echo", "echo"]));
    let three = answer(1, "", &calls(&["transfer", "transfer", "echo"]));
    let started = after(queued().0, &[start()]);
    let asked = after(started.clone(), std::slice::from_ref(&two));
    let under_way = two_calls_under_way();
    let one_back = after(under_way.clone(), &[returned(1, "call_0")]);
    let w2 = after(
        started.clone(),
        &[
            three,
            gate_transfer("call_0"),
            gate_transfer("call_1"),
            gate_echo("call_2"),
            returned(1, "call_2"),
        ],
    );
    let approval = approve(&w2, "call_0");
    let cases = [
        ("model answers with 2 calls", "model_answered_2_calls", &started, two),
        ("the gate lets a call run", "gated_execute", &asked, gate_echo("call_0")),
        ("a result that leaves the turn open", "tool_returned_open_turn", &under_way, returned(1, "call_0")),
        ("a result that closes the turn", "tool_returned_closes_turn", &one_back, returned(1, "call_1")),
        ("a person approves", "decide_approve", &w2, approval),
    ];
    let mut results = Vec::new();
    for (title, metric, before, input) in cases {
        let measured = cost(effort, || before.clone(), |run| drop(black_box(say(run, &input, time_of(1)))));
        results.extend(both("machine", &format!("decide_apply_{metric}"), title, &measured));
    }
    results
}

/// A whole W1 run, and separately the control that each of its four commits stores.
fn tool_round(effort: MachineEffort) -> Vec<Figure> {
    let commits = w1();
    let whole = cost(effort, || queued().0, |run| drive(run, &commits));
    let mut controls: Vec<Control> = Vec::new();
    let (mut run, first) = queued();
    let mut log: Vec<Event> = vec![first];
    for inputs in &commits {
        log.extend(inputs.iter().flat_map(|input| say(&mut run, input, time_of(1))));
        controls.push(run.control.clone());
    }
    let encode_all = |controls: &mut Vec<Control>| {
        for control in controls {
            black_box(control.encode().expect("a control can be stored"));
        }
    };
    let encodes = cost(effort, || controls.clone(), encode_all);
    let log_bytes: usize =
        log.iter().filter_map(|event| event_codec::encode(event).ok()).map(|text| text.len()).sum();
    let control_bytes: usize =
        controls.iter().filter_map(|control| control.encode().ok()).map(|c| c.len()).sum();
    let mut results = both("W1", "machine_run", "the whole run, encoding apart", &whole);
    results.extend(both("W1", "control_encode_4_commits", "its 4 controls encoded", &encodes));
    results.push(exact("W1", "control_bytes_4_commits", "its 4 controls, stored", control_bytes));
    results.push(exact("W1", "log_bytes", &format!("its {} events, stored", log.len()), log_bytes));
    results
}

fn control(effort: MachineEffort, workload: &'static str, title: &str, run: &Run) -> Vec<Figure> {
    let stored = run.control.encode().expect("a control can be stored");
    let encode = cost(effort, || (), |()| drop(black_box(run.control.encode())));
    let decode = cost(effort, || (), |()| drop(black_box(Control::decode(&stored))));
    let name = |verb: &str| format!("control_{verb}_{}", title.replace(' ', "_"));
    let mut results = both(workload, &name("encode"), &format!("encode: {title}"), &encode);
    results.extend(both(workload, &name("decode"), &format!("decode: {title}"), &decode));
    results.push(exact(workload, &name("bytes"), &format!("size: {title}"), stored.len()));
    results
}

/// Measurements of one step of a long run.
struct MachineStep {
    nanoseconds: f64,
    allocations: f64,
    control_bytes: f64,
}

/// W4: does step 1,000 cost more than step 100?
fn long_run(effort: MachineEffort) -> Vec<Figure> {
    let (mut early, mut by_early, mut by_middle) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.long_run_count {
        let steps = one_long_run();
        let late = medians(&steps, LATE_STEPS);
        early.push(medians(&steps, EARLY_STEPS));
        by_early.push(ratios(late, medians(&steps, EARLY_STEPS)));
        by_middle.push(ratios(late, medians(&steps, MIDDLE_STEPS)));
    }
    let mut results = Vec::new();
    let units = [
        ("ns", "time", Unit::Nanoseconds),
        ("allocations", "allocations", Unit::Allocations),
        ("control_bytes", "control", Unit::Bytes),
    ];
    let rows = [
        ("machine_step_100", "step 100", &early, false),
        ("step_1000_by_step_100", "step 1,000 / step 100", &by_early, true),
        ("step_1000_by_step_250", "step 1,000 / step 250", &by_middle, true),
    ];
    for (metric, title, values, is_ratio) in rows {
        for (index, (ending, what, unit)) in units.into_iter().enumerate() {
            let column: Vec<f64> = values.iter().map(|row: &[f64; 3]| row[index]).collect();
            let value = Summary::of(&column).expect("there is at least one long run");
            let unit = if is_ratio { Unit::Ratio } else { unit };
            let (metric, title) = (format!("{metric}_{ending}"), format!("{title}, {what}"));
            results.push(Figure::new("W4", metric, title, unit, value));
        }
    }
    results
}

fn ratios(late: [f64; 3], early: [f64; 3]) -> [f64; 3] {
    let [time, allocations, bytes] = late;
    let [early_time, early_allocations, early_bytes] = early;
    [time / early_time, allocations / early_allocations, bytes / early_bytes]
}

fn one_long_run() -> Vec<MachineStep> {
    let mut run = queued().0;
    say(&mut run, &start(), time_of(0));
    let mut steps = Vec::new();
    for number in 1..=*LATE_STEPS.end() {
        let commits = long_step(number);
        let work = || {
            for inputs in &commits {
                for input in inputs {
                    black_box(say(&mut run, input, time_of(number)));
                }
                black_box(run.wanted());
            }
        };
        let (nanoseconds, allocations) = measured(work);
        let control_bytes = run.control.encode().map_or(0, |stored| stored.len()) as f64;
        steps.push(MachineStep { nanoseconds, allocations, control_bytes });
    }
    steps
}

/// Time, allocations and bytes of the steps in a window; steps count from 1.
fn medians(steps: &[MachineStep], window: RangeInclusive<u32>) -> [f64; 3] {
    let chosen: Vec<&MachineStep> =
        (1..).zip(steps).filter(|(number, _)| window.contains(number)).map(|(_, step)| step).collect();
    let of = |value: fn(&MachineStep) -> f64| {
        let values: Vec<f64> = chosen.iter().map(|step| value(step)).collect();
        median(&values).expect("the run is longer than the window")
    };
    [of(|step| step.nanoseconds), of(|step| step.allocations), of(|step| step.control_bytes)]
}

fn both(workload: &'static str, metric: &str, title: &str, cost: &Cost) -> Vec<Figure> {
    let result =
        |ending: &str, unit, value| Figure::new(workload, format!("{metric}_{ending}"), title, unit, value);
    vec![
        result("ns", Unit::Nanoseconds, cost.nanoseconds),
        result("allocations", Unit::Allocations, cost.allocations),
    ]
}

fn exact(workload: &'static str, metric: &str, title: &str, bytes: usize) -> Figure {
    let value = Summary::exact(bytes as f64);
    Figure::new(workload, metric, title, Unit::Bytes, value)
}

#[cfg(test)]
mod tests {
    use super::measurement::MachineEffort;
    use super::{MachineStep, medians, run};
    use crate::progress::Progress;

    #[test]
    fn a_window_counts_its_own_steps_only() {
        let step = |value: u32| MachineStep {
            nanoseconds: f64::from(value),
            allocations: f64::from(10 * value),
            control_bytes: f64::from(100 * value),
        };
        let steps: Vec<MachineStep> = (1..=9).map(step).collect();
        assert_eq!(medians(&steps, 2..=4), [3.0, 30.0, 300.0]);
    }

    #[test]
    fn everything_can_be_measured() {
        let effort = MachineEffort { repetition_count: 1, batch: 1, long_run_count: 1 };
        let results = run(effort, &Progress::silent());
        assert!(results.iter().all(|result| result.value.median > 0.0));
    }
}
