//! Metrics of locks.
//!
//! [`measure()`] turns an [`Event`](crate::layers::Event) into numbers, [`Metric`] names them, and
//! an observer records them: `MetricsObserver` with the `metrics` facade (feature `metrics`),
//! `OtelObserver` with OpenTelemetry (feature `otel`). Register one with
//! [`Registry::with_observer`](crate::Registry::with_observer); it receives the events of all
//! backends that are connected afterwards. A failing observer does not affect locks.
//!
//! Name the kind of work with [`class`](crate::RequestBuilder::class): it is the label `class` of the
//! metrics. Keys are no labels.
//!
//! Both receive elections and runs of jobs too ([`Election::observer`](crate::coordination::Election::observer),
//! [`Once::observer`](crate::coordination::Once::observer)), and with the feature `tower` refused requests
//! (`LockerBuilder::rejection_observer`).

#[cfg(feature = "metrics")]
mod facade;
mod measure;
mod metric;
#[cfg(feature = "otel")]
mod otel;
#[cfg(any(feature = "metrics", feature = "otel"))]
mod series;

#[cfg(feature = "metrics")]
pub use self::facade::MetricsObserver;
pub use self::measure::{Measurement, Value, measure};
pub use self::metric::{Metric, MetricKind};
#[cfg(feature = "otel")]
pub use self::otel::OtelObserver;

/// Upper bounds of the buckets of durations, in seconds: from half a millisecond, which is a lock on
/// the same machine, to a minute.
pub const BUCKETS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];
