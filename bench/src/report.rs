//! Prints figures as a table for people or as lines for machines.

use serde_json::json;

use crate::environment::StoreKind;
use crate::statistics::Summary;

pub(crate) struct Figure {
    pub(crate) workload: &'static str,
    /// None if no store is involved.
    pub(crate) store: Option<StoreKind>,
    pub(crate) metric: String,
    /// A description of what was measured.
    pub(crate) title: String,
    pub(crate) unit: Unit,
    pub(crate) value: Summary,
    pub(crate) target: Option<Target>,
}

impl Figure {
    pub(crate) fn new(
        workload: &'static str,
        metric: impl Into<String>,
        title: impl Into<String>,
        unit: Unit,
        value: Summary,
    ) -> Self {
        let (metric, title) = (metric.into(), title.into());
        Self { workload, store: None, metric, title, unit, value, target: None }
    }
}

/// The figures of one workload on one store.
pub(crate) struct Sheet {
    workload: &'static str,
    store: StoreKind,
    figures: Vec<Figure>,
}

impl Sheet {
    pub(crate) const fn of(workload: &'static str, store: StoreKind) -> Self {
        Self { workload, store, figures: Vec::new() }
    }

    pub(crate) const fn store(&self) -> StoreKind {
        self.store
    }

    /// Skips figures without samples, which could not be measured here.
    pub(crate) fn add(&mut self, metric: impl Into<String>, title: &str, unit: Unit, samples: &[f64]) {
        self.add_aimed(metric, title, unit, samples, None);
    }

    pub(crate) fn add_aimed(
        &mut self,
        metric: impl Into<String>,
        title: &str,
        unit: Unit,
        samples: &[f64],
        target: Option<Target>,
    ) {
        if let Some(value) = Summary::of(samples) {
            let store = Some(self.store);
            let figure = Figure::new(self.workload, metric, title, unit, value);
            self.figures.push(Figure { store, target, ..figure });
        }
    }

    pub(crate) fn into_figures(self) -> Vec<Figure> {
        self.figures
    }
}

/// The target for a median.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    Exactly(f64),
}

