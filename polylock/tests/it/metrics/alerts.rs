//! The alert rules of Prometheus name metrics that exist.

use saphyr::{LoadableYamlNode as _, Yaml};

use super::promql::check;

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
