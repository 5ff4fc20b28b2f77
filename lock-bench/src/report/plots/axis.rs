//! Axes: where the marks stand, and what is written there.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

use crate::report::units::{duration_mark, mark};

/// An axis whose values are already on its scale, such as logarithms.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    from: f64,
    to: f64,
    marks: Vec<(f64, String)>,
    pub(super) title: &'static str,
}

impl Axis {
    /// From 0 to a round number that is not below `most`.
    pub(super) fn linear(title: &'static str, most: f64, label: fn(f64) -> String) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let step = round_up(most / 4.0);
        let count = (most / step - 1e-9).ceil().clamp(1.0, 5.0);
        let marks = (0..=5).map(f64::from).take_while(|at| *at <= count);
        Self {
            from: 0.0,
            to: step * count,
            marks: marks.map(|at| (step * at, label(step * at))).collect(),
            title,
        }
    }

    /// The decimal logarithms of positive values from `least` to `most`.
    pub(super) fn log(
        title: &'static str,
        (least, most): (f64, f64),
        label: fn(f64) -> String,
    ) -> Self {
        let (from, to) = (least.log10() - 0.05, most.log10() + 0.05);
        // At least one power of ten on either side of what is too narrow to have any.
        let (from, to) = match to - from < 1.0 {
            true => (from.floor(), to.ceil()),
            false => (from, to),
        };
        let steps: &[f64] = match to - from {
            span if span <= 1.1 => &[1.0, 2.0, 5.0],
            span if span <= 2.2 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let mut marks = Vec::new();
        let mut decade = from.floor();
        while decade <= to {
            for step in steps {
                let at = decade + step.log10();
                if (from - 1e-9..=to + 1e-9).contains(&at) {
                    marks.push((at, label(step * 10f64.powf(decade))));
                }
            }
            decade += 1.0;
        }
        Self {
            from,
            to,
            marks,
            title,
        }
    }

    /// Shares of all that come ever closer to all of them: 0, 90, 99, 99.9 %.
    pub(super) fn shares() -> Self {
        let names = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"];
        let marks = (0..5).map(f64::from).zip(names.map(str::to_owned));
        Self {
            from: 0.0,
            to: 4.15,
            marks: marks.collect(),
            title: "share that is not longer",
        }
    }

    /// Values that stand side by side, whatever lies between them.
    pub(super) fn steps(title: &'static str, names: Vec<String>) -> Self {
        let count = f64::from(u32::try_from(names.len()).unwrap_or(1));
        let marks = (0..).map(f64::from).zip(names).collect();
        Self {
            from: -0.4,
            to: count - 0.6,
            marks,
            title,
        }
    }

    /// Rows without names, from the bottom up.
    pub(super) fn rows(count: f64) -> Self {
        Self {
            from: 0.0,
            to: count,
            marks: Vec::new(),
            title: "",
        }
    }

    pub(super) fn name(&self, value: f64) -> String {
        let close = |(at, _): &&(f64, String)| (at - value).abs() < 1e-9;
        let mark = self.marks.iter().find(close);
        mark.map(|(_, name)| name.clone()).unwrap_or_default()
    }

    pub(super) fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }

    /// The largest share below all that the axis has room for.
    pub(super) fn most(&self) -> f64 {
        self.to
    }
}

/// The marks are where they were put; plotters would choose its own.
impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let share = (value - self.from) / (self.to - self.from);
        low + (share * f64::from(high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.marks.iter().map(|(at, _)| *at).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

/// The place of a share on the axis of [`Axis::shares`].
pub(super) fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-9).log10()
}

/// Marks of counts per second.
pub(super) const COUNTS: fn(f64) -> String = mark;
/// Marks of durations in nanoseconds.
pub(super) const DURATIONS: fn(f64) -> String = duration_mark;
/// Marks of shares of 1.
pub(super) const PERCENT: fn(f64) -> String = |share| format!("{} %", mark(share * 100.0));

fn round_up(step: f64) -> f64 {
    let size = 10f64.powf(step.log10().floor());
    let round = [1.0, 2.0, 2.5, 5.0, 10.0].map(|digit| digit * size);
    let fits = round.iter().find(|round| **round >= step * 0.999_999);
    fits.copied().unwrap_or(size * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(axis: &Axis) -> Vec<&str> {
        axis.marks.iter().map(|(_, name)| name.as_str()).collect()
    }

    #[test]
    fn marks_are_round() {
        let axis = |most| Axis::linear("", most, COUNTS);
        assert_eq!(names(&axis(1.0)), ["0", "0.25", "0.5", "0.75", "1"]);
        assert_eq!(names(&axis(9300.0)), ["0", "2.5k", "5k", "7.5k", "10k"]);
        assert_eq!(names(&axis(0.0)).first(), Some(&"0"));
    }

    #[test]
    fn powers_of_ten_are_marked() {
        let axis = Axis::log("", (12_000.0, 8_000_000.0), DURATIONS);
        assert_eq!(names(&axis), ["100 us", "1 ms"]);
        let narrow = Axis::log("", (200.0, 300.0), COUNTS);
        assert_eq!(names(&narrow), ["100", "200", "500", "1k"]);
    }

    #[test]
    fn shares_are_counted_in_nines() {
        assert!((nines(0.999) - 3.0).abs() < 1e-9);
        assert!(nines(1.0).is_finite());
        assert!(nines(0.0).abs() < 1e-9);
    }
}
