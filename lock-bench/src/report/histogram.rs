use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Serialize};

/// Durations in nanoseconds, with three significant digits, up to an hour.
///
/// In JSON it is the compressed V2 encoding of HdrHistogram in base64, which every tool of that
/// family reads; so that runs can be merged, and no percentile is ever averaged.
#[derive(Clone, PartialEq)]
pub struct Latencies(Histogram<u64>);

const MAX_NANOS: u64 = 3_600_000_000_000;

impl Default for Latencies {
    fn default() -> Self {
        // It grows with what it has to hold; one up to an hour has a quarter of a megabyte.
        Self(Histogram::new(3).expect("BUG: three digits are valid"))
    }
}

impl Latencies {
    /// Records nanoseconds; more than an hour count as an hour.
    ///
    /// # Panics
    ///
    /// Never: it grows with what it has to hold.
    pub fn record_ns(&mut self, nanos: u64) {
        let nanos = nanos.clamp(1, MAX_NANOS);
        self.0.record(nanos).expect("BUG: it grows");
    }

    /// Adds what another one has.
    ///
    /// # Panics
    ///
    /// Never: it grows with what it has to hold.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("BUG: it grows");
    }

    /// Number of durations.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The duration in nanoseconds that this share (0.0 to 1.0) of all does not exceed; none if
    /// there are none.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        (!self.is_empty()).then(|| self.0.value_at_quantile(share))
    }

    /// The longest, in nanoseconds.
    #[must_use]
    pub fn max_ns(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.0.max())
    }

    pub(super) fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }

    /// Pairs of a duration in nanoseconds and the share of all that does not exceed it, for a
    /// picture.
    pub fn distribution(&self) -> impl Iterator<Item = (u64, f64)> + '_ {
        let steps = self.0.iter_quantiles(5);
        steps.map(|step| (step.value_iterated_to(), step.quantile()))
    }
}

/// Shows a few figures of the thousands of counts.
impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latencies")
            .field("len", &self.len())
            .field("median_ns", &self.quantile_ns(0.5))
            .field("max_ns", &self.max_ns())
            .finish_non_exhaustive()
    }
}

impl Serialize for Latencies {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.0, &mut bytes)
            .map_err(S::Error::custom)?;
        serializer.serialize_str(&STANDARD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for Latencies {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(D::Error::custom)?;
        let mut histogram: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(D::Error::custom)?;
        histogram.auto(true);
        Ok(Self(histogram))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_what_was_recorded() {
        let mut latencies = Latencies::default();
        for micros in 1..=1_000 {
            latencies.record_ns(micros * 1_000);
        }
        let json = serde_json::to_string(&latencies).unwrap();
        let mut read: Latencies = serde_json::from_str(&json).unwrap();
        assert_eq!(read.len(), 1_000);
        assert_eq!(read.quantile_ns(0.5), latencies.quantile_ns(0.5));
        assert_eq!(read.max_ns(), latencies.max_ns());
        assert!(serde_json::from_str::<Latencies>("\"AAAA\"").is_err());
        // What was read grows as well.
        latencies.record_ns(MAX_NANOS);
        read.merge(&latencies);
        assert_eq!((read.len(), read.max_ns()), (2_001, latencies.max_ns()));
    }
}
