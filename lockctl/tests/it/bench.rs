//! `lockctl bench`, from the command line to the files.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::fixture::{Ended, Place};

/// A server that is not running; measured only if it is named.
const SERVICE: &str = "redis://app:s3ntinel@127.0.0.1:1/";

/// Runs `bench` with one measurement of each kind. It is long enough for some acquisitions on a
/// machine with many other processes: a series without any makes the run fail.
#[track_caller]
fn bench(place: &Place, options: &str) -> Ended {
    let line = format!("bench --duration 1s --warm-up 50ms --repeat 1 {options}");
    // The default SQLite file is in memory: a busy disk may take longer for a commit.
    let variables = [("LOCK_URL", SERVICE), ("TMPDIR", "/dev/shm")];
    place.expect_with(0, &line, &variables)
}

/// The same, and gives all that it said.
#[track_caller]
fn said(place: &Place, options: &str) -> String {
    let ended = bench(place, options);
    ended.stdout + &ended.stderr
}

#[track_caller]
fn report(place: &Place, name: &str) -> Value {
    let text = place.read(name);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text:?}"))
}

#[test]
fn without_a_target_memory_and_sqlite_are_measured_and_no_default_service() {
    let place = Place::new();
    let forms = "--json run.json --html run.html --hdr hdr --svg svg";
    let ended = bench(&place, &format!("--contenders 2 --no-bare {forms}"));
    let ended = ended.says(&["lockctl bench env:LOCK_URL"]).prints(&[
        "contended, 2 contenders, 1 x 1s: violations 0",
        "memory",
        "sqlite",
        "acq/s",
    ]);

    let report = report(&place, "run.json");
    assert_eq!(report["schema"], "lock-bench/1");
    let names = report["targets"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|target| &target["name"]).collect();
    assert_eq!(names, ["memory", "sqlite"]);
    let series = report["series"].as_array().unwrap();
    let mut workloads = BTreeSet::new();
    for series in series {
        let figures = &series["figures"];
        assert_eq!(figures["violations"], 0, "{series}");
        assert!(figures["acquisitions"].as_u64() > Some(0), "{series}");
        workloads.insert(series["workload"].as_str().unwrap());
    }
    let expected = BTreeSet::from(["contended", "hand-off", "uncontended"]);
    assert_eq!(workloads, expected);

    let is_narrow = ended.stdout.lines().all(|line| line.len() <= 80);
    assert!(is_narrow, "{ended}");
    let page = place.read("run.html");
    assert!(page.contains("<strong>uncontended</strong> best: ") && page.contains("<svg "));
    let files = |name: &str| fs::read_dir(place.file(name)).unwrap().count();
    assert!(files("hdr") > series.len());
    assert!(files("svg") > 3);
}

#[test]
fn the_answer_can_be_json_and_can_be_shown_again() {
    let place = Place::new();
    let line = "--format json --target a=memory: --workload contended --contenders 1,2 --no-bare";
    place.write("run.json", &bench(&place, line).stdout);
    let report = report(&place, "run.json");
    assert_eq!(report["series"].as_array().unwrap().len(), 2);

    let shown = place.expect(0, "bench show run.json --html again.html");
    shown.prints(&["contended, 1 contender, 1 x 1s: violations 0"]);
    assert!(place.read("again.html").contains("Violations: 0."));
    let again = place.json(&["bench", "show", "run.json"]);
    let figures = &report["series"][1]["figures"];
    assert_eq!(&again["series"][1]["figures"], figures);
}

#[test]
fn contenders_can_be_processes() {
    let place = Place::new();
    let database = format!("sqlite:{}", place.file("locks.db").display());
    let options = "--contenders-as processes --contenders 2 --workload contended --json run.json";
    said(&place, &format!("{options} {database}"));
    let series = &report(&place, "run.json")["series"][0];
    assert_eq!(series["parameters"]["contenders_as"], "processes");
    let counts = series["samples"][0]["per_contender"].as_array().unwrap();
    assert_eq!(counts.len(), 2);
    let throughput = series["figures"]["throughput"]["median"].as_f64();
    assert!(throughput > Some(0.0), "{series}");
}

