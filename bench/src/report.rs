//! Results as a table for people or as lines for machines.

use serde_json::json;

use crate::statistics::Summary;

pub(crate) struct Result {
    pub(crate) workload: &'static str,
    pub(crate) metric: String,
    /// What was measured, in words.
    pub(crate) title: String,
    pub(crate) unit: Unit,
    pub(crate) value: Summary,
}

#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Nanoseconds,
    Allocations,
    Bytes,
    Ratio,
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Allocations => "allocations",
            Self::Bytes => "bytes",
            Self::Ratio => "times",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Nanoseconds | Self::Bytes => grouped(value),
            Self::Allocations => format!("{value:.1}"),
            Self::Ratio => format!("{value:.3}"),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Form {
    Table,
    JsonLines,
}

pub(crate) fn render(results: &[Result], form: Form) -> String {
    let mut text = String::new();
    if let Form::Table = form {
        text +=
            &format!("{:<9} {:<36} {:>10} {:<12} {}\n", "workload", "what", "median", "unit", "min – max");
    }
    for result in results {
        text += &match form {
            Form::Table => row(result),
            Form::JsonLines => json_line(result),
        };
    }
    text
}

fn row(result: &Result) -> String {
    let Summary { median, min, max } = result.value;
    let show = |value| result.unit.show(value);
    format!(
        "{:<9} {:<36} {:>10} {:<12} {} – {}\n",
        result.workload,
        result.title,
        show(median),
        result.unit.name(),
        show(min),
        show(max)
    )
}

fn json_line(result: &Result) -> String {
    let line = json!({
        "peer": "holdpoint",
        "version": env!("CARGO_PKG_VERSION"),
        "workload": result.workload,
        "metric": result.metric,
        "value": (result.value.median * 1_000.0).round() / 1_000.0,
    });
    format!("{line}\n")
}

/// 12,345 is read faster than 12345.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Form, Result, Unit, grouped, render};
    use crate::statistics::Summary;

    fn result() -> Result {
        Result {
            workload: "W1",
            metric: "machine_run_ns".into(),
            title: "the whole run".into(),
            unit: Unit::Nanoseconds,
            value: Summary { median: 12_345.678_9, min: 9_000.0, max: 20_000.0 },
        }
    }

    #[test]
    fn a_line_for_machines_has_the_five_fields() {
        let line = render(&[result()], Form::JsonLines);
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            "{{\"metric\":\"machine_run_ns\",\"peer\":\"holdpoint\",\"value\":12345.679,\
             \"version\":\"{version}\",\"workload\":\"W1\"}}\n"
        );
        assert_eq!(line, expected);
    }

    #[test]
    fn a_row_for_people_has_the_median_and_the_spread() {
        let table = render(&[result()], Form::Table);
        let row = table.lines().nth(1).expect("a head and a row");
        assert!(row.contains("12,346 ns") && row.contains("9,000 – 20,000"), "{row}");
    }

    #[test]
    fn digits_are_grouped_in_threes() {
        let shown = [0.0, 999.0, 1_000.0, 1_234_567.0].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }
}
