//! The results of all checks of one lock service, for people and for programs.

use std::fmt::{Arguments, Write as _};
use std::io;
use std::time::Duration;

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use polylock::{HealthCheck, LockLifetime, Status};
use serde_json::{Value, json};

use super::round_trip::{Advice, RoundTripQuantiles};
use crate::output::{BOLD, BOLD_RED, BOLD_YELLOW, DIM, Escaped, escaped, millis};

#[derive(Debug)]
pub(super) struct DoctorReport {
    /// The URL without secrets.
    url: String,
    /// Its scheme; none if the URL cannot be read.
    backend: Option<String>,
    pub(super) checks: Vec<HealthCheck>,
    /// Names of checks whose warnings the user accepts. Not errors: an accepted risk is not a lock that
    /// fails.
    pub(super) accepted: Vec<String>,
    pub(super) advice: Option<Advice>,
}

impl DoctorReport {
    pub(super) fn new(url: String, backend: Option<String>) -> Self {
        Self {
            url,
            backend,
            checks: Vec::new(),
            accepted: Vec::new(),
            advice: None,
        }
    }

    /// Whether locks were acquired there.
    pub(super) fn has_locked(&self) -> bool {
        self.advice.is_some()
    }

    /// Whether an error of a check says why no lock can be acquired. Others do not: a fault that
    /// lets two clients hold a lock refuses none.
    pub(super) fn explains_refusal(&self) -> bool {
        let refuses =
            |check: &HealthCheck| check.status == Status::Error && REFUSING.contains(&check.id);
        self.checks.iter().any(refuses)
    }

    fn is_accepted(&self, check: &HealthCheck) -> bool {
        check.status == Status::Warning && self.accepted.iter().any(|id| id == check.id)
    }

    pub(super) fn has_accepted(&self, id: &str) -> bool {
        let mut checks = self.checks.iter();
        checks.any(|check| check.id == id && self.is_accepted(check))
    }

    pub(super) fn has_fault(&self) -> bool {
        self.status() != Status::Ok
    }

    /// What is wrong and not accepted; what was not checked is no fault.
    fn faults(&self) -> impl Iterator<Item = &HealthCheck> {
        let checks = self.checks.iter();
        checks.filter(move |check| check.is_fault() && !self.is_accepted(check))
    }

    fn not_checked(&self) -> impl Iterator<Item = &HealthCheck> {
        let checks = self.checks.iter();
        checks.filter(|check| check.status == Status::NotChecked)
    }

    /// The worst fault.
    fn status(&self) -> Status {
        let worst = self.faults().map(|check| check.status).max();
        worst.unwrap_or(Status::Ok)
    }

    /// The report as it is printed; `follows` says that another one stands above.
    pub(super) fn page(&self, follows: bool) -> String {
        let mut page = if follows { "\n" } else { "" }.to_owned();
        page += &self.text();
        match anstream::AutoStream::choice(&io::stdout()) {
            ColorChoice::Never => anstream::adapter::strip_str(&page).to_string(),
            _ => page,
        }
    }

    fn text(&self) -> String {
        let mut out = format!("{BOLD}{}{BOLD:#}\n", escaped(&self.url));
        let mut line = |text: Arguments<'_>| {
            writeln!(out, "{text}").expect("BUG: a string takes all text");
        };
        for check in &self.checks {
            let (mark, style) = match check.status {
                // Those are listed at the end.
                Status::NotChecked => continue,
                _ if self.is_accepted(check) => ("accepted", DIM),
                Status::Ok => ("ok", GREEN),
                Status::Warning => ("warning", BOLD_YELLOW),
                _ => ("error", BOLD_RED),
            };
            let (id, summary) = (check.id, Escaped(&check.summary));
            line(format_args!("  {style}{mark:<9}{style:#} {id}: {summary}"));
            if check.is_fault() {
                let see = link(check.id);
                for (name, text) in [
                    ("impact", &*check.impact),
                    ("fix", &*check.fix),
                    ("see", &see),
                ] {
                    let text = Escaped(text);
                    line(format_args!("{:INDENT$}{DIM}{name:<7}{DIM:#}{text}", ""));
                }
            }
        }
        if let Some(advice) = &self.advice {
            line(format_args!("{:INDENT$}{}", "", advice.text()));
        }
        let count = |status: Status, one: &str| {
            let faults = self.faults().filter(|check| check.status == status);
            match faults.count() {
                0 => None,
                1 => Some(format!("1 {one}")),
                n => Some(format!("{n} {one}s")),
            }
        };
        let faults = [
            count(Status::Error, "error"),
            count(Status::Warning, "warning"),
        ];
        let faults = faults.into_iter().flatten().collect::<Vec<_>>().join(", ");
        match self.status() {
            Status::Ok => line(format_args!("  {GREEN}no problems found{GREEN:#}")),
            Status::Warning => line(format_args!("  {BOLD_YELLOW}{faults}{BOLD_YELLOW:#}")),
            _ => line(format_args!("  {BOLD_RED}{faults}{BOLD_RED:#}")),
        }
        for check in self.not_checked() {
            let (id, summary) = (check.id, Escaped(&check.summary));
            line(format_args!("  {DIM}not checked: {id}: {summary}{DIM:#}"));
        }
        line(format_args!("  {DIM}{NEVER_CHECKED}{DIM:#}"));
        out
    }

    fn json(&self) -> Value {
        let round_trip = self.advice.map(|Advice { round_trips, .. }| {
            json!({
                "acquire_release": quantiles(&round_trips.cycle),
                "refused_try": quantiles(&round_trips.refused),
            })
        });
        json!({
            "url": self.url,
            "backend": self.backend,
            "status": self.status().as_str(),
            "checks": self.checks.iter().map(|check| self.check_json(check)).collect::<Vec<_>>(),
            "not_checked": self.not_checked().map(|check| check.id).collect::<Vec<_>>(),
            "round_trip": round_trip,
            "recommended": self.advice.as_ref().map(recommended),
        })
    }

    fn check_json(&self, check: &HealthCheck) -> Value {
        let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        json!({
            "id": check.id,
            "status": check.status.as_str(),
            "accepted": self.is_accepted(check),
            "summary": check.summary,
            "impact": known(&check.impact),
            "fix": known(&check.fix),
            "see": check.is_fault().then(|| link(check.id)),
        })
    }
}

