//! Which metrics, labels and values a query names, checked against those of the code.

use std::collections::BTreeSet;

use polylock::observe::{Metric, MetricKind};

/// What is wrong with the metrics of a query, if anything; else which it names.
pub(crate) fn check(query: &str) -> Result<BTreeSet<Metric>, String> {
    let selectors = selectors(query);
    let mut seen = BTreeSet::new();
    for selector in &selectors {
        let metric = metric(&selector.name)?;
        for (label, value) in &selector.matchers {
            expect(metric.labels().contains(&label.as_str()), label, query)?;
            check_values(label, value)?;
        }
        seen.insert(metric);
    }
    for label in grouped(query) {
        let has = |metric: &Metric| metric.labels().contains(&label.as_str());
        expect(label == "le" || seen.iter().all(has), &label, query)?;
    }
    Ok(seen)
}

struct Selector {
    name: String,
    matchers: Vec<(String, String)>,
}

fn selectors(query: &str) -> Vec<Selector> {
    let starts = query.match_indices("polylock_").map(|(at, _)| &query[at..]);
    starts
        .map(|rest| {
            let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
            let matchers = rest[end..]
                .strip_prefix('{')
                .and_then(|rest| rest.split_once('}'));
            Selector {
                name: rest[..end].to_owned(),
                matchers: matchers.map_or_else(Vec::new, |(inside, _)| parse(inside)),
            }
        })
        .collect()
}

fn parse(matchers: &str) -> Vec<(String, String)> {
    let each = matchers
        .split(',')
        .filter(|matcher| !matcher.trim().is_empty());
    each.map(|matcher| {
        let (label, value) = matcher.split_once('=').expect("a matcher has an operator");
        let label = label.trim().trim_end_matches('!');
        let value = value.trim_start_matches('~').trim().trim_matches('"');
        (label.to_owned(), value.to_owned())
    })
    .collect()
}

/// The labels that a query aggregates by, or that a text of an alert shows.
fn grouped(query: &str) -> Vec<String> {
    let lists = query.split("by (").skip(1);
    let labels = lists.filter_map(|rest| rest.split_once(')'));
    labels
        .flat_map(|(list, _)| list.split(','))
        .map(|label| label.trim().to_owned())
        .collect()
}

/// The metric whose series has this name.
fn metric(name: &str) -> Result<Metric, String> {
    let known = Metric::ALL.into_iter().find(|metric| {
        let own = metric.prometheus_name(Metric::DEFAULT_PREFIX);
        match metric.kind() {
            MetricKind::Histogram => ["_bucket", "_count", "_sum"]
                .iter()
                .any(|suffix| name.strip_suffix(suffix) == Some(&own)),
            _ => name == own,
        }
    });
    known.ok_or_else(|| format!("there is no series {name}"))
}

fn check_values(label: &str, value: &str) -> Result<(), String> {
    let known: &[&str] = match label {
        "end" => &[
            "abandoned",
            "already_lost",
            "failed",
            "handed_over",
            "lapsing",
            "lost",
            "released",
            "ticket",
        ],
        "kind" => &["denied", "protocol", "unavailable"],
        "mode" => &["try", "wait"],
        "outcome" => &[
            "acquired",
            "busy",
            "cancelled",
            "error",
            "failed",
            "lost",
            "ok",
            "ran",
            "released",
            "skipped",
            "timeout",
        ],
        _ => return Ok(()),
    };
    let wrong = value.split('|').find(|value| !known.contains(value));
    wrong.map_or(Ok(()), |wrong| Err(format!("{label} is never {wrong:?}")))
}

fn expect(holds: bool, label: &str, query: &str) -> Result<(), String> {
    match holds {
        true => Ok(()),
        false => Err(format!("a series of {query} has no label {label}")),
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[test]
fn a_query_that_names_something_else_is_found() {
    assert!(check(r#"rate(polylock_lost_total{reason="broken"}[5m])"#).is_ok());
    for wrong in [
        "polylock_losses_total",
        "polylock_hold_duration_seconds",
        r#"polylock_held{key="a"}"#,
        "sum by (class, reason) (polylock_held)",
        r#"polylock_acquire_duration_seconds_count{outcome=~"acquired|timed_out"}"#,
    ] {
        assert!(check(wrong).is_err(), "{wrong}");
    }
}
