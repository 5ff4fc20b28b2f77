//! What is asked for, and how it is answered.

use serde_json::{Value, json};

use crate::common::Place;
use crate::support::{Bill, examine, examine_with};

#[test]
fn a_store_of_this_process_gets_a_clean_bill() {
    let bill = examine_with(&["memory:", "memory:shop", "memory:shop"], |_| {});
    bill.assert_clean();
    let targets = bill.value["targets"].as_array().unwrap();
    assert_eq!(urls(&bill), ["memory:", "memory:shop", "memory:shop"]);
    assert!(targets.iter().all(|target| target["verdict"] == "good"));
    assert_eq!(bill.finding("expiry")["verdict"], "good");
}

#[test]
fn the_answer_for_programs_has_its_documented_form() {
    let bill = examine("memory:");
    assert_eq!(bill.value["schema"], "lockctl-doctor/1");
    assert_eq!(bill.value["verdict"], "good");
    let target = &bill.value["targets"][0];
    let recommended = json!({
        "bound": "lease",
        "least_ttl_ms": 5000,
        "ttl_ms": 30000,
        "renewal_ms": 10000,
    });
    assert_eq!(target["recommended"], recommended);
    for exchange in ["acquire_release", "refused_try"] {
        let measured = &target["round_trip"][exchange];
        assert!(measured["count"].as_u64().unwrap() >= 5, "{measured}");
        let (p50, p99) = (&measured["p50_ms"], &measured["p99_ms"]);
        assert!(p50.as_f64().unwrap() <= p99.as_f64().unwrap(), "{measured}");
    }
    let finding = bill.finding("exclusion").as_object().unwrap();
    let mut keys: Vec<_> = finding.keys().map(String::as_str).collect();
    keys.sort_unstable();
    let expected = [
        "accepted", "check", "see", "verdict", "way_out", "what", "why",
    ];
    assert_eq!(keys, expected);
    assert_eq!(finding["why"], Value::Null);
}

#[test]
fn without_a_url_it_looks_at_the_chosen_backend() {
    let place = Place::new();
    let text = String::from_utf8(place.run(&["doctor"]).stdout).unwrap();
    assert!(text.starts_with("sqlite:"), "{text}");
    assert!(place.database().exists());
    let value = place.json(&["--backend", "memory:", "--namespace", "a b", "doctor"]);
    assert_eq!(value["targets"][0]["url"], "memory:?namespace=a%20b");
}

#[test]
fn a_namespace_is_that_of_all_targets() {
    let bill = examine_with(
        &["--namespace", "shop", "memory:", "memory:x?namespace=old"],
        |_| {},
    );
    assert_eq!(
        urls(&bill),
        ["memory:?namespace=shop", "memory:x?namespace=shop"]
    );
}

#[test]
fn a_namespace_of_the_environment_is_that_of_targets_without_one() {
    let bill = examine_with(&["memory:", "memory:x?namespace=own"], |command| {
        command.env("LOCK_KEY_NAMESPACE", "shop");
    });
    assert_eq!(
        urls(&bill),
        ["memory:?namespace=shop", "memory:x?namespace=own"]
    );
}

fn urls(bill: &Bill) -> Vec<&Value> {
    let targets = bill.value["targets"].as_array().expect("a list");
    targets.iter().map(|target| &target["url"]).collect()
}

#[test]
fn a_url_that_is_wrong_is_a_fault_with_a_way_out() {
    let table = [
        ("carrier-pigeon://roof", "unknown scheme"),
        ("rdis://cache", "did you mean \"redis\"?"),
        ("memory:?namspace=x", "did you mean \"namespace\"?"),
        ("localhost:6379", ""),
        ("redis://cache:port", "not a number"),
    ];
    for (url, says) in table {
        let bill = examine(url);
        assert_eq!(bill.faults(), [("url", "error")], "{url}");
        assert!(bill.what("url").contains(says), "{url}: {:#}", bill.value);
        assert_eq!(bill.code, 1, "{url}");
    }
}

#[test]
fn one_bad_target_among_good_ones_is_a_fault() {
    let bill = examine_with(&["memory:", "carrier-pigeon://roof"], |_| {});
    assert_eq!(bill.code, 1);
    assert_eq!(bill.value["verdict"], "error");
    assert_eq!(bill.value["targets"][0]["verdict"], "good");
    assert_eq!(bill.value["targets"][1]["verdict"], "error");
}

#[test]
fn people_get_lines_with_the_reason_and_the_way_out() {
    let place = Place::new();
    let output = place.run(&["doctor", "memory:", "redis://127.0.0.1:1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "memory:");
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
        assert!(
            lines.iter().any(|line| line.starts_with(begins)),
            "{begins:?} in\n{text}"
        );
    }
    assert!(!text.contains('\u{1b}'), "colours in a pipe");
    let coloured = place.run(&["--color", "always", "doctor", "redis://127.0.0.1:1"]);
    assert!(
        String::from_utf8(coloured.stdout)
            .unwrap()
            .contains("\u{1b}[1m\u{1b}[31merror")
    );
}

#[test]
fn a_lease_that_is_none_is_wrong_usage() {
    let place = Place::new();
    assert_eq!(place.code(&["doctor", "--ttl", "0.5", "memory:"]).0, 64);
    assert_eq!(place.code(&["doctor", "--ttl", "25h", "memory:"]).0, 64);
}

#[test]
fn what_is_accepted_and_not_there_is_said() {
    let bill = examine_with(&["--accept", "flush,login", "memory:"], |_| {});
    assert_eq!(bill.code, 0);
    for name in ["flush", "login"] {
        let note = format!("--accept {name}: there is no such warning");
        assert!(bill.said.contains(&note), "{}", bill.said);
    }
}

#[test]
fn no_password_is_said() {
    let place = Place::new();
    let urls = [
        "redis://app:s3ntinel@127.0.0.1:1/0?timeout=1s",
        "redis://app:s3ntinel@no-such-host.invalid",
        "postgres://app:s3ntinel@127.0.0.1:1/shop",
        "mysql://app:s3ntinel@127.0.0.1:1/shop",
        "zk://app:s3ntinel@127.0.0.1:1/locks",
        "sqlite://u:s3ntinel@h/x",
        "redis://u:s3#ntinel@h:x",
        "carrier-pigeon://u:s3ntinel@h",
    ];
    for options in [&["-vv"][..], &["--format", "json"]] {
        let output = place.run(&[options, &["doctor"], &urls].concat());
        assert_eq!(output.status.code(), Some(1));
        let all = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(
            !all.contains("s3ntinel") && !all.contains("ntinel@"),
            "{all}"
        );
    }
}