/// The checks whose errors make locks impossible.
const REFUSING: [&str; 4] = ["galera", "pooler", "replica", "replication"];

/// What no run of the doctor can tell.
const NEVER_CHECKED: &str = "not checked: crashes, partitions and failovers (docs/guarantees.md says \
                             what holds then), and what the first error reports";

/// Where the texts below a line begin.
const INDENT: usize = 12;

const GREEN: Style = AnsiColor::Green.on_default();

/// The section of the manual on a check.
fn link(id: &str) -> String {
    format!(
        "{}/blob/main/docs/doctor.md#{id}",
        env!("CARGO_PKG_REPOSITORY")
    )
}

/// All reports as one value, whose form `docs/doctor.md` describes.
pub(super) fn json(reports: &[DoctorReport]) -> Value {
    let worst = reports.iter().map(DoctorReport::status).max();
    json!({
        "schema": "lockctl-doctor/2",
        "status": worst.map(Status::as_str),
        "targets": reports.iter().map(DoctorReport::json).collect::<Vec<_>>(),
    })
}

fn quantiles(quantiles: &RoundTripQuantiles) -> Value {
    // Milliseconds with microseconds behind the point.
    let fraction = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    json!({
        "count": quantiles.count,
        "p50_ms": fraction(quantiles.p50),
        "p90_ms": fraction(quantiles.p90),
        "p99_ms": fraction(quantiles.p99),
    })
}

fn recommended(advice: &Advice) -> Value {
    let bound = match advice.bound {
        LockLifetime::Connection => "connection",
        LockLifetime::Session => "session",
        _ => "lease",
    };
    json!({
        "bound": bound,
        "min_ttl_ms": advice.min.map(millis),
        "ttl_ms": advice.recommended.map(millis),
        "renewal_ms": advice.renewal().map(millis),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(checks: impl IntoIterator<Item = HealthCheck>) -> DoctorReport {
        let mut report =
            DoctorReport::new("redis://app:***@cache".to_owned(), Some("redis".to_owned()));
        report.checks.extend(checks);
        report
    }

    fn warning(id: &'static str) -> HealthCheck {
        HealthCheck::warning(id, "it evicts", "locks go", "do not")
    }

    #[test]
    fn the_status_is_the_worst_of_what_is_not_accepted() {
        let error = || HealthCheck::error("connect", "a", "b", "c");
        let unknown = || HealthCheck::not_checked("clock", "a");
        assert_eq!(report([unknown()]).status(), Status::Ok);
        assert_eq!(report([warning("a"), unknown()]).status(), Status::Warning);
        assert_eq!(report([error(), warning("a")]).status(), Status::Error);

        let mut known = report([warning("flush"), HealthCheck::ok("replica", "a")]);
        known.accepted = ["flush", "replica"].map(str::to_owned).into();
        assert_eq!(known.status(), Status::Ok);
        assert!(known.has_accepted("flush") && !known.has_accepted("replica"));
        let mut report = report([error()]);
        report.accepted = vec!["connect".to_owned()];
        assert!(report.has_fault() && !report.has_accepted("connect"));
    }

    #[test]
    fn only_errors_that_make_locks_impossible_explain_a_refusal() {
        let error = |id| report([HealthCheck::error(id, "a", "b", "c")]);
        assert!(error("replica").explains_refusal());
        assert!(error("galera").explains_refusal());
        for report in [error("same-server"), error("version"), report([])] {
            assert!(!report.explains_refusal());
        }
        assert!(!report([warning("replica")]).explains_refusal());
    }

    #[test]
    fn people_get_impact_and_fix_and_what_was_not_checked() {
        let plain =
            |report: &DoctorReport| anstream::adapter::strip_str(&report.text()).to_string();
        let mut report = report([
            HealthCheck::ok("replica", "the server is a master"),
            HealthCheck::not_checked("clock", "not told\u{1b}"),
            warning("eviction"),
            warning("flush"),
        ]);
        report.accepted = vec!["flush".to_owned()];
        let see = "https://github.com/polylock/polylock/blob/main/docs/doctor.md";
        let expected = format!(
            "redis://app:***@cache\n  ok        replica: the server is a master\n  warning   \
             eviction: it evicts\n            impact locks go\n            fix    do not\n            \
             see    {see}#eviction\n  accepted  flush: it evicts\n            impact locks go\n            \
             fix    do not\n            see    {see}#flush\n  1 warning\n  \
             not checked: clock: not told\\u{{1b}}\n  {NEVER_CHECKED}\n"
        );
        assert_eq!(plain(&report), expected);
        report.accepted.push("eviction".to_owned());
        assert!(plain(&report).contains("\n  no problems found\n"));
    }
}
