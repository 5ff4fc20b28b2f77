//! What `list`, `inspect`, `try`, `break`, `watch`, `completions` and `man` answer.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::fixture::{LOCKCTL, Place, Process, children};

#[track_caller]
fn assert_fields(value: &Value, expected: &[&str]) {
    let fields = value.as_object().map(|object| object.keys());
    let fields = fields.unwrap_or_else(|| panic!("no object: {value}"));
    let fields: BTreeSet<_> = fields.map(String::as_str).collect();
    assert_eq!(fields, expected.iter().copied().collect(), "{value}");
}

#[test]
fn a_lock_in_json_has_all_of_its_fields() {
    let place = Place::new();
    let holder = place.holder("--note reindex k");
    let answer = place.json("inspect k");
    assert_fields(&answer, &["held", "key", "lock"]);
    assert_eq!(answer["key"], "k", "{answer}");
    assert_eq!(answer["held"], true, "{answer}");
    let lock = &answer["lock"];
    assert_fields(lock, &["holders", "key", "limit", "mode", "waiters"]);
    assert_eq!(lock["mode"], "exclusive", "{lock}");
    assert_eq!(lock["limit"], Value::Null, "{lock}");
    let shown = &lock["holders"][0];
    let texts = ["host", "note", "program", "since", "user"];
    let numbers = ["held_ms", "lease_left_ms", "pid", "token"];
    assert_fields(shown, &[&texts[..], &numbers].concat());
    assert!(numbers.iter().all(|name| shown[*name].is_u64()), "{shown}");
    assert_eq!(shown["pid"], holder.child.id(), "{shown}");
    for (name, text) in [
        ("note", "reindex"),
        ("user", "deploy"),
        ("program", "lockctl"),
    ] {
        assert_eq!(shown[name], text, "{shown}");
    }
    assert!(shown["lease_left_ms"].as_u64() <= Some(30_000), "{shown}");
    let is_utc = shown["since"]
        .as_str()
        .is_some_and(|since| since.ends_with('Z'));
    assert!(is_utc, "{shown}");
}

#[test]
fn a_free_lock_is_no_holder_and_no_error() {
    let place = Place::new();
    for (line, answer, text) in [
        (
            "inspect k",
            json!({"key": "k", "held": false, "lock": null}),
            "k is free\n",
        ),
        (
            "try k",
            json!({"key": "k", "held": false, "holders": []}),
            "k is free\n",
        ),
        (
            "break --yes k",
            json!({"key": "k", "broken": null}),
            "k is free, nothing is broken\n",
        ),
        ("list", json!({"locks": []}), ""),
    ] {
        assert_eq!(place.json(line), answer, "{line}");
        place.expect(0, line).prints_only(text);
    }
    place
        .expect(0, "list")
        .says_only("lockctl: no locks are held\n");
}

#[test]
fn list_takes_beginnings_and_stars() {
    let place = Place::new();
    let _all = place.holder("orders/1 orders/2 bills/2");
    for (pattern, expected) in [
        ("", &["bills/2", "orders/1", "orders/2"][..]),
        ("orders/", &["orders/1", "orders/2"]),
        ("*/2", &["bills/2", "orders/2"]),
        ("o*1", &["orders/1"]),
        ("none", &[]),
    ] {
        let answer = place.json(&["list", pattern]);
        let locks = answer["locks"].as_array().into_iter().flatten();
        let keys: Vec<_> = locks.filter_map(|lock| lock["key"].as_str()).collect();
        assert_eq!(keys, expected, "{pattern}: {answer}");
    }
}

#[test]
fn people_get_a_table_and_a_line_for_each_fact() {
    let place = Place::new();
    let holder = place.holder("--note a\u{1b}[2Jb k\u{202e}x");
    let table = place.expect(0, "list");
    let lines: Vec<_> = table.stdout.lines().collect();
    let [head, row] = lines[..] else {
        panic!("there are not two lines: {table}");
    };
    for column in [
        "KEY",
        "MODE",
        "HOLDER",
        "USER",
        "AGE",
        "LEASE LEFT",
        "TOKEN",
        "WAITERS",
        "NOTE",
    ] {
        assert!(head.contains(column), "no column {column}: {table}");
    }
    assert!(row.starts_with("k\\u{202e}x  exclusive  "), "{table}");
    assert!(
        row.contains(&format!(" pid {}", holder.child.id())),
        "{table}"
    );
    assert!(row.ends_with("a\\u{1b}[2Jb"), "{table}");

    let page = place.expect(0, "inspect k\u{202e}x");
    let facts = [
        "key", "mode", "holder", "  user", "  note", "  since", "  token", "  lease",
    ];
    for fact in facts.map(|fact| format!("{fact} ")) {
        let mut lines = page.stdout.lines();
        assert!(
            lines.any(|line| line.starts_with(&fact)),
            "no line {fact}: {page}"
        );
    }
}

