use std::fmt;
use std::str::FromStr;

use serde::Serialize;

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

impl Metric {
    /// All, in the order of a table.
    pub const ALL: [Self; 12] = [
        Self::Throughput,
        Self::P50,
        Self::P99,
        Self::P999,
        Self::HandOff,
        Self::HandOffP99,
        Self::Efficiency,
        Self::Jain,
        Self::Overtakes,
        Self::Commands,
        Self::Recovery,
        Self::Layer,
    ];

    /// The name, as in JSON and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Commands => "commands",
            Self::Efficiency => "efficiency",
            Self::HandOff => "hand-off",
            Self::HandOffP99 => "hand-off-p99",
            Self::Jain => "jain",
            Self::Layer => "layer",
            Self::Overtakes => "overtakes",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Recovery => "recovery",
            Self::Throughput => "throughput",
        }
    }

    /// Whether it is a duration in nanoseconds.
    #[must_use]
    pub fn is_duration(self) -> bool {
        matches!(
            self,
            Self::HandOff
                | Self::HandOffP99
                | Self::Layer
                | Self::P50
                | Self::P99
                | Self::P999
                | Self::Recovery
        )
    }

    /// Picks it out.
    #[must_use]
    pub fn of(self, figures: &Figures) -> Option<Spread> {
        match self {
            Self::Commands => figures.commands,
            Self::Efficiency => figures.efficiency,
            Self::HandOff => figures.hand_off.map(|quantiles| quantiles.p50),
            Self::HandOffP99 => figures.hand_off.map(|quantiles| quantiles.p99),
            Self::Jain => figures.jain,
            Self::Layer => figures.layer_adds,
            Self::Overtakes => figures.overtakes,
            Self::P50 => figures.acquire.map(|quantiles| quantiles.p50),
            Self::P99 => figures.acquire.map(|quantiles| quantiles.p99),
            Self::P999 => figures.acquire.map(|quantiles| quantiles.p999),
            Self::Recovery => figures.recovery,
            Self::Throughput => figures.throughput,
        }
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
        let known = Self::ALL.into_iter().find(|metric| metric.name() == text);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("{text:?} is none of {names}")
        })
    }
}
