//! The alert rules of Prometheus and the dashboard of Grafana name metrics that exist.

use std::collections::BTreeSet;

use polylock::observe::{Metric, MetricKind};
use saphyr::{LoadableYamlNode as _, Yaml};
use serde_json::Value;

const ALERTS: &str = include_str!("../../../../contrib/prometheus/alerts.yml");

fn rules() -> Vec<Yaml<'static>> {
    let documents = Yaml::load_from_str(ALERTS).expect("the rules are YAML");
    assert_eq!(documents.len(), 1);
    let groups = documents[0]["groups"].as_vec().expect("groups");
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_vec().expect("rules"));
    rules.cloned().collect()
}

fn text<'a>(rule: &'a Yaml<'_>, name: &str) -> &'a str {
    rule[name]
        .as_str()
        .unwrap_or_else(|| panic!("{name} is missing in {rule:?}"))
}

#[test]
fn every_rule_names_what_there_is() {
    let rules = rules();
    assert!(rules.len() >= 8);
    for rule in &rules {
        let named = check(text(rule, "expr"));
        let named = named.unwrap_or_else(|wrong| panic!("{}: {wrong}", text(rule, "alert")));
        assert!(!named.is_empty());
    }
}

#[test]
fn every_rule_says_what_to_do() {
    for rule in rules() {
        assert!(text(&rule, "alert").starts_with("Lock"));
        assert!(["page", "ticket"].contains(&text(&rule["labels"], "severity")));
        for name in ["summary", "description"] {
            let text = text(&rule["annotations"], name);
            assert!(text.len() > 20, "{text}");
        }
    }
}

const DASHBOARD: &str = include_str!("../../../../contrib/grafana/dashboard.json");

fn dashboard() -> Value {
    serde_json::from_str(DASHBOARD).expect("the dashboard is JSON")
}

fn panels() -> Vec<Value> {
    let panels = dashboard()["panels"].as_array().expect("panels").clone();
    panels
        .into_iter()
        .filter(|panel| panel["type"] != "row")
        .collect()
}

#[test]
fn every_query_names_what_there_is_and_every_metric_is_shown() {
    let mut shown = BTreeSet::new();
    for panel in panels() {
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            let query = target["expr"].as_str().expect("a query");
            let named = check(query).unwrap_or_else(|wrong| panic!("{}: {wrong}", panel["title"]));
            assert!(!named.is_empty(), "{query}");
            shown.extend(named);
        }
    }
    assert_eq!(shown, BTreeSet::from(Metric::ALL));
}

#[test]
fn variables_ask_for_labels_that_there_are() {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"]
        .as_array()
        .expect("variables");
    let queries: Vec<_> = variables
        .iter()
        .filter_map(|variable| variable["definition"].as_str())
        .collect();
    assert_eq!(queries.len(), 2);
    for query in queries {
        let inside = query
            .strip_prefix("label_values(")
            .expect("asks for a label");
        let (series, label) = inside
            .trim_end_matches(')')
            .rsplit_once(", ")
            .expect("a label");
        let named = check(series).expect("is a series");
        assert!(
            named.iter().all(|metric| metric.labels().contains(&label)),
            "{query}"
        );
    }
}

#[test]
fn panels_say_their_unit_and_do_not_overlap() {
    let mut places = Vec::new();
    for panel in panels() {
        assert!(
            panel["fieldConfig"]["defaults"]["unit"].is_string(),
            "{panel}"
        );
        assert!(panel["description"].is_string(), "{}", panel["title"]);
        let at = |name: &str| panel["gridPos"][name].as_u64().expect("a number");
        let (x, y, w, h) = (at("x"), at("y"), at("w"), at("h"));
        assert!(x + w <= 24);
        for (other_x, other_y, other_w, other_h) in &places {
            let apart = x + w <= *other_x || other_x + other_w <= x;
            let above = y + h <= *other_y || other_y + other_h <= y;
            assert!(apart || above, "{} lies on another panel", panel["title"]);
        }
        places.push((x, y, w, h));
    }
}

/// What is wrong with the metrics of a query, if anything; else which it names.
fn check(query: &str) -> Result<BTreeSet<Metric>, String> {
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

/// The labels that a query aggregates by.
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
    let known = match label {
        "end" => "abandoned already_lost failed handed_over expiring lost released ticket",
        "kind" => "denied foreign protocol unavailable",
        "mode" => "try wait",
        "outcome" => {
            "acquired already_lost busy cancelled error expiring failed handed_over lost ok ran \
             released skipped timeout unknown unrecorded"
        }
        "reason" => {
            "broken expired idempotency-store-unavailable lock-lost lock-misconfigured \
             lock-unavailable max_hold session_ended stolen unknown unreachable"
        }
        _ => return Ok(()),
    };
    let is_known = |value: &&str| known.split(' ').any(|known| known == *value);
    let wrong = value.split('|').find(|value| !is_known(value));
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
