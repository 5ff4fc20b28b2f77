use serde::Serialize;

/// The median over the repeats, with the least and the greatest of them.
///
/// With an even number of repeats the median is the smaller of the two in the middle: what is shown
/// was measured, and percentiles are not averaged.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The one in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Sorts values that are numbers; none if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let numbers = values.into_iter().filter(|value| value.is_finite());
        let mut sorted: Vec<_> = numbers.collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: *sorted.get(sorted.len().checked_sub(1)? / 2)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }

    /// Whether the difference to another one may be chance: the median of one of them lies between
    /// the least and the greatest of the other.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.holds(other.median) || other.holds(self.median)
    }

    fn holds(&self, value: f64) -> bool {
        (self.min..=self.max).contains(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_of_the_values() {
        let table: [(&[f64], Option<[f64; 3]>); 5] = [
            (&[], None),
            (&[f64::NAN, f64::INFINITY], None),
            (&[7.0], Some([7.0, 7.0, 7.0])),
            (&[3.0, 1.0, 2.0], Some([2.0, 1.0, 3.0])),
            (&[4.0, 1.0, 3.0, 2.0], Some([2.0, 1.0, 4.0])),
        ];
        for (values, expected) in table {
            let spread = Spread::of(values.iter().copied());
            let found = spread.map(|spread| [spread.median, spread.min, spread.max]);
            assert_eq!(found, expected, "{values:?}");
        }
    }

    #[test]
    fn medians_within_the_range_of_the_other_are_alike() {
        let spread = |values: [f64; 3]| Spread::of(values).expect("there are values");
        let old = spread([90.0, 100.0, 110.0]);
        assert!(old.is_like(&spread([100.0, 105.0, 120.0])));
        assert!(spread([80.0, 85.0, 101.0]).is_like(&old));
        // The ranges meet, but neither median is usual for the other run.
        assert!(!old.is_like(&spread([75.0, 85.0, 95.0])));
    }
}
