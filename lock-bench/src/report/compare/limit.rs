use std::fmt;
use std::str::FromStr;

use super::Metric;

/// How far a figure may change, such as `throughput=-10%` or `p99=+15%`: the sign says which
/// direction is the bad one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    metric: Metric,
    percent: f64,
}

impl Limit {
    /// Whether it limits this metric.
    #[must_use]
    pub fn is_on(&self, metric: Metric) -> bool {
        metric == self.metric
    }

    /// Whether a change of the metric by this share exceeds the limit.
    #[must_use]
    pub fn is_passed(&self, metric: Metric, change: f64) -> bool {
        let percent = change * 100.0;
        let exceeds = match self.percent.is_sign_negative() {
            true => percent < self.percent,
            false => percent > self.percent,
        };
        metric == self.metric && exceeds
    }
}

/// Why a text is not a limit.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LimitError {
    /// It is not of the form `METRIC=CHANGE`.
    #[error("write METRIC=CHANGE, such as throughput=-10% or p99=+15%")]
    Form,
    /// There is no such figure.
    #[error("{0}")]
    Metric(String),
    /// The change has no sign, and without it nobody knows which direction is bad.
    #[error("the change needs a sign: {metric}=-10% fails if it falls, {metric}=+10% if it rises")]
    NoSign {
        /// The figure.
        metric: Metric,
    },
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (metric, change) = text.split_once('=').ok_or(LimitError::Form)?;
        let metric = metric.parse().map_err(LimitError::Metric)?;
        let percent = change.strip_suffix('%').ok_or(LimitError::Form)?;
        if !percent.starts_with(['+', '-']) {
            return Err(LimitError::NoSign { metric });
        }
        match percent.parse::<f64>() {
            Ok(percent) if percent.is_finite() => Ok(Self { metric, percent }),
            _ => Err(LimitError::Form),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:+}%", self.metric, self.percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sign_is_the_bad_direction() {
        let slower: Limit = "throughput=-10%".parse().unwrap();
        let table = [(-0.2, true), (-0.05, false), (0.5, false)];
        for (change, passed) in table {
            assert_eq!(
                slower.is_passed(Metric::Throughput, change),
                passed,
                "{change}"
            );
            assert!(!slower.is_passed(Metric::P99, change));
        }
        let longer: Limit = "p99.9=+15%".parse().unwrap();
        assert!(longer.is_passed(Metric::P999, f64::INFINITY));
        assert!(!longer.is_passed(Metric::P999, 0.1));
        let none: Limit = "efficiency=-0%".parse().unwrap();
        assert!(none.is_passed(Metric::Efficiency, -0.001));
    }

    #[test]
    fn a_limit_reads_as_it_was_written() {
        for text in ["throughput=-10%", "p99=+15%", "hand-off-p99=+2.5%"] {
            assert_eq!(text.parse::<Limit>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        for wrong in ["p99", "p99=", "p99=+15", "p99=+x%", "p99=+inf%"] {
            assert_eq!(wrong.parse::<Limit>(), Err(LimitError::Form), "{wrong}");
        }
        let unsigned = "p99=15%".parse::<Limit>().unwrap_err();
        assert!(unsigned.to_string().contains("p99=+10%"), "{unsigned}");
        let unknown = "p98=+1%".parse::<Limit>().unwrap_err();
        assert!(unknown.to_string().contains("throughput, p50"), "{unknown}");
    }
}
