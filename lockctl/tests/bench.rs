//! `lockctl bench`, from the command line to the files.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

mod common;

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::common::{Ended, Place, Process};

/// Runs `bench` with one measurement of each kind. It is long enough for some acquisitions on a
/// machine with many other processes: a series without any makes the run fail.
fn bench(place: &Place, options: &[&str]) -> Ended {
    let quick = [
        "bench",
        "--duration",
        "1s",
        "--warm-up",
        "50ms",
        "--repeat",
        "1",
    ];
    let mut command = place.lockctl(&[&quick, options].concat());
    // The default SQLite file is in memory: a busy disk may take longer for a commit.
    command.env("TMPDIR", "/dev/shm");
    Process::start(command).ended()
}

/// Runs it with success, and gives all that it said.
#[track_caller]
fn said(place: &Place, options: &[&str]) -> String {
    let ended = bench(place, options);
    assert_eq!(ended.code, 0, "{ended}");
    ended.stdout + &ended.stderr
}

/// Runs `lockctl bench` to its end, which must have this code, and say this on standard error.
#[track_caller]
fn expect(place: &Place, code: i32, line: &[&str], says: &[&str]) -> Ended {
    let ended = Process::start(place.lockctl(&[&["bench"], line].concat())).ended();
    assert_eq!(ended.code, code, "{ended}");
    for part in says {
        assert!(ended.stderr.contains(part), "nothing of {part:?}: {ended}");
    }
    ended
}

fn report(place: &Place, name: &str) -> Value {
    let text = place.read(name);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text:?}"))
}

#[test]
fn without_a_target_memory_and_sqlite_are_measured() {
    let place = Place::new();
    let forms = [
        "--json", "run.json", "--html", "run.html", "--hdr", "hdr", "--svg", "svg",
    ];
    let said = said(
        &place,
        &[&["--contenders", "2", "--no-bare"], &forms[..]].concat(),
    );
    for part in [
        "contended, 2 contenders, 1 x 1s: violations 0",
        "memory",
        "sqlite",
        "acq/s",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }

    let report = report(&place, "run.json");
    assert_eq!(report["schema"], "lock-bench/1");
    let names = report["targets"].as_array().unwrap().iter();
    assert_eq!(
        Vec::from_iter(names.map(|target| &target["name"])),
        ["memory", "sqlite"]
    );
    let series = report["series"].as_array().unwrap();
    for series in series {
        let figures = &series["figures"];
        assert_eq!(figures["violations"], 0, "{series}");
        assert!(figures["acquisitions"].as_u64() > Some(0), "{series}");
    }
    let workloads = series
        .iter()
        .map(|series| series["workload"].as_str().unwrap());
    let workloads: BTreeSet<_> = workloads.collect();
    assert_eq!(
        Vec::from_iter(workloads),
        ["contended", "hand-off", "uncontended"]
    );

    let mut table = said.lines().filter(|line| !line.starts_with("lockctl: "));
    assert!(table.all(|line| line.len() <= 80), "{said}");
    let page = place.read("run.html");
    assert!(page.contains("<strong>uncontended</strong> best: ") && page.contains("<svg "));
    let files = |name: &str| fs::read_dir(place.file(name)).unwrap().count();
    assert!(files("hdr") > series.len());
    assert!(files("svg") > 3);
}

#[test]
fn the_answer_can_be_json_and_can_be_shown_again() {
    let place = Place::new();
    let measured = [
        "--workload",
        "contended",
        "--contenders",
        "1,2",
        "--no-bare",
    ];
    let line = [
        &["--format", "json", "--target", "a=memory:"],
        &measured[..],
    ]
    .concat();
    fs::write(place.file("run.json"), bench(&place, &line).stdout).unwrap();
    let report = report(&place, "run.json");
    assert_eq!(report["series"].as_array().unwrap().len(), 2);

    let shown = expect(
        &place,
        0,
        &["show", "run.json", "--html", "again.html"],
        &[],
    );
    let title = "contended, 1 contender, 1 x 1s: violations 0";
    assert!(shown.stdout.contains(title), "{shown}");
    assert!(place.read("again.html").contains("Violations: 0."));
    let again = place.json(&["bench", "show", "run.json"]);
    assert_eq!(
        again["series"][1]["figures"],
        report["series"][1]["figures"]
    );
}