impl Target {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
            Self::Exactly(wanted) => value.total_cmp(&wanted).is_eq(),
        }
    }

    const fn parts(self) -> (&'static str, f64) {
        match self {
            Self::AtMost(limit) => ("≤ ", limit),
            Self::AtLeast(limit) => ("≥ ", limit),
            Self::Exactly(wanted) => ("", wanted),
        }
    }

    fn show(self, value: f64, unit: Unit) -> String {
        let (sign, wanted) = self.parts();
        let verdict = if self.is_met(value) { "met" } else { "MISSED" };
        format!("target {sign}{}: {verdict}", unit.show(wanted))
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
    PerSecond,
    Allocations,
    Bytes,
    Mebibytes,
    Count,
    Ratio,
    /// Of one CPU.
    Percent,
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Microseconds => "µs",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::PerSecond => "per second",
            Self::Allocations => "allocations",
            Self::Bytes => "bytes",
            Self::Mebibytes => "MiB",
            Self::Count => "",
            Self::Ratio => "times",
            Self::Percent => "%",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Nanoseconds | Self::PerSecond | Self::Bytes => grouped(value),
            Self::Microseconds | Self::Allocations | Self::Mebibytes => format!("{value:.1}"),
            Self::Milliseconds | Self::Seconds | Self::Ratio | Self::Percent => format!("{value:.3}"),
            Self::Count if value.fract() == 0.0 => grouped(value),
            Self::Count => format!("{value:.4}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    Table,
    JsonLines,
}

pub(crate) fn render(figures: &[Figure], form: Form) -> String {
    match form {
        Form::Table => table(figures),
        Form::JsonLines => figures.iter().map(json_line).collect(),
    }
}

fn table(figures: &[Figure]) -> String {
    let width = figures.iter().map(|figure| figure.title.chars().count()).max().unwrap_or(0);
    let mut text = row(width, ["workload", "store", "what", "median", "unit", "min – max", ""]);
    for figure in figures {
        let Summary { median, min, max } = figure.value;
        let show = |value| figure.unit.show(value);
        let spread = if min < max { format!("{} – {}", show(min), show(max)) } else { String::new() };
        let target = figure.target.map(|target| target.show(median, figure.unit)).unwrap_or_default();
        let store = figure.store.map_or("", StoreKind::name);
        let cells =
            [figure.workload, store, &figure.title, &show(median), figure.unit.name(), &spread, &target];
        text += &row(width, cells);
    }
    for kind in StoreKind::ALL {
        if figures.iter().any(|figure| figure.store == Some(kind)) {
            text += &format!("durability, {}: {}\n", kind.name(), kind.durability());
        }
    }
    text
}

fn row(width: usize, [workload, store, title, median, unit, spread, target]: [&str; 7]) -> String {
    let row =
        format!("{workload:<11} {store:<8} {title:<width$} {median:>11} {unit:<11} {spread:<23} {target}");
    format!("{}\n", row.trim_end())
}

fn json_line(figure: &Figure) -> String {
    let mut line = json!({
        "peer": "holdpoint",
        "version": env!("CARGO_PKG_VERSION"),
        "workload": figure.workload,
        "metric": figure.metric,
        "title": figure.title,
        "unit": figure.unit.name(),
        "value": rounded(figure.value.median),
    });
    if figure.value.min < figure.value.max {
        line["spread"] = [rounded(figure.value.min), rounded(figure.value.max)].into();
    }
    if let Some(target) = figure.target {
        let (sign, wanted) = target.parts();
        line["target"] = format!("{sign}{}", figure.unit.show(wanted)).into();
        line["met"] = target.is_met(figure.value.median).into();
    }
    if let Some(kind) = figure.store {
        line["store"] = kind.name().into();
        line["durability"] = kind.durability().into();
    }
    format!("{line}\n")
}

/// Rounds to six decimals.
fn rounded(value: f64) -> f64 {
    (value * 1_000_000.0).round() / 1_000_000.0
}

/// Groups digits: 12,345 is easier to read than 12345.
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
    use serde_json::json;

    use super::{Figure, Form, Target, Unit, grouped, render};
    use crate::environment::StoreKind;
    use crate::statistics::Summary;

    fn figure() -> Figure {
        let value = Summary { median: 12_345.678_9, min: 9_000.0, max: 20_000.0 };
        Figure::new("W1", "machine_run_ns", "the whole run", Unit::Nanoseconds, value)
    }

    fn of_a_store() -> Figure {
        let target = Some(Target::AtMost(10_000.0));
        Figure { store: Some(StoreKind::Memory), target, ..figure() }
    }

    #[test]
    fn a_line_for_machines_has_everything_that_the_table_shows() {
        let line: serde_json::Value =
            serde_json::from_str(&render(&[figure()], Form::JsonLines)).expect("a line is JSON");
        let expected = json!({
            "peer": "holdpoint",
            "version": env!("CARGO_PKG_VERSION"),
            "workload": "W1",
            "metric": "machine_run_ns",
            "title": "the whole run",
            "unit": "ns",
            "value": 12_345.678_9,
            "spread": [9_000.0, 20_000.0],
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn a_line_of_a_store_says_how_durable_it_is() {
        let line: serde_json::Value =
            serde_json::from_str(&render(&[of_a_store()], Form::JsonLines)).expect("a line is JSON");
        assert_eq!((line["store"].as_str(), line["durability"].as_str()), (Some("memory"), Some("none")));
        assert_eq!((line["target"].as_str(), line["met"].as_bool()), (Some("≤ 10,000"), Some(false)));
    }

    #[test]
    fn a_row_for_people_has_the_median_the_spread_and_the_target() {
        let table = render(&[of_a_store()], Form::Table);
        let row = table.lines().nth(1).expect("a head and a row");
        assert!(row.contains("12,346 ns") && row.contains("9,000 – 20,000"), "{row}");
        assert!(row.ends_with("target ≤ 10,000: MISSED"), "{row}");
        assert!(table.ends_with("durability, memory: none\n"), "{table}");
    }

    #[test]
    fn a_target_is_met_at_its_limit() {
        assert!(Target::AtMost(1.0).is_met(1.0) && !Target::AtMost(1.0).is_met(1.1));
        assert!(Target::AtLeast(1.0).is_met(1.0) && !Target::AtLeast(1.0).is_met(0.9));
        assert!(Target::Exactly(1.0).is_met(1.0) && !Target::Exactly(1.0).is_met(2.0));
    }

    #[test]
    fn digits_are_grouped_in_threes() {
        let shown = [0.0, 999.0, 1_000.0, 1_234_567.0].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }
}
