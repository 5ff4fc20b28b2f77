//! What `list`, `inspect`, `try`, `break`, `watch`, `completions` and `man` answer.

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use crate::common::{Place, Process};

fn names(value: &Value) -> BTreeSet<&str> {
    value
        .as_object()
        .expect("of this type")
        .keys()
        .map(String::as_str)
        .collect()
}

fn text(place: &Place, args: &[&str]) -> String {
    String::from_utf8(place.run(args).stdout).expect("of this type")
}

#[test]
fn a_lock_in_json_has_all_of_its_fields() {
    let place = Place::new();
    let holder = place.hold(&["--note", "reindex", "k"], "exec sleep 60");
    let answer = place.json(&["inspect", "k"]);
    assert_eq!(names(&answer), ["held", "key", "lock"].into());
    assert_eq!(
        (&answer["key"], &answer["held"]),
        (&json!("k"), &json!(true))
    );
    let lock = &answer["lock"];
    assert_eq!(
        names(lock),
        ["holders", "key", "limit", "mode", "waiters"].into()
    );
    assert_eq!(
        (&lock["mode"], &lock["limit"]),
        (&json!("exclusive"), &Value::Null)
    );
    let shown = &lock["holders"][0];
    let fields = [
        "held_ms",
        "host",
        "lease_left_ms",
        "note",
        "pid",
        "program",
        "since",
        "token",
        "user",
    ];
    assert_eq!(names(shown), fields.into());
    assert_eq!(shown["pid"], holder.pid().as_raw_nonzero().get());
    assert_eq!(shown["note"], "reindex");
    assert_eq!(shown["user"], "deploy");
    assert_eq!(shown["program"], "lockctl");
    assert!(shown["token"].is_u64() && shown["held_ms"].is_u64());
    assert!(shown["lease_left_ms"].as_u64().unwrap() <= 30_000);
    assert!(shown["since"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn a_free_lock_in_json() {
    let place = Place::new();
    assert_eq!(
        place.json(&["inspect", "k"]),
        json!({"key": "k", "held": false, "lock": null})
    );
    assert_eq!(
        place.json(&["try", "k"]),
        json!({"key": "k", "held": false, "holders": []})
    );
    assert_eq!(place.json(&["list"]), json!({"locks": []}));
    assert_eq!(
        place.json(&["break", "--yes", "k"]),
        json!({"key": "k", "broken": null})
    );
}

#[test]
fn list_takes_beginnings_and_stars() {
    let place = Place::new();
    let _all = place.hold(&["orders/1", "orders/2", "bills/2"], "exec sleep 60");
    let keys = |pattern: &str| {
        let answer = place.json(&["list", pattern]);
        let locks = answer["locks"].as_array().unwrap();
        locks
            .iter()
            .map(|lock| lock["key"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(""), ["bills/2", "orders/1", "orders/2"]);
    assert_eq!(keys("orders/"), ["orders/1", "orders/2"]);
    assert_eq!(keys("*/2"), ["bills/2", "orders/2"]);
    assert_eq!(keys("o*1"), ["orders/1"]);
    assert_eq!(keys("none"), [""; 0]);
}

#[test]
fn list_for_people_is_a_table() {
    let place = Place::new();
    assert_eq!(
        place.code(&["list"]),
        (0, "lockctl: no locks are held\n".to_owned())
    );
    let holder = place.hold(&["--note", "a\u{1b}[2Jb", "k\u{202e}x"], "exec sleep 60");
    let table = text(&place, &["list"]);
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 2, "{table}");
    let columns = [
        "KEY",
        "MODE",
        "HOLDER",
        "USER",
        "AGE",
        "LEASE LEFT",
        "TOKEN",
        "WAITERS",
        "NOTE",
    ];
    assert!(
        columns.iter().all(|column| lines[0].contains(column)),
        "{table}"
    );
    assert!(lines[1].starts_with("k\\u{202e}x  exclusive  "), "{table}");
    assert!(
        lines[1].contains(&format!(" pid {}", holder.pid().as_raw_nonzero())),
        "{table}"
    );
    assert!(lines[1].ends_with("a\\u{1b}[2Jb"), "{table}");
}

#[test]
fn inspect_for_people_has_a_line_for_each_fact() {
    let place = Place::new();
    assert_eq!(text(&place, &["inspect", "k"]), "k is free\n");
    let _holder = place.hold(&["--note", "reindex", "k"], "exec sleep 60");
    let page = text(&place, &["inspect", "k"]);
    for fact in [
        "key", "mode", "holder", "  user", "  note", "  since", "  token", "  lease",
    ] {
        assert!(
            page.lines()
                .any(|line| line.starts_with(&format!("{fact} "))),
            "{fact}: {page}"
        );
    }
}

#[test]
fn try_says_who_holds() {
    let place = Place::new();
    assert_eq!(text(&place, &["try", "k"]), "k is free\n");
    let _holder = place.hold(&["k"], "exec sleep 60");
    assert!(text(&place, &["try", "k"]).starts_with("k is held by "));
    let answer = place.json(&["try", "k"]);
    assert_eq!(
        (&answer["held"], &answer["holders"][0]["user"]),
        (&json!(true), &json!("deploy"))
    );
}

#[test]
fn a_broken_lock_is_shown_and_its_successor_has_a_larger_token() {
    let place = Place::new();
    let _holder = place.hold(&["k"], "exec sleep 60");
    let answer = place.json(&["break", "--yes", "--reason", "stuck", "k"]);
    assert_eq!(answer["broken"]["key"], "k");
    let old = answer["broken"]["holders"][0]["token"].as_u64().unwrap();
    let output = place.run(&[
        "run",
        "-n",
        "k",
        "--",
        "sh",
        "-c",
        "echo $LOCK_FENCING_TOKEN",
    ]);
    let new: u64 = String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(new > old);
    assert_eq!(
        text(&place, &["break", "--yes", "k"]),
        "k is free, nothing is broken\n"
    );
}

#[test]
fn break_asks_on_a_terminal() {
    let place = Place::new();
    let _holder = place.hold(&["k"], "exec sleep 60");
    let ask = |answer: &str| {
        let line = format!("{} break k", env!("CARGO_BIN_EXE_lockctl"));
        let mut command = std::process::Command::new("script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        place.settle(&mut command);
        command.stdin(std::process::Stdio::piped());
        let mut process = Process::start(command);
        let mut keyboard = process.child().stdin.take().unwrap();
        std::io::Write::write_all(&mut keyboard, answer.as_bytes()).unwrap();
        let output = process.output();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (code, screen) = ask("n\n");
    assert_eq!(code, 0);
    assert!(
        screen.contains("k is held by ") && screen.contains("break it? [y/N]"),
        "{screen}"
    );
    assert!(place.is_held("k"));
    let (code, screen) = ask("y\n");
    assert_eq!(code, 0);
    assert!(screen.contains("k was held by "), "{screen}");
    assert!(!place.is_held("k"));
}

#[test]
fn watch_prints_what_happens() {
    let place = Place::new();
    assert_eq!(place.code(&["run", "warm-up", "--", "true"]).0, 0);
    let mut watch = place.start(&["--format", "json", "watch", "or*"]);
    let mut lines = BufReader::new(watch.child().stdout.take().unwrap()).lines();
    let (send, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        while let Some(Ok(line)) = lines.next() {
            send.send(serde_json::from_str::<Value>(&line).unwrap())
                .unwrap();
        }
    });
    // Until the watch has begun, changes go unseen; the first one seen says that it has.
    let acquired = loop {
        let other = place.hold(&["bills"], "exec sleep 60");
        let holder = place.hold(&["orders"], "exec sleep 60");
        let event = seen.recv_timeout(std::time::Duration::from_secs(2));
        holder.signal(rustix::process::Signal::TERM);
        other.signal(rustix::process::Signal::TERM);
        holder.output();
        if let Ok(event) = event {
            break event;
        }
    };
    assert_eq!(
        names(&acquired),
        ["event", "key", "lock", "time", "unix_ms"].into()
    );
    assert_eq!(
        (&acquired["event"], &acquired["key"]),
        (&json!("acquired"), &json!("orders"))
    );
    assert_eq!(acquired["lock"]["holders"][0]["user"], "deploy");
    let free = seen.recv_timeout(common::SOON).unwrap();
    assert_eq!(
        (&free["event"], &free["key"]),
        (&json!("free"), &json!("orders"))
    );
}

#[test]
fn completions_and_man_know_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&place, &["completions", shell]);
        assert!(
            script.contains("inspect") && script.contains("at-least-for"),
            "{shell}"
        );
        assert!(!script.contains("__exec"), "{shell}");
    }
    let page = text(&place, &["man"]);
    assert!(
        page.contains(".TH lockctl 1") && page.contains("lost\\-exit\\-code"),
        "{page}"
    );
    assert!(!place.database().exists(), "neither needs a backend");
}

#[test]
fn an_answer_that_nobody_reads_is_no_error() {
    let place = Place::new();
    let lockctl = env!("CARGO_BIN_EXE_lockctl");
    let mut command = std::process::Command::new("sh");
    command.args([
        "-c",
        &format!("({lockctl} completions bash; echo $? > code) | :"),
    ]);
    place.settle(&mut command);
    assert_eq!(Process::start(command).code(), 0);
    common::until("lockctl has ended", || !place.read("code").is_empty());
    assert_eq!(place.read("code"), "0\n");
}
