//! What the doctor said, and what is expected of it.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

use std::process::Command;

use serde_json::Value;

use crate::common::{Place, code};

/// The answer of one `lockctl --format json doctor`.
#[derive(Debug)]
pub(crate) struct Bill {
    pub(crate) code: i32,
    pub(crate) value: Value,
    pub(crate) said: String,
}

/// Has the doctor look at this URL.
pub(crate) fn examine(url: &str) -> Bill {
    examine_with(&[&patient(url)], |_| {})
}

/// The same with other arguments, and a change of the command.
pub(crate) fn examine_with(args: &[&str], change: impl FnOnce(&mut Command)) -> Bill {
    let place = Place::new();
    let mut command = place.lockctl(&[&["--format", "json", "doctor"], args].concat());
    change(&mut command);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let value = serde_json::from_slice(&output.stdout);
    let bill = Bill {
        code: code(output.status),
        value: value.unwrap_or_else(|e| panic!("{e} in {:?}, {said}", output.stdout)),
        said,
    };
    for finding in bill.findings() {
        let heading = format!("\n### {}\n", finding["check"].as_str().unwrap());
        assert!(MANUAL.contains(&heading), "not explained: {finding}");
    }
    bill
}

const MANUAL: &str = include_str!("../../../docs/doctor.md");

/// Gives a server the time that a login and a handshake of TLS take clients that are not
/// optimised, on a machine that has other things to do.
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
type Scenario<'a> = (&'a str, String, &'a [(&'a str, &'a str)]);

/// Has the doctor look at all of these, two at a time; each must have the faults named, no others,
/// and the exit code that follows.
#[cfg(any(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zk"
))]
pub(crate) fn expect(scenarios: &[Scenario<'_>]) {
    let bills = scenarios.chunks(2).flat_map(|some| {
        std::thread::scope(|scope| {
            let looks = some
                .iter()
                .map(|(_, url, _)| scope.spawn(move || examine(url)));
            let looks: Vec<_> = looks.collect();
            let bills = looks.into_iter().map(|look| look.join().unwrap());
            bills.collect::<Vec<_>>()
        })
    });
    let mut wrong = Vec::new();
    for ((name, _, faults), bill) in scenarios.iter().zip(bills) {
        let found = bill.faults();
        let code = i32::from(!faults.is_empty());
        if found != *faults || bill.code != code {
            wrong.push(format!(
                "{name}: expected {faults:?}, got {}\n{:#}",
                bill.code, bill.value
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

impl Bill {
    fn target(&self) -> &Value {
        &self.value["targets"][0]
    }

    pub(crate) fn findings(&self) -> &[Value] {
        self.target()["findings"].as_array().unwrap()
    }

    /// The checks that something is wrong with, and how bad it is, each once, in order of names.
    pub(crate) fn faults(&self) -> Vec<(&str, &str)> {
        let texts = |finding: &Value, name: &str| finding[name].is_string();
        let mut faults: Vec<_> = self
            .findings()
            .iter()
            .filter(|finding| {
                ["warning", "error"]
                    .iter()
                    .any(|bad| finding["verdict"] == *bad)
            })
            .inspect(|finding| {
                let explained = ["why", "way_out", "see"]
                    .iter()
                    .all(|name| texts(finding, name));
                assert!(explained, "no way out: {finding}");
            })
            .map(|finding| {
                let text = |name: &str| finding[name].as_str().unwrap();
                (text("check"), text("verdict"))
            })
            .collect();
        faults.sort_unstable();
        faults.dedup();
        faults
    }

    /// What this check says.
    pub(crate) fn finding(&self, check: &str) -> &Value {
        let found = self
            .findings()
            .iter()
            .find(|finding| finding["check"] == check);
        found.unwrap_or_else(|| panic!("no {check} in {:#}", self.value))
    }

    pub(crate) fn what(&self, check: &str) -> &str {
        self.finding(check)["what"].as_str().unwrap()
    }

    /// Nothing is wrong, and everything was tried.
    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.faults(), [], "{:#}", self.value);
        assert_eq!(self.code, 0, "{:#}", self.value);
        for check in ["exclusion", "loss-signal", "round-trip"] {
            assert_eq!(self.finding(check)["verdict"], "good", "{:#}", self.value);
        }
        assert!(self.finding("token-order").is_object());
    }
}

/// The same by a command whose wall clock is an hour ahead.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
pub(crate) fn examine_ahead(args: &[&str]) -> Bill {
    let clock = lock_testkit::clock::ShiftedClock::new();
    clock.set_offset(3_600);
    examine_with(args, |command| {
        clock.apply(command);
    })
}
