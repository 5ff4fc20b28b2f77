//! `run --once-per` and `--once-key`: commands that run once, whichever process starts them.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fixture::{Place, UNTIL_GO};

const HOURLY: &str = "run --once-per 1h";

#[track_caller]
fn last_run(place: &Place, key: &str) -> Value {
    place.json(&["inspect", key])["last_run"].clone()
}

#[test]
fn a_command_runs_once_in_its_period_and_the_rest_is_told_when_and_by_whom() {
    let place = Place::new();
    let line = format!("{HOURLY} --note rota --events events nightly -- touch ran");
    let ran = place.start(&line);
    let pid = ran.child.id();
    ran.expect(0).says_only("");
    place.remove(&["ran"]);
    let skipped = place.expect(0, &line);
    let sentence = format!(" pid {pid}, note \"rota\"\n");
    assert!(
        skipped
            .stderr
            .starts_with("lockctl: skipped: nightly ran at "),
        "{skipped}"
    );
    assert!(skipped.stderr.ends_with(&sentence), "{skipped}");
    place.expect(0, &format!("-q {line}")).says_only("");
    place.assert_not_run();

    let run = last_run(&place, "nightly");
    for (name, value) in [
        ("outcome", json!("ran")),
        ("pid", json!(pid)),
        ("user", json!("deploy")),
        ("note", json!("rota")),
    ] {
        assert_eq!(run[name], value, "{run}");
    }
    assert!(
        run["took_ms"].is_u64() && run["started"].is_string(),
        "{run}"
    );
    let page = place.expect(0, "inspect nightly");
    page.prints(&["nightly is free\nlast run  ran at ", &sentence]);

    let events = place.events();
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str()).collect();
    let expected = ["acquired", "child_exit", "recorded", "skipped", "skipped"];
    assert_eq!(names, expected.map(Some), "{events:?}");
    assert_eq!(events[2]["outcome"], "ran", "{events:?}");
    assert_eq!(events[3]["last_run"], run, "{events:?}");
    place.expect(0, &format!("{HOURLY} other -- touch ran"));
    place.until_there("ran");
}

#[test]
fn a_command_that_fails_is_recorded_and_due_at_once() {
    let place = Place::new();
    for code in [3, 127] {
        place.expect(code, &format!("{HOURLY} k -- sh -c 'exit {code}'"));
        assert_eq!(last_run(&place, "k")["outcome"], "failed");
    }
    let script = "trap 'exit 0' TERM; touch ready; while :; do sleep 0.05; done";
    let asked = place.hold("--once-per 1h k", script);
    place.until_there("ready");
    asked.terminate(0);
    assert_eq!(last_run(&place, "k")["outcome"], "failed");
    place.expect(143, &format!("{HOURLY} --max-run 200ms k -- sleep 60"));
    place.expect(0, &format!("{HOURLY} k -- touch ran"));
    place.until_there("ran");
}

#[test]
fn a_command_that_another_process_runs_is_skipped() {
    let place = Place::new();
    let runs = place.hold("--once-per 1h k", UNTIL_GO);
    let pid = runs.child.id();
    for line in ["--once-per 1h k", "--once-per 1h --skip-if-held k"] {
        let skipped = place.expect(0, &format!("run {line} -- touch ran"));
        skipped.says(&[
            "lockctl: skipped: k is held by ",
            &format!(" pid {pid} since "),
        ]);
    }
    place.assert_not_run();
    place.go();
    runs.expect(0);
}

#[test]
fn a_command_runs_once_for_a_key() {
    let place = Place::new();
    for (date, runs) in [("2026-11-25", 1), ("2026-11-26", 2), ("2026-11-25", 2)] {
        let script = "'echo $LOCK_KEY >> runs'";
        place.expect(0, &format!("run --once-key {date} k -- sh -c {script}"));
        let all = place.read("runs");
        assert_eq!(all.lines().count(), runs, "{all}");
    }
    assert_eq!(place.read("runs"), "k/2026-11-25\nk/2026-11-26\n");
    assert_eq!(last_run(&place, "k/2026-11-25")["outcome"], "ran");
    assert_eq!(last_run(&place, "k"), Value::Null);
}

