//! Reports for people and for programs.

use std::fmt::{Arguments, Write};
use std::io;
use std::time::Duration;

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use polylock::{LockLifetime, Status};
use serde_json::{Value, json};

use super::report::{Entry, Report};
use super::round_trip::Quantiles;
use super::timing::Advice;
use crate::text::{Escaped, escaped, millis};

/// The report as it is printed; `follows` says that another one stands above.
pub(super) fn page(report: &Report, follows: bool) -> String {
    let mut out = String::new();
    if follows {
        out.push('\n');
    }
    write(report, &mut out);
    match anstream::AutoStream::choice(&io::stdout()) {
        ColorChoice::Never => anstream::adapter::strip_str(&out).to_string(),
        _ => out,
    }
}

fn write(report: &Report, out: &mut String) {
    put(
        out,
        format_args!("{BOLD}{}{BOLD:#}\n", escaped(&report.url)),
    );
    for Entry { check, is_accepted } in &report.entries {
        let (mark, style) = match check.status {
            // Those are listed at the end.
            Status::NotChecked => continue,
            _ if *is_accepted => ("accepted", DIM),
            Status::Ok => ("ok", GREEN),
            Status::Warning => ("warning", BOLD_YELLOW),
            _ => ("error", BOLD_RED),
        };
        let (id, summary) = (check.id, Escaped(&check.summary));
        put(
            out,
            format_args!("  {style}{mark:<9}{style:#} {id}: {summary}\n"),
        );
        if check.is_fault() {
            let see = link(check.id);
            for (name, text) in [
                ("impact", &*check.impact),
                ("fix", &*check.fix),
                ("see", &see),
            ] {
                let text = Escaped(text);
                put(
                    out,
                    format_args!("{:INDENT$}{DIM}{name:<7}{DIM:#}{text}\n", ""),
                );
            }
        }
    }
    if let Some(advice) = &report.advice {
        put(out, format_args!("{:INDENT$}{}\n", "", advice.text()));
    }
    put(out, format_args!("  {}\n", result(report)));
    for check in report.not_checked() {
        let summary = Escaped(&check.summary);
        put(
            out,
            format_args!("  {DIM}not checked: {}: {summary}{DIM:#}\n", check.id),
        );
    }
    put(out, format_args!("  {DIM}{NEVER_CHECKED}{DIM:#}\n"));
}

/// What no run of the doctor can tell.
const NEVER_CHECKED: &str = "not checked: crashes, partitions and failovers; docs/guarantees.md says \
                             what holds then";

fn result(report: &Report) -> String {
    let count = |status, one: &str| match report.count(status) {
        0 => None,
        1 => Some(format!("1 {one}")),
        n => Some(format!("{n} {one}s")),
    };
    let faults = [
        count(Status::Error, "error"),
        count(Status::Warning, "warning"),
    ];
    let faults = faults.into_iter().flatten().collect::<Vec<_>>().join(", ");
    match report.status() {
        Status::Ok => format!("{GREEN}no problems found{GREEN:#}"),
        Status::Warning => format!("{BOLD_YELLOW}{faults}{BOLD_YELLOW:#}"),
        _ => format!("{BOLD_RED}{faults}{BOLD_RED:#}"),
    }
}

fn put(out: &mut String, text: Arguments<'_>) {
    out.write_fmt(text).expect("BUG: a string takes all text");
}

/// Where the texts below a line begin.
const INDENT: usize = 12;

const BOLD: Style = Style::new().bold();
const BOLD_RED: Style = AnsiColor::Red.on_default().bold();
const BOLD_YELLOW: Style = AnsiColor::Yellow.on_default().bold();
const DIM: Style = Style::new().dimmed();
const GREEN: Style = AnsiColor::Green.on_default();

/// The section of the manual on a check.
fn link(id: &str) -> String {
    format!(
        "{}/blob/main/docs/doctor.md#{id}",
        env!("CARGO_PKG_REPOSITORY")
    )
}

