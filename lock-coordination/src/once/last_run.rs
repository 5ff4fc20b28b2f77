//! The record of a run, and whether the job is due after it. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polylock_core::Label;

/// A run that was recorded, by the clock of the instance that ran it.
///
/// The example of [`Once`](crate::Once) shows who ran a job.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LastRun {
    /// When it began, to the millisecond.
    pub started: SystemTime,
    /// When it ended, to the millisecond.
    pub finished: SystemTime,
    /// The instance that ran it.
    pub label: Label,
    /// Whether it succeeded.
    pub outcome: RunOutcome,
}

/// How a run ended that was recorded.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RunOutcome {
    /// With an error of the work.
    Failed,
    /// With its result.
    Ran,
    /// In a way that this version does not know; the job is not due.
    Unknown,
}

impl RunOutcome {
    /// One word for logs and records, such as `"ran"`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Ran => "ran",
            Self::Unknown => "unknown",
        }
    }
}

impl LastRun {
    pub(super) fn new(
        started: SystemTime,
        finished: SystemTime,
        label: Label,
        outcome: RunOutcome,
    ) -> Self {
        Self {
            started,
            finished,
            label,
            outcome,
        }
    }

    /// Reads the record of a job; `None` if it is none, for tools that show records.
    ///
    /// It is one line of `name=value` pairs joined by `&`, such as
    /// `started=1764028800000&finished=1764028812345&outcome=ran&host=etl-7c9&pid=4121`, with times in
    /// milliseconds since 1970. It begins with `started`, which no record of a leader does. Unknown names are
    /// skipped.
    #[must_use]
    pub fn decode(record: &[u8]) -> Option<Self> {
        let text = str::from_utf8(record).ok()?;
        if !text.starts_with("started=") {
            return None;
        }
        let value = |name: &str| {
            let mut pairs = text.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let time = |name| {
            let millis = value(name)?.parse().ok()?;
            UNIX_EPOCH.checked_add(Duration::from_millis(millis))
        };
        let outcome = match value("outcome")? {
            "failed" => RunOutcome::Failed,
            "ran" => RunOutcome::Ran,
            _ => RunOutcome::Unknown,
        };
        Some(Self::new(
            time("started")?,
            time("finished")?,
            Label::decode(text),
            outcome,
        ))
    }

    pub(super) fn encode(&self) -> String {
        let millis = |time: SystemTime| {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            since.as_millis()
        };
        let (started, finished) = (millis(self.started), millis(self.finished));
        let (outcome, label) = (self.outcome.as_str(), self.label.encode());
        format!("started={started}&finished={finished}&outcome={outcome}&{label}")
    }
}

/// How often a job runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    Every(Duration),
    Key,
}

impl Rule {
    pub(super) fn is_due(self, last: &LastRun, now: SystemTime) -> bool {
        if last.outcome == RunOutcome::Failed {
            return true;
        }
        let Self::Every(period) = self else {
            return false;
        };
        match now.duration_since(last.started) {
            Ok(age) => age >= period - (period / 10).min(MAX_TOLERANCE),
            // A clock that is wrong by more than a period must not stop the job until its time comes.
            Err(ahead) => ahead.duration() > period,
        }
    }
}

/// How much earlier than its period a job is due, at most.
const MAX_TOLERANCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs_f64(1_764_028_800.0 + seconds)
    }

    fn run(started: SystemTime, outcome: RunOutcome) -> LastRun {
        let finished = started + Duration::from_millis(1_500);
        let label = Label::of_this_process().with_note("a=b&outcome=failed");
        LastRun::new(started, finished, label, outcome)
    }

    #[test]
    fn survives_its_text_form() {
        for outcome in [RunOutcome::Failed, RunOutcome::Ran, RunOutcome::Unknown] {
            let run = run(at(0.25), outcome);
            assert_eq!(LastRun::decode(run.encode().as_bytes()), Some(run.clone()));
            assert!(!run.encode().contains(['\n', ' ']));
        }
        let foreign = [
            "",
            "done up to page 7",
            "started=1&finished=2",
            "started=1&finished=x&outcome=ran",
            "host=h&pid=1&address=10.0.0.7",
            "host=h&pid=1&address=&started=1&finished=2&outcome=ran",
        ];
        for text in foreign {
            assert_eq!(LastRun::decode(text.as_bytes()), None, "{text}");
        }
        assert_eq!(LastRun::decode(b"started=\xff"), None);
    }

    #[test]
    fn a_job_is_due_a_period_after_it_began() {
        let minute = Duration::from_secs(60);
        let hours = |n| minute * 60 * n;
        // The period, now after the start of the last run, and whether the job is due.
        let table = [
            (minute, 53.9, false),
            (minute, 54.0, true),
            (hours(24), 86_339.9, false),
            (hours(24), 86_340.0, true),
            (minute, 0.0, false),
            (minute, -60.0, false),
            (minute, -60.1, true),
        ];
        for (period, now, is_due) in table {
            let due = |outcome| {
                let last = run(at(0.0), outcome);
                [Rule::Every(period), Rule::Key].map(|rule| rule.is_due(&last, at(now)))
            };
            let what = format!("{period:?}, {now} s later");
            assert_eq!(due(RunOutcome::Ran), [is_due, false], "{what}");
            assert_eq!(due(RunOutcome::Unknown), [is_due, false], "{what}");
            assert_eq!(due(RunOutcome::Failed), [true, true], "{what}");
        }
    }
}
