//! Reports for programs.

use std::time::Duration;

use polylock::LockLifetime;
use serde_json::{Value, json};

use super::report::{Entry, Report, link};
use super::round_trip::{Quantiles, RoundTrips};
use super::terms::Advice;
use crate::text::millis;

/// All reports as one value, whose form `docs/doctor.md` describes.
pub(super) fn json(reports: &[Report]) -> Value {
    let worst = reports.iter().map(Report::verdict).max();
    json!({
        "schema": "lockctl-doctor/1",
        "verdict": worst.map(polylock::Verdict::as_str),
        "targets": reports.iter().map(target).collect::<Vec<_>>(),
    })
}

fn target(report: &Report) -> Value {
    json!({
        "url": report.url,
        "backend": report.backend,
        "verdict": report.verdict().as_str(),
        "findings": report.entries.iter().map(finding).collect::<Vec<_>>(),
        "round_trip": report.round_trips.as_ref().map(round_trip),
        "recommended": report.advice.as_ref().map(recommended),
    })
}

fn finding(entry: &Entry) -> Value {
    let finding = &entry.finding;
    let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    json!({
        "check": finding.check,
        "verdict": finding.verdict.as_str(),
        "accepted": entry.is_accepted,
        "what": finding.what,
        "why": known(&finding.why),
        "way_out": known(&finding.way_out),
        "see": finding.is_fault().then(|| link(finding.check)),
    })
}

fn round_trip(round_trips: &RoundTrips) -> Value {
    json!({
        "acquire_release": quantiles(&round_trips.cycle),
        "refused_try": quantiles(&round_trips.refused),
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
        "least_ttl_ms": advice.least.map(millis),
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
    use polylock::Finding;

    use super::*;

    #[test]
    fn a_fault_has_all_of_its_texts() {
        let mut report = Report::new("redis://a".to_owned(), Some("redis".to_owned()));
        report.add(Finding::warning(
            "eviction",
            "it evicts",
            "locks go",
            "do not",
        ));
        let value = json(&[report]);
        assert_eq!(value["schema"], "lockctl-doctor/1");
        assert_eq!(value["verdict"], "warning");
        let found = &value["targets"][0]["findings"][0];
        let see = "https://github.com/polylock/polylock/blob/main/docs/doctor.md#eviction";
        assert_eq!(
            *found,
            json!({
                "check": "eviction",
                "verdict": "warning",
                "accepted": false,
                "what": "it evicts",
                "why": "locks go",
                "way_out": "do not",
                "see": see,
            })
        );
        assert_eq!(value["targets"][0]["round_trip"], Value::Null);
    }

    #[test]
    fn times_have_microseconds() {
        assert_eq!(fraction(Duration::from_nanos(1_234_567)), 1.235);
    }
}
