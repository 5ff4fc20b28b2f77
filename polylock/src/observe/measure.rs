//! Turns events into numbers, for any metrics library.

use std::time::Duration;

#[cfg(any(feature = "metrics", feature = "otel"))]
use polylock_coordination::CoordinationEvent;
use polylock_core::layers::{Event, EventKind};
use polylock_core::{ErrorKind, Wait};
#[cfg(all(feature = "tower", any(feature = "metrics", feature = "otel")))]
use polylock_tower::RejectedRequest;

use super::metric::Metric;

/// One number of one metric.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement<'a> {
    /// The metric.
    pub metric: Metric,
    /// The number.
    pub value: Value,
    /// The value of the label `class`, where the metric has it: the class of the request, or
    /// [`NO_CLASS`](Self::NO_CLASS).
    pub class: &'a str,
    /// The values of the other labels, in the order of the labels.
    pub(super) words: Words,
}

/// The number of a measurement.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Something to add to a gauge.
    Change(i64),
    /// Something to add to a counter.
    Count(u64),
    /// A duration for a histogram.
    Seconds(f64),
}

/// Values of labels; those that a metric does not have are empty.
pub(super) type Words = [&'static str; 3];

impl<'a> Measurement<'a> {
    /// The value of the label `class` for requests without a class.
    pub const NO_CLASS: &'static str = "none";

    pub(super) fn new(metric: Metric, value: Value, class: &'a str, words: Words) -> Self {
        Self {
            metric,
            value,
            class,
            words,
        }
    }

    #[cfg(any(feature = "metrics", feature = "otel"))]
    pub(super) fn stale_write(class: &'a str) -> Self {
        Self::new(Metric::FencingRejections, ONCE, class, ["", "", ""])
    }

    /// The labels and their values.
    pub fn labels(&self) -> impl Iterator<Item = (&'static str, &'a str)> {
        let (class, mut words) = (self.class, self.words.into_iter());
        self.metric.labels().iter().map(move |name| match *name {
            "class" => (*name, class),
            name => (name, words.next().unwrap_or("")),
        })
    }
}

/// Turns an event into measurements, three at most, and passes each to `note`.
///
/// The label `class` is the class of the request and never its key, because the number of keys is
/// unbounded.
pub fn measure<'a>(event: &Event<'a>, mut note: impl FnMut(Measurement<'a>)) {
    let backend = event.backend;
    let class = event.class.unwrap_or(Measurement::NO_CLASS);
    let mut note = |metric, value, words| note(Measurement::new(metric, value, class, words));
    match event.kind {
        EventKind::Requested => note(Metric::Waiters, Value::Change(1), [backend, "", ""]),
        EventKind::Acquired { waited, .. }
        | EventKind::Cancelled { waited }
        | EventKind::Failed { waited, .. } => {
            let outcome = event.outcome().unwrap_or("error");
            let words = [backend, mode(event.wait), outcome];
            note(Metric::Waiters, Value::Change(-1), [backend, "", ""]);
            note(Metric::AcquireDuration, seconds(waited), words);
            if let EventKind::Failed { error, .. } = event.kind {
                note_error(backend, error.kind(), note);
            }
        }
        EventKind::Held => note(Metric::Held, Value::Change(1), [backend, "", ""]),
        EventKind::GivenUp { .. } => note(Metric::Held, Value::Change(-1), [backend, "", ""]),
        EventKind::Lost { reason, held } => {
            note(Metric::Held, Value::Change(-1), [backend, "", ""]);
            note(Metric::Lost, ONCE, [backend, reason.as_str(), ""]);
            note(Metric::HoldDuration, seconds(held), [backend, "lost", ""]);
        }
        EventKind::Released {
            held,
            outcome,
            took: Some(took),
        } => {
            note(Metric::HoldDuration, seconds(held), [backend, outcome, ""]);
            if !["abandoned", "ticket"].contains(&outcome) {
                let words = [backend, outcome, ""];
                note(Metric::ReleaseDuration, seconds(took), words);
            }
            if outcome == "already_lost" {
                note(Metric::Lost, ONCE, [backend, UNKNOWN, ""]);
            }
        }
        EventKind::Renewed { left, .. } => {
            note(Metric::RenewalSlack, seconds(left), [backend, "", ""]);
            note(Metric::Renewals, ONCE, [backend, "ok", ""]);
        }
        EventKind::RenewalFailed { error, .. } => {
            note(Metric::Renewals, ONCE, [backend, "failed", ""]);
            note_error(backend, error.kind(), note);
        }
        // What was lost before has been measured then.
        _ => {}
    }
}

/// The metrics of a class before its first event, all at zero.
#[cfg(any(feature = "metrics", feature = "otel"))]
pub(super) fn nothing<'a>(
    backend: &'static str,
    class: &'a str,
    mut note: impl FnMut(Measurement<'a>),
) {
    let mut note = |metric, value, words| note(Measurement::new(metric, value, class, words));
    let (none, silent) = (Value::Count(0), [backend, "", ""]);
    note(Metric::Held, Value::Change(0), silent);
    note(Metric::Waiters, Value::Change(0), silent);
    note(Metric::FencingRejections, none, ["", "", ""]);
    for reason in LOST_REASONS {
        note(Metric::Lost, none, [backend, reason, ""]);
    }
    for outcome in ["ok", "failed"] {
        note(Metric::Renewals, none, [backend, outcome, ""]);
    }
    for kind in ["denied", "foreign", "protocol", "unavailable"] {
        note(Metric::BackendErrors, none, [backend, kind, ""]);
    }
}

/// Turns an event of an election or a job into measurements; the class is its name.
#[cfg(any(feature = "metrics", feature = "otel"))]
pub(super) fn coordination<'a>(
    event: &CoordinationEvent<'a>,
    mut note: impl FnMut(Measurement<'a>),
) {
    let mut note = |metric, value, class, outcome| {
        note(Measurement::new(metric, value, class, [outcome, "", ""]));
    };
    match *event {
        CoordinationEvent::Candidate { election, .. } => {
            note(Metric::Elections, Value::Count(0), election, "");
            note(Metric::Leader, Value::Change(0), election, "");
        }
        CoordinationEvent::Elected { election, .. } => {
            note(Metric::Elections, Value::Count(1), election, "");
            note(Metric::Leader, Value::Change(1), election, "");
        }
        CoordinationEvent::Ended { election, .. } => {
            note(Metric::Leader, Value::Change(-1), election, "");
        }
        CoordinationEvent::Job { job, .. } => {
            for outcome in [
                "busy",
                "cancelled",
                "error",
                "failed",
                "lost",
                "ran",
                "skipped",
                "unknown",
                "unrecorded",
            ] {
                note(Metric::Once, Value::Count(0), job, outcome);
            }
        }
        CoordinationEvent::Once { job, outcome, .. } => {
            note(Metric::Once, Value::Count(1), job, outcome);
        }
        _ => {}
    }
}

/// A request that was answered without its handler.
#[cfg(all(feature = "tower", any(feature = "metrics", feature = "otel")))]
pub(super) fn rejection<'a>(rejected: &RejectedRequest<'a>, count: u64) -> Measurement<'a> {
    let status = rejected.status.as_str();
    let status = STATUSES.into_iter().find(|known| *known == status);
    let words = [status.unwrap_or("other"), rejected.reason, ""];
    Measurement::new(
        Metric::HttpRejections,
        Value::Count(count),
        rejected.class,
        words,
    )
}

