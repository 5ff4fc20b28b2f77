//! `lockctl bench`, from the command line to the files.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::common::Place;

/// Runs `bench` with one measurement of each kind. It is long enough for some acquisitions on a
/// machine with many other processes: a series without any makes the run fail.
fn bench(place: &Place, options: &[&str]) -> Output {
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
    common::Process::start(command).output()
}

/// Runs it with success, and gives all that it said.
fn said(place: &Place, options: &[&str]) -> String {
    let output = bench(place, options);
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(output.status.code(), Some(0), "{texts:?}");
    texts.concat()
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
    let output = bench(&place, &line);
    fs::write(place.file("run.json"), &output.stdout).unwrap();
    let report = report(&place, "run.json");
    assert_eq!(report["series"].as_array().unwrap().len(), 2);

    let shown = place.run(&["bench", "show", "run.json", "--html", "again.html"]);
    let table = String::from_utf8(shown.stdout).unwrap();
    assert!(
        table.contains("contended, 1 contender, 1 x 1s: violations 0"),
        "{table}"
    );
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
    let compare = |new: &str, limits: &str| {
        let line = ["bench", "compare", "old.json", new, "--fail-on", limits];
        let output = place.run(&line);
        let table = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), table, said)
    };
    let (code, table, _) = compare("same.json", "throughput=-1%,throughput=+1%");
    assert_eq!(code, 0, "{table}");
    assert!(table.contains("within the spread"), "{table}");

    let (code, table, said) = compare("slow.json", "throughput=-10%");
    assert_eq!(code, 1, "{said}");
    assert!(
        table.contains("-45.0 %") && table.contains("FAILS throughput=-10%"),
        "{table}"
    );
    assert!(
        said.contains("throughput of a, contended, 1 contender: 1,000 to 550"),
        "{said}"
    );

    record(&place, "gone.json", [0, 0, 0]);
    let (code, table, said) = compare("gone.json", "throughput=-10%");
    assert_eq!(code, 1, "{said}");
    assert!(table.contains("not measured"), "{table}");
    assert!(
        said.contains("1,000 to none (not measured), limit throughput=-10%"),
        "{said}"
    );

    let (code, ..) = compare("slow.json", "throughput=-50%,p99=+100000%");
    assert_eq!(code, 0);
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
    let compare = |old: &str, new: &str, limits: &str| {
        place.code(&["bench", "compare", old, new, "--fail-on", limits])
    };
    let (code, said) = compare("old.json", "fewer.json", "throughput=-10%");
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("throughput of a, contended, 2 contenders: 1,000 to none (not measured)"),
        "{said}"
    );
    let (code, said) = compare("fewer.json", "old.json", "throughput=-10%");
    assert_eq!(code, 0, "{said}");
    let (code, said) = compare("old.json", "old.json", "throughput=-10%,recovery=+10%");
    assert_eq!(code, 64, "{said}");
    assert!(
        said.contains("no figure for --fail-on recovery=+10%"),
        "{said}"
    );
}

#[test]
fn a_run_in_which_nothing_is_acquired_fails() {
    let place = Place::new();
    record(&place, "idle.json", [0, 0, 0]);
    for line in [
        &["bench", "show", "idle.json"][..],
        &["bench", "compare", "idle.json", "idle.json"],
    ] {
        let (code, said) = place.code(line);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("no lock was ever acquired"), "{said}");
        assert!(said.contains("contended of a, 2 contenders"), "{said}");
    }
    record(&place, "seldom.json", [0, 1, 0]);
    let (code, said) = place.code(&["bench", "show", "seldom.json"]);
    assert_eq!(code, 0, "{said}");
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
        &["bench", "show", "run.json"][..],
        &["bench", "compare", "run.json", "run.json"],
    ] {
        let (code, said) = place.code(line);
        assert_eq!(code, 1, "{said}");
        let named = "contended of a, 2 contenders: two \\u{1b}holders";
        assert!(said.contains(named), "{said}");
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
        let (code, said) = place.code(&[&["bench"], line].concat());
        assert_eq!(code, 64, "{line:?}: {said}");
        assert!(said.contains(message), "{line:?}: {said}");
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
        let output = common::Process::start(command).output();
        let texts = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!(output.status.code(), Some(69), "{texts:?}");
        assert!(!texts.concat().contains("s3ntinel"), "{texts:?}");
    }
    let (code, said) = place.code(&["bench", "env:NOT_SET"]);
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("NOT_SET"), "{said}");
}

#[test]
fn backends_of_a_configuration_file_are_measured_side_by_side() {
    let place = Place::new();
    let file = "[backend.one]\nurl = \"memory:\"\n[backend.two]\nurl = \"sqlite:two.db\"\n\
                [lock.job]\nbackend = \"one\"\n";
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
    let mut command = place.lockctl(&line.split(' ').collect::<Vec<_>>());
    command.env("LOCK_URL", "redis://app:s3ntinel@127.0.0.1:1/");
    command.env("TMPDIR", "/dev/shm");
    let output = common::Process::start(command).output();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("lockctl bench env:LOCK_URL"), "{said}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(
        table.contains("memory") && table.contains("sqlite"),
        "{table}"
    );
}