/// Ptys of size 0 come from script(1), expect and containers.
#[test]
fn a_terminal_without_a_size_has_columns_or_no_limit() {
    let place = Place::new();
    let _holder = place.holder("--note 'of all shops' reports/nightly");
    for variable in ["", "env -u COLUMNS", "env COLUMNS=0", "env COLUMNS=wide"] {
        let line = format!("stty cols 0; {variable} {LOCKCTL}");
        let table = place.terminal(&format!("{line} list")).expect(0);
        let rows: Vec<_> = table.stdout.lines().collect();
        let is_whole =
            rows.len() == 2 && rows[0].ends_with("NOTE") && rows[1].ends_with("of all shops");
        assert!(is_whole, "{variable}: {table}");
        let page = place.terminal(&format!("{line} inspect reports/nightly"));
        page.expect(0).prints(&["\r\n  note     of all shops\r\n"]);
    }
}

#[test]
fn a_narrow_terminal_splits_neither_key_nor_token() {
    let place = Place::new();
    let _holder = place.holder("--note 'of all shops' reports/nightly");
    let token = place.json("inspect reports/nightly")["lock"]["holders"][0]["token"].to_string();
    for line in ["stty cols 60;", "stty cols 0; COLUMNS=60"] {
        let table = place.terminal(&format!("{line} {LOCKCTL} list")).expect(0);
        let mut rows = table.stdout.lines();
        let fits = rows.clone().all(|row| row.chars().count() <= 60);
        assert!(fits, "{line}: {table}");
        let head: Vec<_> = rows.next().unwrap_or_default().split_whitespace().collect();
        assert_eq!(head, ["KEY", "HOLDER", "AGE", "TOKEN"], "{line}: {table}");
        let is_whole = |row: &str| row.starts_with("reports/nightly  ") && row.ends_with(&token);
        assert!(rows.any(is_whole), "{line}: {table}");
    }
    // The terminal wraps what has no room at all: a line for each holder, which has its key and its token.
    for line in ["stty cols 20;", "stty cols 40;", "stty cols 0; COLUMNS=20"] {
        let table = place.terminal(&format!("{line} {LOCKCTL} list")).expect(0);
        let rows: Vec<_> = table.stdout.lines().collect();
        let [head, row] = rows[..] else {
            panic!("{line}: not one row: {table}");
        };
        let head: Vec<_> = head.split_whitespace().collect();
        assert_eq!(head, ["KEY", "HOLDER", "TOKEN"], "{line}: {table}");
        let is_whole = row.starts_with("reports/nightly  ") && row.ends_with(&token);
        assert!(is_whole, "{line}: {table}");
    }
}

#[test]
fn try_shows_the_holder() {
    let place = Place::new();
    let _holder = place.holder("k");
    place.expect(75, "try k").prints(&["k is held by "]);
    let answer = place.json("try k");
    assert_eq!(answer["held"], true, "{answer}");
    assert_eq!(answer["holders"][0]["user"], "deploy", "{answer}");
}

#[test]
fn a_broken_lock_is_shown_and_its_successor_has_a_larger_token() {
    let place = Place::new();
    let _holder = place.holder("k");
    let answer = place.json("break --yes --reason stuck k");
    assert_eq!(answer["broken"]["key"], "k", "{answer}");
    let old = answer["broken"]["holders"][0]["token"].as_u64();
    let next = place.expect(0, "run -n k -- sh -c 'echo $LOCK_FENCING_TOKEN'");
    assert!(
        Some(next.number()) > old,
        "the token before was {old:?}: {next}"
    );
}

#[test]
fn break_asks_on_a_terminal() {
    let place = Place::new();
    let _holder = place.holder("k");
    for (answer, code, shown, is_held) in [
        ("n\n", 1, &["k is held by ", "break it? [y/N]"][..], true),
        ("y\n", 0, &["k is broken: it was taken from "], false),
    ] {
        let mut process = place.terminal(&format!("{LOCKCTL} break k"));
        process.enter(answer);
        process.expect(code).prints(shown);
        assert_eq!(place.is_held("k"), is_held, "after the answer {answer:?}");
    }
}

