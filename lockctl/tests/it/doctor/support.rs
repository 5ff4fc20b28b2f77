//! What the doctor said, and what is expected of it.

use std::fmt;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::common::{Ended, Place, Process};

/// The answer of one `lockctl --format json doctor`, which each failed assertion on it shows.
pub(super) struct Bill {
    pub(super) ended: Ended,
    pub(super) value: Value,
}

/// Has the doctor look at this URL.
#[track_caller]
pub(super) fn examine(url: &str) -> Bill {
    examine_with(&[&patient(url)], |_| {})
}

/// The same with other arguments, and a change of the command.
#[track_caller]
pub(super) fn examine_with(args: &[&str], change: impl FnOnce(&mut Command)) -> Bill {
    let place = Place::new();
    let mut command = place.lockctl(&[&["--format", "json", "doctor"], args].concat());
    change(&mut command);
    let mut process = Process::start(command);
    process.time = EXAMINATION;
    let ended = process.ended();
    let value = ended.json();
    let bill = Bill { ended, value };
    for check in bill.checks() {
        let heading = format!("\n### {}\n", text(check, "id"));
        assert!(
            MANUAL.contains(&heading),
            "docs/doctor.md does not explain {check}"
        );
    }
    bill
}

const MANUAL: &str = include_str!("../../../../docs/doctor.md");

/// Longer than the doctor waits for a server by itself.
const EXAMINATION: Duration = Duration::from_secs(60);

/// Gives a server the time that a login and a handshake of TLS take clients that are not
/// optimized, on a machine that has other things to do.
fn patient(url: &str) -> String {
    let time = match url.split(':').next() {
        Some("mysql" | "postgres") => "timeout=10s",
        Some("redis" | "rediss") => "connect-timeout=10s",
        _ => return url.to_owned(),
    };
    let join = if url.contains('?') { '&' } else { '?' };
    match url.contains("timeout=") {
        true => url.to_owned(),
        false => format!("{url}{join}{time}"),
    }
}

/// What it is called, where it is, and in order of their names the checks that find something
/// wrong.
#[cfg(any(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zk"
))]
pub(super) type Scenario<'a> = (&'a str, String, &'a [(&'a str, &'a str)]);

/// Has the doctor look at all of these, two at a time; each must have the faults named, no others,
/// and the exit code that follows.
#[cfg(any(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zk"
))]
#[track_caller]
pub(super) fn expect(scenarios: &[Scenario<'_>]) {
    for some in scenarios.chunks(2) {
        crate::fixture::side_by_side(some, |(name, url, faults)| {
            let bill = examine(url);
            assert_eq!(bill.faults(), *faults, "{name}: {bill}");
            assert_eq!(
                bill.ended.code,
                i32::from(!faults.is_empty()),
                "{name}: {bill}"
            );
        });
    }
}

impl Bill {
    #[track_caller]
    pub(super) fn checks(&self) -> &[Value] {
        let checks = self.value["targets"][0]["checks"].as_array();
        checks.unwrap_or_else(|| panic!("no checks: {self}"))
    }

    /// The checks that something is wrong with, and how bad it is, each once, in order of names.
    #[track_caller]
    pub(super) fn faults(&self) -> Vec<(&str, &str)> {
        let is_bad = |check: &&Value| ["warning", "error"].contains(&text(check, "status"));
        let mut faults = Vec::new();
        for check in self.checks().iter().filter(is_bad) {
            for name in ["impact", "fix", "see"] {
                assert!(check[name].is_string(), "no {name} in {check}: {self}");
            }
            faults.push((text(check, "id"), text(check, "status")));
        }
        faults.sort_unstable();
        faults.dedup();
        faults
    }

    #[track_caller]
    pub(super) fn assert_faults(&self, expected: &[(&str, &str)]) {
        assert_eq!(self.faults(), expected, "{self}");
    }

    /// What this check says.
    #[track_caller]
    pub(super) fn check(&self, check: &str) -> &Value {
        let mut checks = self.checks().iter();
        let found = checks.find(|known| known["id"] == check);
        found.unwrap_or_else(|| panic!("no {check}: {self}"))
    }

    #[track_caller]
    pub(super) fn assert_status(&self, check: &str, status: &str) {
        assert_eq!(self.check(check)["status"], status, "{check}: {self}");
    }

    #[track_caller]
    pub(super) fn assert_says(&self, check: &str, part: &str) {
        let summary = text(self.check(check), "summary");
        assert!(
            summary.contains(part),
            "{check} says nothing of {part:?}: {self}"
        );
    }

    /// Nothing is wrong, and everything was tried.
    #[track_caller]
    pub(super) fn assert_clean(&self) {
        self.assert_faults(&[]);
        assert_eq!(self.ended.code, 0, "{self}");
        for check in ["exclusion", "loss-signal", "round-trip"] {
            self.assert_status(check, "ok");
        }
        self.check("token-order");
    }
}

impl fmt::Display for Bill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ended.fmt(f)
    }
}

#[track_caller]
pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    let text = value[name].as_str();
    text.unwrap_or_else(|| panic!("{name} is no text in {value}"))
}

/// The same by a command whose wall clock is an hour ahead.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
#[track_caller]
pub(super) fn examine_ahead(url: &str) -> Bill {
    let clock = lock_testkit::clock::ShiftedClock::new();
    clock.set_offset(3_600);
    examine_with(&[url], |command| {
        clock.apply(command);
    })
}
