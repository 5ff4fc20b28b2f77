//! The dashboard of Grafana shows metrics that exist, and all of them.

use std::collections::BTreeSet;

use polylock::observe::Metric;
use serde_json::Value;

use super::promql::check;

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
fn every_query_names_what_there_is() {
    for panel in panels() {
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            let query = target["expr"].as_str().expect("a query");
            let named = check(query).unwrap_or_else(|wrong| panic!("{}: {wrong}", panel["title"]));
            assert!(!named.is_empty(), "{query}");
        }
    }
}

#[test]
fn every_metric_is_shown() {
    let mut shown = BTreeSet::new();
    for panel in panels() {
        for target in panel["targets"].as_array().expect("targets") {
            shown.extend(check(target["expr"].as_str().expect("a query")).expect("checked"));
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
