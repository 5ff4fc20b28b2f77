use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::report::units::{duration, number};
use crate::report::{Figures, Spread};

/// A figure that can be compared and limited.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Commands per acquisition.
    Commands,
    /// Useful share of the time.
    Efficiency,
    /// Median of the hand-off.
    HandOff,
    /// The hand-off that 99 % do not exceed.
    HandOffP99,
    /// Jain's index.
    Jain,
    /// What the layer adds to a request.
    Layer,
    /// Overtakes per acquisition.
    Overtakes,
    /// Median of the time to acquire.
    P50,
    /// The time to acquire that 99 % do not exceed.
    P99,
    /// The time to acquire that 99.9 % do not exceed.
    #[serde(rename = "p99.9")]
    P999,
    /// Time from the kill of a holder to the next acquisition.
    Recovery,
    /// Acquisitions per second.
    Throughput,
}

/// All, in the order of a report: names as in JSON and on the command line, and where the figures are.
const METRICS: [(Metric, &str, Unit, Pick); 12] = {
    use Unit::{Nanoseconds, Number};
    [
        (Metric::Throughput, "throughput", Number, |f| f.throughput),
        (Metric::P50, "p50", Nanoseconds, |f| Some(f.acquire?.p50)),
        (Metric::P99, "p99", Nanoseconds, |f| Some(f.acquire?.p99)),
        (Metric::P999, "p99.9", Nanoseconds, |f| {
            Some(f.acquire?.p999)
        }),
        (Metric::HandOff, "hand-off", Nanoseconds, |f| {
            Some(f.hand_off?.p50)
        }),
        (Metric::HandOffP99, "hand-off-p99", Nanoseconds, |f| {
            Some(f.hand_off?.p99)
        }),
        (Metric::Efficiency, "efficiency", Number, |f| f.efficiency),
        (Metric::Jain, "jain", Number, |f| f.jain),
        (Metric::Overtakes, "overtakes", Number, |f| f.overtakes),
        (Metric::Commands, "commands", Number, |f| f.commands),
        (Metric::Recovery, "recovery", Nanoseconds, |f| f.recovery),
        (Metric::Layer, "layer", Nanoseconds, |f| f.layer_adds),
    ]
};

type Pick = fn(&Figures) -> Option<Spread>;

#[derive(Clone, Copy)]
enum Unit {
    Nanoseconds,
    Number,
}

impl Metric {
    /// All, in the order of a table.
    pub fn all() -> impl Iterator<Item = Self> {
        METRICS.iter().map(|(metric, ..)| *metric)
    }

    /// The name, as in JSON and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().1
    }

    /// A value for people, with its unit.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        match self.entry().2 {
            Unit::Nanoseconds => duration(value),
            Unit::Number => number(value),
        }
    }

    /// Picks it out.
    #[must_use]
    pub fn of(self, figures: &Figures) -> Option<Spread> {
        (self.entry().3)(figures)
    }

    fn entry(self) -> &'static (Self, &'static str, Unit, Pick) {
        let found = METRICS.iter().find(|(metric, ..)| *metric == self);
        found.expect("BUG: every metric is in the table")
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::all().find(|metric| metric.name() == text);
        known.ok_or_else(|| {
            let names = Self::all().map(Self::name).collect::<Vec<_>>().join(", ");
            format!("{text:?} is none of {names}")
        })
    }
}
