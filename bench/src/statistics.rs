//! Medians and spreads.

/// Summary of several repetitions of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// None without samples.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self { median: middle(&sorted)?, min, max })
    }

    /// For a value that is the same every time.
    pub(crate) const fn exact(value: f64) -> Self {
        Self { median: value, min: value, max: value }
    }
}

pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    Summary::of(samples).map(|summary| summary.median)
}

/// The smallest sample that is not exceeded by `percent` percent of all samples.
pub(crate) fn percentile(samples: &[f64], percent: usize) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.max(1) - 1).copied()
}

pub(crate) fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

/// For an even number of samples, the mean of the two in the middle.
fn middle(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(sorted.len() / 2 - 1)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::{Summary, mean, median, percentile};

    #[test]
    fn nothing_measured_has_no_median() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn one_sample_is_its_own_summary() {
        assert_eq!(Summary::of(&[7.0]), Some(Summary::exact(7.0)));
    }

    #[test]
    fn the_median_is_the_middle_in_order_of_size() {
        assert_eq!(Summary::of(&[9.0, 1.0, 5.0]), Some(Summary { median: 5.0, min: 1.0, max: 9.0 }));
    }

    #[test]
    fn an_even_number_of_samples_has_its_median_between_the_two_in_the_middle() {
        assert_eq!(median(&[40.0, 10.0, 20.0, 30.0]), Some(25.0));
    }

    #[test]
    fn a_percentile_is_one_of_the_samples() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let asked = [0, 1, 50, 99, 100].map(|percent| percentile(&samples, percent));
        assert_eq!(asked, [1.0, 1.0, 50.0, 99.0, 100.0].map(Some));
        assert_eq!(percentile(&[7.0], 99), Some(7.0));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn a_mean_needs_a_sample() {
        assert_eq!((mean(&[1.0, 2.0, 6.0]), mean(&[])), (Some(3.0), None));
    }

    #[test]
    fn one_outlier_moves_the_spread_and_not_the_median() {
        let summary = Summary::of(&[10.0, 11.0, 10_000.0, 9.0, 10.0]);
        assert_eq!(summary, Some(Summary { median: 10.0, min: 9.0, max: 10_000.0 }));
    }
}