#[test]
fn changes_beyond_the_spread_and_what_is_gone_fail_a_comparison_with_a_limit() {
    let place = Place::new();
    record(&place, "old.json", [900, 1000, 1100]);
    record(&place, "same.json", [950, 1050, 1150]);
    record(&place, "slow.json", [500, 550, 600]);
    record(&place, "none.json", [0, 0, 0]);
    let mut fewer = report(&place, "old.json");
    fewer["series"].as_array_mut().unwrap().remove(1);
    place.write("fewer.json", &fewer.to_string());
    fewer["series"] = Value::Array(Vec::new());
    place.write("nothing.json", &fewer.to_string());
    let (old, fewer, limit) = ("old.json", "fewer.json", "throughput=-10%");
    let (within, slower) = (
        "throughput=-1%,throughput=+1%",
        "throughput of a, contended, 1 contender: 1,000 to 550",
    );
    let gone = "throughput of a, contended, 2 contenders: 1,000 to none (not measured)";
    for (code, old, new, limits, prints, says) in [
        (0, old, "same.json", within, "within the spread", ""),
        (1, old, "slow.json", limit, "FAILS throughput=-10%", slower),
        (1, old, "none.json", limit, "not measured", gone),
        (1, old, fewer, limit, "", gone),
        (0, fewer, old, limit, "", ""),
        (
            64,
            old,
            old,
            "recovery=+10%",
            "",
            "no figure for --fail-on recovery=+10%",
        ),
        (64, old, "nothing.json", limit, "", "nothing in common"),
    ] {
        let line = format!("bench compare {old} {new} --fail-on {limits}");
        place.expect(code, &line).says(&[says]).prints(&[prints]);
    }
    let json = place.json(&["bench", "compare", "old.json", "slow.json"]);
    assert_eq!(json["schema"], "lock-bench-comparison/1");
    assert_eq!(json["changes"][0]["metric"], "throughput");
    assert_eq!(json["changes"][0]["passes"], Value::Null);
}

#[test]
fn violations_fail_a_run_and_so_does_a_series_in_which_nothing_is_acquired() {
    let place = Place::new();
    record(&place, "seldom.json", [0, 1, 0]);
    place.expect(0, "bench show seldom.json");
    record(&place, "idle.json", [0, 0, 0]);
    let mut wrong = report(&place, "seldom.json");
    wrong["series"][1]["samples"][2]["violations"] = vec!["two \u{1b}holders"].into();
    place.write("wrong.json", &wrong.to_string());
    let idle = ["no lock was ever acquired", "contended of a, 2 contenders"];
    let violated = ["contended of a, 2 contenders: two \\u{1b}holders"];
    for (name, says) in [("idle", &idle[..]), ("wrong", &violated)] {
        place
            .expect(1, &format!("bench show {name}.json"))
            .says(says);
        let compare = format!("bench compare {name}.json {name}.json");
        place.expect(1, &compare).says(says);
    }
}

/// Writes the report of a run on memory, with these acquisitions per second in its three repeats.
fn record(place: &Place, name: &str, acquisitions: [u64; 3]) {
    let mut report: Value = serde_json::from_str(include_str!("../bench/report.json")).unwrap();
    for series in report["series"].as_array_mut().unwrap() {
        for (sample, count) in (0..).zip(acquisitions) {
            series["samples"][sample]["acquisitions"] = count.into();
            series["samples"][sample]["duration_ns"] = 1_000_000_000.into();
        }
    }
    place.write(name, &report.to_string());
}

#[test]
fn what_cannot_be_read_or_written_is_said() {
    let place = Place::new();
    record(&place, "run.json", [1, 1, 1]);
    let mut later = report(&place, "run.json");
    later["schema"] = "lock-bench/2".into();
    place.write("later.json", &later.to_string());
    for (line, message) in [
        (
            "show later.json",
            "the schema is \"lock-bench/2\"; this version reads lock-bench/1",
        ),
        ("show none.json", "cannot read none.json"),
        ("--json none/run.json memory:", "cannot write none/run.json"),
        (
            "compare run.json run.json --fail-on p99=5%",
            "the change needs a sign",
        ),
        ("--workload contnded memory:", "contended"),
        (
            "--target a=memory: --target a=memory:",
            "two targets have the name",
        ),
    ] {
        place.expect(64, &format!("bench {line}")).says(&[message]);
    }
}

#[test]
fn a_variable_has_the_url_and_nothing_tells_its_password() {
    let place = Place::new();
    for target in ["env:LOCK_URL", "--target a=env:LOCK_URL", SERVICE] {
        let line = format!("bench --format json -vv {target}");
        let ended = place.expect_with(69, &line, &[("LOCK_URL", SERVICE)]);
        ended.says_nothing_of(&["s3ntinel"]);
    }
    place.expect(78, "bench env:NOT_SET").says(&["NOT_SET"]);
}

#[test]
fn backends_of_a_configuration_file_are_measured_side_by_side() {
    let place = Place::new();
    let file = "[backend.one]\nurl = \"memory:\"\n[backend.two]\nurl = \"sqlite:two.db\"\n\
                [class.job]\nbackend = \"one\"\n";
    place.write("locks.toml", file);
    let options = "--config locks.toml --workload uncontended --contenders 1,2";
    // The class says nothing of backends that are named.
    let targets = "--class job backend:one --target second=backend:two";
    let said = said(&place, &format!("{options} {targets}"));
    let is_named = said.contains("\none ") && said.contains("\nsecond ");
    assert!(is_named, "{said}");
    assert!(place.file("two.db").exists(), "{said}");
}

#[test]
fn a_configuration_file_alone_names_its_default_backend() {
    let place = Place::new();
    place.write("locks.toml", "[backend.one]\nurl = \"sqlite:one.db\"\n");
    let options = "--workload uncontended --contenders 1 --no-bare --json run.json";
    let said = said(&place, &format!("--config locks.toml {options}"));
    let report = report(&place, "run.json");
    let targets = report["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 1, "{said}");
    assert!(place.file("one.db").exists(), "{said}");
}
