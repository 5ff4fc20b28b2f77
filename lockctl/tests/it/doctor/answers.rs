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
    bill.assert_status("expiry", "ok");
    assert_eq!(bill.value["schema"], "lockctl-doctor/2", "{bill}");
    assert_eq!(bill.value["status"], "ok", "{bill}");
    let target = &bill.value["targets"][0];
    assert_eq!(target["status"], "ok", "{bill}");
    let recommended = json!({
        "bound": "lease",
        "min_ttl_ms": 5000,
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
    let check = bill.check("exclusion");
    let keys = check
        .as_object()
        .map(|check| check.keys().map(String::as_str));
    let mut keys: Vec<_> = keys.into_iter().flatten().collect();
    keys.sort_unstable();
    let expected = [
        "accepted", "fix", "id", "impact", "see", "status", "summary",
    ];
    assert_eq!(keys, expected, "{check}");
    assert_eq!(check["impact"], Value::Null, "{check}");
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
        bill.assert_status("expiry", "ok");
        for at in 0..expected.len() {
            let target = &bill.value["targets"][at];
            assert_eq!(target["status"], "ok", "{target}: {bill}");
        }
    }
}

#[test]
fn a_url_that_is_wrong_is_a_fault_with_a_fix() {
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
    assert_eq!(bill.value["status"], "error", "{bill}");
    let statuses = [0, 1].map(|at: usize| text(&bill.value["targets"][at], "status"));
    assert_eq!(statuses, ["ok", "error"], "{bill}");
}

#[test]
fn people_get_lines_with_the_impact_and_the_fix() {
    let place = Place::new();
    let ended = place.expect(1, "doctor memory: redis://127.0.0.1:1");
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines.first(), Some(&"memory:"), "{ended}");
    for begins in [
        "  ok        exclusion: two connections contended",
        "            recommended ttl: 30s, renewed every 10s; min 5s.",
        "  no problems found",
        "  not checked: crashes, partitions and failovers;",
        "redis://127.0.0.1:1",
        "  error     connect: cannot connect to 127.0.0.1:1",
        "            impact ",
        "            fix    start the server",
        "            see    https://github.com/polylock/polylock/blob/main/docs/doctor.md#connect",
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