#[test]
fn break_asks_again_about_another_holder() {
    let place = Place::new();
    let first = place.holder("k");
    let mut asked = place.terminal(&format!("{LOCKCTL} break k"));
    asked.until_asked(1);
    first.terminate(143);
    let second = place.holder("k");
    asked.enter("y\n");
    asked.until_asked(2);
    let pid = format!(" pid {} since", second.child.id());
    assert!(asked.stdout.text().contains(&pid), "no new holder is named");
    assert!(place.is_held("k"), "the new holder has lost the lock");
    second.terminate(143);
    asked.enter("y\n");
    asked.expect(0).prints(&["k is free, nothing is broken"]);
}

#[test]
fn watch_prints_what_happens() {
    let place = Place::new();
    place.expect(0, "run warm-up -- true");
    let mut watch = place.start("--format json watch or*");
    let mut holders = Vec::new();
    // Until the watch has begun, changes go unseen; the first one seen says that it has.
    watch.until("a change is seen", |watch| {
        holders.push(place.holder("bills"));
        holders.push(place.holder("orders"));
        for holder in holders.drain(..) {
            holder.terminate(143);
        }
        !watch.stdout.text().is_empty()
    });
    // It may have begun while a holder was there, and miss a change between two looks.
    let mut found = None;
    watch.until("an acquisition and its end are printed", |watch| {
        let printed = watch.stdout.text();
        let lines: Vec<_> = printed.lines().collect();
        let begins = |pair: &&[&str]| pair[0].contains("acquired") && pair[1].contains("free");
        found = lines.windows(2).find(begins).map(|pair| pair.join("\n"));
        found.is_some()
    });
    let printed = found.expect("it was found");
    let event = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {printed}"));
    let events: Vec<Value> = printed.lines().map(event).collect();
    let [acquired, free] = &events[..] else {
        panic!("there are not two events: {printed}");
    };
    assert_fields(acquired, &["event", "key", "lock", "time", "unix_ms"]);
    assert_eq!(acquired["event"], "acquired", "{acquired}");
    assert_eq!(
        acquired["lock"]["holders"][0]["user"], "deploy",
        "{acquired}"
    );
    assert_eq!(free["event"], "free", "{free}");
    assert!(
        events.iter().all(|event| event["key"] == "orders"),
        "{printed}"
    );
}

#[test]
fn a_watch_ends_when_its_reader_is_gone() {
    let place = Place::new();
    for line in ["watch", "leader --watch k"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut command = place.lockctl(line);
        command.stdout(writer);
        let process = Process::start(command);
        // A watch of a leader begins with a line, which would notice by itself.
        let mut first = String::new();
        let mut reader = BufReader::new(reader);
        if line.starts_with("leader") {
            reader.read_line(&mut first).expect("it is printed");
        }
        drop(reader);
        process.expect(0);
    }
}

/// As in a container: the kernel ignores signals for process 1 that it does not catch.
#[test]
fn a_watch_that_is_process_1_can_be_ended() {
    let place = Place::new();
    for line in ["watch", "leader --watch k"] {
        let mut args = vec!["-pf", "--mount-proc", LOCKCTL];
        args.extend(line.split(' '));
        let mut process = place.program("unshare", &args);
        let mut watch = None;
        process.until("it runs", |process| {
            watch = children(process.pid()).into_iter().next();
            watch.is_some()
        });
        let watch = watch.expect("it runs");
        process.until("it ends", |process| {
            // Until it catches signals, this one does nothing.
            kill_process(watch, Signal::TERM).ok();
            !process.is_running()
        });
        assert_eq!(process.code(), 143, "{line}");
    }
}

#[test]
fn completions_and_man_know_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.expect(0, &["completions", shell]);
        let script = script.prints(&["inspect", "min-hold"]);
        assert!(
            !script.stdout.contains("__exec"),
            "{shell} completes an inner command"
        );
    }
    let page = place.expect(0, "man");
    let mut page = page.prints(&[".TH lockctl 1", "lost\\-exit\\-code"]);
    for section in ["ENVIRONMENT", "\"EXIT STATUS\"", "EXAMPLES", "FILES"] {
        page = page.prints(&[&format!(".SH {section}\n")]);
    }
    assert!(!place.database().exists(), "neither needs a backend");
}

#[test]
fn an_answer_that_is_not_read_is_no_error() {
    let place = Place::new();
    let script = format!("({LOCKCTL} completions bash; echo $? > code.new; mv code.new code) | :");
    place.program("sh", &["-c", &script]).expect(0);
    place.until_there("code");
    assert_eq!(place.read("code"), "0\n");
}
