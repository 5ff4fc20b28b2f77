//! The results of all checks of one lock service, for people and for programs.

use std::fmt::{Arguments, Write as _};
use std::io;
use std::time::Duration;

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use polylock::{HealthCheck, LockLifetime, Status};
use serde_json::{Value, json};

use super::round_trip::{Advice, RoundTripQuantiles};
use crate::output::{BOLD_RED, BOLD_YELLOW, DIM, Escaped, escaped, millis};

/// All results of one lock service.
#[derive(Debug)]
pub(super) struct DoctorReport {
    /// The URL without secrets.
    url: String,
    /// Its scheme; none if the URL cannot be read.
    backend: Option<String>,
    entries: Vec<CheckEntry>,
    pub(super) advice: Option<Advice>,
}

/// A result, and whether the user accepts it.
#[derive(Debug)]
struct CheckEntry {
    check: HealthCheck,
    is_accepted: bool,
}

impl DoctorReport {
    pub(super) fn new(url: String, backend: Option<String>) -> Self {
        Self {
            url,
            backend,
            entries: Vec::new(),
            advice: None,
        }
    }

    pub(super) fn add(&mut self, check: HealthCheck) {
        self.entries.push(CheckEntry {
            check,
            is_accepted: false,
        });
    }

    /// Whether locks were acquired there.
    pub(super) fn has_locked(&self) -> bool {
        self.advice.is_some()
    }

    /// Whether an error of a check says why no lock can be acquired. Others do not: a fault that
    /// lets two clients hold a lock refuses none.
    pub(super) fn explains_refusal(&self) -> bool {
        let refuses = |entry: &CheckEntry| {
            entry.check.status == Status::Error && REFUSING.contains(&entry.check.id)
        };
        self.entries.iter().any(refuses)
    }

    /// Accepts warnings of these checks. Not errors: an accepted risk is not a lock that fails.
    pub(super) fn accept(&mut self, ids: &[String]) {
        for CheckEntry { check, is_accepted } in &mut self.entries {
            *is_accepted = ids.iter().any(|id| id == check.id) && check.status == Status::Warning;
        }
    }

    pub(super) fn has_accepted(&self, id: &str) -> bool {
        let accepted = |entry: &CheckEntry| entry.is_accepted && entry.check.id == id;
        self.entries.iter().any(accepted)
    }

    pub(super) fn has_fault(&self) -> bool {
        self.status() != Status::Ok
    }

    /// How many results of this status are not accepted.
    fn count(&self, status: Status) -> usize {
        let counts = |entry: &&CheckEntry| entry.check.status == status && !entry.is_accepted;
        self.entries.iter().filter(counts).count()
    }

    fn not_checked(&self) -> impl Iterator<Item = &HealthCheck> {
        let checks = self.entries.iter().map(|entry| &entry.check);
        checks.filter(|check| check.status == Status::NotChecked)
    }

    /// The worst result that is not accepted; what was not checked is no fault.
    fn status(&self) -> Status {
        let faults = self.entries.iter().filter(|entry| !entry.is_accepted);
        let faults = faults.filter(|entry| entry.check.is_fault());
        let worst = faults.map(|entry| entry.check.status).max();
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
        for CheckEntry { check, is_accepted } in &self.entries {
            let (mark, style) = match check.status {
                // Those are listed at the end.
                Status::NotChecked => continue,
                _ if *is_accepted => ("accepted", DIM),
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
        let count = |status, one: &str| match self.count(status) {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {one}s")),
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
            "checks": self.entries.iter().map(entry).collect::<Vec<_>>(),
            "not_checked": self.not_checked().map(|check| check.id).collect::<Vec<_>>(),
            "round_trip": round_trip,
            "recommended": self.advice.as_ref().map(recommended),
        })
    }
}

/// The checks whose errors make locks impossible.
const REFUSING: [&str; 7] = [
    "alarms",
    "filesystem",
    "galera",
    "pooler",
    "read-only",
    "replica",
    "replication",
];

/// What no run of the doctor can tell.
const NEVER_CHECKED: &str = "not checked: crashes, partitions and failovers (docs/guarantees.md says \
                             what holds then), and what the first error reports";

/// Where the texts below a line begin.
const INDENT: usize = 12;

const BOLD: Style = Style::new().bold();
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

fn entry(CheckEntry { check, is_accepted }: &CheckEntry) -> Value {
    let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    json!({
        "id": check.id,
        "status": check.status.as_str(),
        "accepted": is_accepted,
        "summary": check.summary,
        "impact": known(&check.impact),
        "fix": known(&check.fix),
        "see": check.is_fault().then(|| link(check.id)),
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
        checks.into_iter().for_each(|check| report.add(check));
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
        known.accept(&["flush".to_owned(), "replica".to_owned()]);
        assert_eq!(known.status(), Status::Ok);
        assert!(known.has_accepted("flush") && !known.has_accepted("replica"));
        let mut report = report([error()]);
        report.accept(&["connect".to_owned()]);
        assert!(report.has_fault() && !report.has_accepted("connect"));
    }

    #[test]
    fn only_errors_that_make_locks_impossible_explain_a_refusal() {
        let error = |id| report([HealthCheck::error(id, "a", "b", "c")]);
        assert!(error("replica").explains_refusal());
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
        report.accept(&["flush".to_owned()]);
        let see = "https://github.com/polylock/polylock/blob/main/docs/doctor.md";
        let expected = format!(
            "redis://app:***@cache\n  ok        replica: the server is a master\n  warning   \
             eviction: it evicts\n            impact locks go\n            fix    do not\n            \
             see    {see}#eviction\n  accepted  flush: it evicts\n            impact locks go\n            \
             fix    do not\n            see    {see}#flush\n  1 warning\n  \
             not checked: clock: not told\\u{{1b}}\n  {NEVER_CHECKED}\n"
        );
        assert_eq!(plain(&report), expected);
        report.accept(&["eviction".to_owned(), "flush".to_owned()]);
        assert!(plain(&report).contains("\n  no problems found\n"));
    }
}
