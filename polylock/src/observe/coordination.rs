//! Elections, and jobs that run once.

use polylock_coordination::CoordinationEvent;

use super::measure::{Measurement, Value};
use super::metric::Metric;

/// Turns an event into measurements, whose class is the name of the election or of the job.
pub(super) fn measure<'a>(event: &CoordinationEvent<'a>, mut note: impl FnMut(Measurement<'a>)) {
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
                "error",
                "failed",
                "lost",
                "ran",
                "skipped",
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
