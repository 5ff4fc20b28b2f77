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
    for finding in bill.findings() {
        let heading = format!("\n### {}\n", text(finding, "check"));
        assert!(
            MANUAL.contains(&heading),
            "docs/doctor.md does not explain {finding}"
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
    pub(super) fn findings(&self) -> &[Value] {
        let findings = self.value["targets"][0]["findings"].as_array();
        findings.unwrap_or_else(|| panic!("no findings: {self}"))
    }

    /// The checks that something is wrong with, and how bad it is, each once, in order of names.
    #[track_caller]
    pub(super) fn faults(&self) -> Vec<(&str, &str)> {
        let is_bad = |finding: &&Value| ["warning", "error"].contains(&text(finding, "verdict"));
        let mut faults = Vec::new();
        for finding in self.findings().iter().filter(is_bad) {
            for name in ["why", "way_out", "see"] {
                assert!(finding[name].is_string(), "no {name} in {finding}: {self}");
            }
            faults.push((text(finding, "check"), text(finding, "verdict")));
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
    pub(super) fn finding(&self, check: &str) -> &Value {
        let mut findings = self.findings().iter();
        let found = findings.find(|finding| finding["check"] == check);
        found.unwrap_or_else(|| panic!("no {check}: {self}"))
    }

    #[track_caller]
    pub(super) fn assert_verdict(&self, check: &str, verdict: &str) {
        assert_eq!(self.finding(check)["verdict"], verdict, "{check}: {self}");
    }

    #[track_caller]
    pub(super) fn assert_says(&self, check: &str, part: &str) {
        let what = text(self.finding(check), "what");
        assert!(
            what.contains(part),
            "{check} says nothing of {part:?}: {self}"
        );
    }

    /// Nothing is wrong, and everything was tried.
    #[track_caller]
    pub(super) fn assert_clean(&self) {
        self.assert_faults(&[]);
        assert_eq!(self.ended.code, 0, "{self}");
        for check in ["exclusion", "loss-signal", "round-trip"] {
            self.assert_verdict(check, "good");
        }
        self.finding("token-order");
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