/// All reports as one value, whose form `docs/doctor.md` describes.
pub(super) fn json(reports: &[Report]) -> Value {
    let worst = reports.iter().map(Report::status).max();
    json!({
        "schema": "lockctl-doctor/2",
        "status": worst.map(Status::as_str),
        "targets": reports.iter().map(target).collect::<Vec<_>>(),
    })
}

fn target(report: &Report) -> Value {
    let round_trip = report.round_trips.as_ref().map(|round_trips| {
        json!({
            "acquire_release": quantiles(&round_trips.cycle),
            "refused_try": quantiles(&round_trips.refused),
        })
    });
    json!({
        "url": report.url,
        "backend": report.backend,
        "status": report.status().as_str(),
        "checks": report.entries.iter().map(entry).collect::<Vec<_>>(),
        "not_checked": report.not_checked().map(|check| check.id).collect::<Vec<_>>(),
        "round_trip": round_trip,
        "recommended": report.advice.as_ref().map(recommended),
    })
}

fn entry(Entry { check, is_accepted }: &Entry) -> Value {
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

fn quantiles(quantiles: &Quantiles) -> Value {
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

/// Milliseconds with microseconds behind the point.
fn fraction(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use polylock::HealthCheck;

    use super::*;

    fn plain(report: &Report) -> String {
        let mut out = String::new();
        write(report, &mut out);
        anstream::adapter::strip_str(&out).to_string()
    }

    fn eviction() -> HealthCheck {
        HealthCheck::warning("eviction", "it evicts", "locks go", "do not")
    }

    #[test]
    fn a_fault_has_its_impact_and_its_fix_below_it() {
        let mut report = Report::new("redis://app:***@cache".to_owned(), None);
        report.add(HealthCheck::ok("version", "the server is Redis 7.0"));
        report.add(HealthCheck::not_checked("clock", "not told\u{1b}"));
        report.add(eviction());
        report.add(HealthCheck::warning("flush", "a", "b", "c"));
        report.accept(&["flush".to_owned()]);
        let see = "https://github.com/polylock/polylock/blob/main/docs/doctor.md";
        let expected = format!(
            "redis://app:***@cache\n  ok        version: the server is Redis 7.0\n  warning   \
             eviction: it evicts\n            impact locks go\n            fix    do not\n            \
             see    {see}#eviction\n  accepted  flush: a\n            impact b\n            \
             fix    c\n            see    {see}#flush\n  1 warning\n  \
             not checked: clock: not told\\u{{1b}}\n  {NEVER_CHECKED}\n"
        );
        assert_eq!(plain(&report), expected);
    }

    #[test]
    fn a_report_without_problems_says_so() {
        let mut report = Report::new("memory:".to_owned(), None);
        report.add(HealthCheck::ok("exclusion", "a"));
        let expected = format!("\n  no problems found\n  {NEVER_CHECKED}\n");
        assert!(plain(&report).ends_with(&expected));
    }

    #[test]
    fn programs_get_all_texts() {
        let mut report = Report::new("redis://a".to_owned(), Some("redis".to_owned()));
        report.add(eviction());
        report.add(HealthCheck::not_checked("clock", "a"));
        let value = json(&[report]);
        assert_eq!(value["schema"], "lockctl-doctor/2");
        assert_eq!(value["status"], "warning");
        let target = &value["targets"][0];
        let expected = json!({
            "id": "eviction",
            "status": "warning",
            "accepted": false,
            "summary": "it evicts",
            "impact": "locks go",
            "fix": "do not",
            "see": "https://github.com/polylock/polylock/blob/main/docs/doctor.md#eviction",
        });
        assert_eq!(target["checks"][0], expected);
        assert_eq!(target["not_checked"], json!(["clock"]));
        assert_eq!(target["round_trip"], Value::Null);
        assert_eq!(fraction(Duration::from_nanos(1_234_567)), 1.235);
    }
}