#[test]
fn contenders_can_be_processes() {
    let place = Place::new();
    let database = format!("sqlite:{}", place.file("locks.db").display());
    let processes = ["--contenders-as", "processes", "--contenders", "2"];
    let line = ["--workload", "contended", "--json", "run.json", &*database];
    said(&place, &[&processes[..], &line].concat());
    let series = &report(&place, "run.json")["series"][0];
    assert_eq!(series["parameters"]["contenders_as"], "processes");
    assert_eq!(
        series["samples"][0]["per_contender"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert!(
        series["figures"]["throughput"]["median"].as_f64() > Some(0.0),
        "{series}"
    );
}

#[test]
fn changes_beyond_the_spread_fail_a_comparison_with_a_limit() {
    let place = Place::new();
    record(&place, "old.json", [900, 1000, 1100]);
    record(&place, "same.json", [950, 1050, 1150]);
    record(&place, "slow.json", [500, 550, 600]);
    record(&place, "gone.json", [0, 0, 0]);
    for (code, new, limits, prints, says) in [
        (
            0,
            "same.json",
            "throughput=-1%,throughput=+1%",
            &["within the spread"][..],
            "",
        ),
        (
            1,
            "slow.json",
            "throughput=-10%",
            &["-45.0 %", "FAILS throughput=-10%"],
            "throughput of a, contended, 1 contender: 1,000 to 550",
        ),
        (
            1,
            "gone.json",
            "throughput=-10%",
            &["not measured"],
            "1,000 to none (not measured), limit throughput=-10%",
        ),
        (0, "slow.json", "throughput=-50%,p99=+100000%", &[], ""),
    ] {
        let line = ["compare", "old.json", new, "--fail-on", limits];
        let ended = expect(&place, code, &line, &[says]);
        for part in prints {
            assert!(ended.stdout.contains(part), "no {part:?}: {ended}");
        }
    }
    let json = place.json(&["bench", "compare", "old.json", "slow.json"]);
    assert_eq!(json["schema"], "lock-bench-comparison/1");
    assert_eq!(json["changes"][0]["metric"], "throughput");
    assert_eq!(json["changes"][0]["passes"], Value::Null);
}

#[test]
fn limits_on_what_is_gone_or_was_never_there_do_not_pass() {
    let place = Place::new();
    record(&place, "old.json", [900, 1000, 1100]);
    let mut fewer = report(&place, "old.json");
    fewer["series"].as_array_mut().unwrap().remove(1);
    fs::write(place.file("fewer.json"), fewer.to_string()).unwrap();
    for (code, old, new, limits, says) in [
        (
            1,
            "old.json",
            "fewer.json",
            "throughput=-10%",
            "throughput of a, contended, 2 contenders: 1,000 to none (not measured)",
        ),
        (0, "fewer.json", "old.json", "throughput=-10%", ""),
        (
            64,
            "old.json",
            "old.json",
            "throughput=-10%,recovery=+10%",
            "no figure for --fail-on recovery=+10%",
        ),
    ] {
        let line = ["compare", old, new, "--fail-on", limits];
        expect(&place, code, &line, &[says]);
    }
}

#[test]
fn a_run_in_which_nothing_is_acquired_fails() {
    let place = Place::new();
    record(&place, "idle.json", [0, 0, 0]);
    for line in [
        &["show", "idle.json"][..],
        &["compare", "idle.json", "idle.json"],
    ] {
        let says = ["no lock was ever acquired", "contended of a, 2 contenders"];
        expect(&place, 1, line, &says);
    }
    record(&place, "seldom.json", [0, 1, 0]);
    expect(&place, 0, &["show", "seldom.json"], &[]);
}

/// Writes the report of a run on memory, with these acquisitions per second in its three repeats.
fn record(place: &Place, name: &str, acquisitions: [u64; 3]) {
    let mut report: Value = serde_json::from_str(include_str!("bench/report.json")).unwrap();
    for series in report["series"].as_array_mut().unwrap() {
        for (sample, count) in (0..).zip(acquisitions) {
            series["samples"][sample]["acquisitions"] = count.into();
            series["samples"][sample]["duration_ns"] = 1_000_000_000.into();
        }
    }
    fs::write(place.file(name), report.to_string()).unwrap();
}

#[test]
fn violations_fail_a_run_and_are_named() {
    let place = Place::new();
    record(&place, "run.json", [1, 1, 1]);
    let mut report = report(&place, "run.json");
    let violations = &mut report["series"][1]["samples"][2]["violations"];
    *violations = vec!["two \u{1b}holders"].into();
    fs::write(place.file("run.json"), report.to_string()).unwrap();
    for line in [
        &["show", "run.json"][..],
        &["compare", "run.json", "run.json"],
    ] {
        let named = "contended of a, 2 contenders: two \\u{1b}holders";
        expect(&place, 1, line, &[named]);
    }
}

#[test]
fn what_cannot_be_read_or_written_is_said() {
    let place = Place::new();
    record(&place, "run.json", [1, 1, 1]);
    let mut later = report(&place, "run.json");
    later["schema"] = "lock-bench/2".into();
    fs::write(place.file("later.json"), later.to_string()).unwrap();
    let table: [(&[&str], &str); 6] = [
        (
            &["show", "later.json"],
            "the schema is \"lock-bench/2\"; this version reads lock-bench/1",
        ),
        (&["show", "none.json"], "cannot read none.json"),
        (
            &["--json", "none/run.json", "memory:"],
            "cannot write none/run.json",
        ),
        (
            &["compare", "run.json", "run.json", "--fail-on", "p99=5%"],
            "the change needs a sign",
        ),
        (&["--workload", "contnded", "memory:"], "contended"),
        (
            &["--target", "a=memory:", "--target", "a=memory:"],
            "two targets have the name",
        ),
    ];
    for (line, message) in table {
        expect(&place, 64, line, &[message]);
    }
}

#[test]
fn a_variable_has_the_url_and_nothing_tells_its_password() {
    let place = Place::new();
    let url = "redis://app:s3ntinel@127.0.0.1:1/";
    let targets: [&[&str]; 3] = [&["env:LOCK_URL"], &["--target", "a=env:LOCK_URL"], &[url]];
    for target in targets {
        let line = [&["bench", "--format", "json", "-vv"], target].concat();
        let mut command = place.lockctl(&line);
        command.env("LOCK_URL", url);
        let ended = Process::start(command).ended();
        assert_eq!(ended.code, 69, "{ended}");
        let is_said = [&ended.stdout, &ended.stderr].map(|said| said.contains("s3ntinel"));
        assert_eq!(is_said, [false; 2], "{ended}");
    }
    expect(&place, 78, &["env:NOT_SET"], &["NOT_SET"]);
}

#[test]
fn backends_of_a_configuration_file_are_measured_side_by_side() {
    let place = Place::new();
    let file = "[backend.one]\nurl = \"memory:\"\n[backend.two]\nurl = \"sqlite:two.db\"\n\
                [class.job]\nbackend = \"one\"\n";
    fs::write(place.file("locks.toml"), file).unwrap();
    let options = [
        "--config",
        "locks.toml",
        "--workload",
        "uncontended",
        "--contenders",
        "1,2",
    ];
    // The class says nothing of backends that are named.
    let targets = [
        "--class",
        "job",
        "profile:one",
        "--target",
        "second=profile:two",
    ];
    let said = said(&place, &[&options[..], &targets].concat());
    assert!(
        said.contains("\none ") && said.contains("\nsecond "),
        "{said}"
    );
    assert!(place.file("two.db").exists(), "{said}");
}

#[test]
fn the_default_service_is_not_measured_unless_it_is_named() {
    let place = Place::new();
    let line = "bench --duration 1s --warm-up 0 --repeat 1 --contenders 1 --workload uncontended";
    let mut command = place.lockctl(line);
    command.env("LOCK_URL", "redis://app:s3ntinel@127.0.0.1:1/");
    command.env("TMPDIR", "/dev/shm");
    let ended = Process::start(command).ended();
    assert_eq!(ended.code, 0, "{ended}");
    let note = "lockctl bench env:LOCK_URL";
    assert!(ended.stderr.contains(note), "{ended}");
    let table = &ended.stdout;
    assert!(
        table.contains("memory") && table.contains("sqlite"),
        "{ended}"
    );
}
