//! What is asked for, and how it is answered.

use serde_json::{Value, json};

use super::support::{Bill, examine, examine_with, text};
use crate::common::Place;

fn urls(bill: &Bill) -> Vec<&str> {
    let targets = bill.value["targets"].as_array();
    let targets = targets.unwrap_or_else(|| panic!("no targets: {bill}"));
    targets.iter().map(|target| text(target, "url")).collect()
}

#[test]
fn the_answer_for_programs_has_its_documented_form() {
    let bill = examine("memory:");
    bill.assert_clean();
    bill.assert_verdict("expiry", "good");
    assert_eq!(bill.value["schema"], "lockctl-doctor/1", "{bill}");
    assert_eq!(bill.value["verdict"], "good", "{bill}");
    let target = &bill.value["targets"][0];
    assert_eq!(target["verdict"], "good", "{bill}");
    let recommended = json!({
        "bound": "lease",
        "least_ttl_ms": 5000,
        "ttl_ms": 30000,
        "renewal_ms": 10000,
    });
    assert_eq!(target["recommended"], recommended, "{bill}");
    for exchange in ["acquire_release", "refused_try"] {
        let measured = &target["round_trip"][exchange];
        assert!(
            measured["count"].as_u64() >= Some(5),
            "fewer than 5: {measured}"
        );
        let quantiles = [&measured["p50_ms"], &measured["p99_ms"]].map(Value::as_f64);
        assert!(
            quantiles.iter().all(Option::is_some),
            "no quantiles: {measured}"
        );
        assert!(quantiles[0] <= quantiles[1], "p50 is above p99: {measured}");
    }
    let finding = bill.finding("exclusion");
    let keys = finding
        .as_object()
        .map(|finding| finding.keys().map(String::as_str));
    let mut keys: Vec<_> = keys.into_iter().flatten().collect();
    keys.sort_unstable();
    let expected = [
        "accepted", "check", "see", "verdict", "way_out", "what", "why",
    ];
    assert_eq!(keys, expected, "{finding}");
    assert_eq!(finding["why"], Value::Null, "{finding}");
}

#[test]
fn without_a_url_it_looks_at_the_chosen_backend() {
    let place = Place::new();
    let ended = place.expect(0, "doctor");
    assert!(ended.stdout.starts_with("sqlite:"), "{ended}");
    assert!(
        place.database().exists(),
        "the default database is not there"
    );
    let value = place.json("--backend memory: --namespace 'a b' doctor");
    assert_eq!(
        value["targets"][0]["url"], "memory:?namespace=a%20b",
        "{value}"
    );
}

#[test]
fn all_targets_are_examined_in_their_namespace() {
    let ambient = [("LOCK_KEY_NAMESPACE", "shop")];
    for (args, variables, expected) in [
        // An option is that of all targets, a variable that of targets without one.
        (
            &["--namespace", "shop", "memory:", "memory:x?namespace=old"][..],
            &[][..],
            &["memory:?namespace=shop", "memory:x?namespace=shop"][..],
        ),
        (
            &["memory:", "memory:x?namespace=own"],
            &ambient,
            &["memory:?namespace=shop", "memory:x?namespace=own"],
        ),
        (
            &["memory:", "memory:shop", "memory:shop"],
            &[],
            &["memory:", "memory:shop", "memory:shop"],
        ),
    ] {
        let bill = examine_with(args, |command| {
            command.envs(variables.iter().copied());
        });
        assert_eq!(urls(&bill), expected, "{bill}");
        bill.assert_clean();
        bill.assert_verdict("expiry", "good");
        for at in 0..expected.len() {
            let target = &bill.value["targets"][at];
            assert_eq!(target["verdict"], "good", "{target}: {bill}");
        }
    }
}

#[test]
fn a_url_that_is_wrong_is_a_fault_with_a_way_out() {
    for (url, says) in [
        ("carrier-pigeon://roof", "unknown scheme"),
        ("rdis://cache", "did you mean \"redis\"?"),
        ("memory:?namspace=x", "did you mean \"namespace\"?"),
        ("localhost:6379", ""),
        ("redis://cache:port", "not a number"),
    ] {
        let bill = examine(url);
        bill.assert_faults(&[("url", "error")]);
        bill.assert_says("url", says);
        assert_eq!(bill.ended.code, 1, "{bill}");
    }
}

#[test]
fn one_bad_target_among_good_ones_is_a_fault() {
    let bill = examine_with(&["memory:", "carrier-pigeon://roof"], |_| {});
    assert_eq!(bill.ended.code, 1, "{bill}");
    assert_eq!(bill.value["verdict"], "error", "{bill}");
    let verdicts = [0, 1].map(|at: usize| text(&bill.value["targets"][at], "verdict"));
    assert_eq!(verdicts, ["good", "error"], "{bill}");
}

#[test]
fn people_get_lines_with_the_reason_and_the_way_out() {
    let place = Place::new();
    let ended = place.expect(1, "doctor memory: redis://127.0.0.1:1");
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines.first(), Some(&"memory:"), "{ended}");
    for begins in [
        "  ok        exclusion: two connections contended",
        "            recommended ttl: 30s, renewed every 10s; at least 5s.",
        "  fit for locks",
        "redis://127.0.0.1:1",
        "  error     reach: 127.0.0.1:1 refuses connections",
        "            why     ",
        "            way out start the server",
        "            see     https://github.com/polylock/polylock/blob/main/docs/doctor.md#reach",
        "  1 error",
    ] {
        let is_there = lines.iter().any(|line| line.starts_with(begins));
        assert!(is_there, "no line begins with {begins:?}: {ended}");
    }
    ended.says_nothing_of(&["\u{1b}"]);
    let colored = place.expect(1, "--color always doctor redis://127.0.0.1:1");
    colored.prints(&["\u{1b}[1m\u{1b}[31merror"]);
}

#[test]
fn an_accepted_warning_that_is_not_there_is_said() {
    let ended = Place::new().expect(0, "doctor --accept flush,login memory:");
    let note = |name: &str| format!("--accept {name}: there is no such warning");
    ended.says(&[&note("flush"), &note("login")]);
}