/// Statuses with a label of their own. Others are rarely an answer to a request without its lock.
#[cfg(all(feature = "tower", any(feature = "metrics", feature = "otel")))]
const STATUSES: [&str; 16] = [
    "200", "400", "401", "403", "404", "408", "409", "413", "422", "423", "425", "429", "500",
    "502", "503", "504",
];

fn note_error(backend: &'static str, kind: ErrorKind, mut note: impl FnMut(Metric, Value, Words)) {
    let kind = match kind {
        ErrorKind::Denied => "denied",
        ErrorKind::Foreign => "foreign",
        ErrorKind::Protocol => "protocol",
        ErrorKind::Unavailable => "unavailable",
        // The lock is held, or what was asked for is wrong: the service works.
        _ => return,
    };
    note(Metric::BackendErrors, ONCE, [backend, kind, ""]);
}

fn mode(wait: Option<Wait>) -> &'static str {
    match wait.is_none_or(Wait::waits) {
        true => "wait",
        false => "try",
    }
}

fn seconds(duration: Duration) -> Value {
    Value::Seconds(duration.as_secs_f64())
}

const ONCE: Value = Value::Count(1);
/// The reason of a loss that only the release finds.
const UNKNOWN: &str = "unknown";
/// As [`LostReason::as_str`](crate::LostReason::as_str) has them, and one more.
#[cfg(any(feature = "metrics", feature = "otel"))]
const LOST_REASONS: [&str; 7] = [
    "broken",
    "expired",
    "max_hold",
    "session_ended",
    "stolen",
    UNKNOWN,
    "unreachable",
];