/// Processes that start at once run the command once.
#[track_caller]
pub(crate) fn assert_runs_once(url: &str) {
    let place = Place::new();
    let line = format!("--backend {url} {HOURLY} k -- sh -c 'echo >> runs'");
    let all: Vec<_> = (0..6).map(|_| place.start(&line)).collect();
    for process in all {
        process.expect(0);
    }
    assert_eq!(place.read("runs"), "\n", "{url}: a line for each run");
}

#[test]
fn of_many_processes_that_start_at_once_one_runs_the_command() {
    assert_runs_once("sqlite:locks.db");
}

#[test]
fn a_run_that_lost_its_lock_or_its_process_is_due() {
    let place = Place::new();
    let lost = place.hold("--once-per 1h --ttl 3s k", "exec sleep 60");
    place.expect(0, "break --yes k");
    lost.expect(79).says(&["lost the lock on k"]);
    assert_eq!(last_run(&place, "k"), Value::Null, "it is not recorded");

    let mut died = place.hold("--once-per 1h --ttl 3s k", "exec sleep 60");
    died.signal(Signal::KILL);
    died.expect(137);
    place.until_free("k");
    place.expect(0, &format!("{HOURLY} k -- touch ran"));
    place.until_there("ran");
}

/// No renewal comes between the loss and the end of the command.
#[test]
fn a_loss_that_the_release_of_a_job_finds_counts() {
    let place = Place::new();
    let process = place.hold("--once-per 1h --ttl 1m --events events k", UNTIL_GO);
    place.expect(0, "break --yes k");
    place.go();
    let ended = process.expect(79);
    ended.says(&["error: lost the lock on k: it had ended before the command did"]);
    assert_eq!(place.event("recorded")["outcome"], "ran");
    assert_eq!(last_run(&place, "k")["outcome"], "ran");
}

#[test]
fn a_run_that_cannot_be_recorded_is_a_warning() {
    // A new row is refused: the release, which changes one, finds the lock as it was.
    const REFUSE_ROWS: &str = r#"
import sqlite3
refuse = "create trigger t before insert on polylock_locks begin select raise(abort, 'no room'); end"
sqlite3.connect("polylock/locks.db", timeout=20).execute(refuse)
"#;
    let place = Place::new();
    let job = ["run", "--once-per", "1h", "k", "--", "python3", "-c"];
    let line = [&job[..], &[REFUSE_ROWS]].concat();
    let ended = place.expect(0, &line[..]);
    ended.says(&["k: the run may not be recorded, and others may repeat it: "]);
}

#[test]
fn a_lock_whose_file_is_replaced_during_a_job_is_lost() {
    let place = Place::new();
    place.write("other", "no database");
    let script = "cd polylock; rm locks.db-wal locks.db-shm; mv locks.db old; mv ../other locks.db";
    let ended = place.expect(79, &format!("{HOURLY} --ttl 4s k -- sh -c '{script}'"));
    ended.says(&["k: the run may not be recorded, and others may repeat it: "]);
}

#[test]
fn what_makes_no_sense_for_a_job_is_64() {
    let place = Place::new();
    for options in [
        "--once-per 999ms k",
        "--once-per -1h k",
        "--once-key '' k",
        "--once-key a/b k",
        "--once-per 1h --once-key a k",
        "--once-per 1h -n k",
        "--once-per 1h -w 5s k",
        "--once-per 1h -E 9 k",
        "--once-per 1h -s k",
        "--once-key a --permits 2 k",
        "--once-per 1h --min-hold 1m k",
    ] {
        place.expect(64, &format!("run {options} -- touch ran"));
    }
    for (options, says) in [
        ("--once-per 1h j k", "--once-per is for one key"),
        (
            "--once-key a --on-lost warn k",
            "--once-key does not go with --on-lost warn",
        ),
    ] {
        place
            .expect(64, &format!("run {options} -- touch ran"))
            .says(&[says]);
    }
    place.assert_not_run();
}
