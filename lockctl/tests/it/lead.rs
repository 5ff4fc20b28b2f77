//! Commands that run on one host at a time. Each process of `lockctl` is a host.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fixture::{LOCKCTL, Line, Place, Process, assert_dead, is_alive, pid_of, until};

/// A command that runs until it is stopped.
pub(crate) const SERVE: &str = "exec sleep 60";

impl Place {
    /// A host whose command has written its process id to the file `NAME` before it runs the script.
    pub(crate) fn host(&self, name: &str, options: &str, script: &str) -> Process {
        let script = format!("echo $$ > {name}.new; mv {name}.new {name}; {script}");
        let mut command = self.lockctl("lead");
        command.args(options.words());
        command.args(["service", "--", "sh", "-c", &script]);
        Process::start(command)
    }

    /// A host that waits, with a command that runs until it is stopped.
    #[track_caller]
    pub(crate) fn waiting(&self, name: &str, options: &str) -> Process {
        let mut host = self.host(name, options, SERVE);
        host.until("it waits", |host| {
            host.stderr.text().contains("waiting for service")
        });
        host
    }

    /// A host that leads, with a command that runs until it is stopped.
    #[track_caller]
    fn leader(&self, options: &str) -> Process {
        let leader = self.host("a", options, SERVE);
        self.until_there("a");
        leader
    }
}

/// Kills a leader, and checks that the command runs on the other host in time, and nowhere else.
#[track_caller]
pub(crate) fn assert_command_moves_when_its_host_dies(url: &str, ttl: Duration) {
    let place = Place::new();
    let ttl_s = ttl.as_secs();
    let options = |name: &str| format!("--backend {url} --ttl {ttl_s}s --address {name}");
    let mut first = place.host("a", &options("a"), SERVE);
    place.until_there("a");
    let address =
        || place.json(&format!("--backend {url} leader service"))["leader"]["address"].clone();
    until("a is the address", || address() == "a");
    let _second = place.waiting("b", &options("b"));
    assert!(
        !place.file("b").exists(),
        "{url}: the command runs on both hosts"
    );

    let command = pid_of(&place.read("a"));
    let died = Instant::now();
    first.signal(Signal::KILL);
    place.until_there("b");
    let moved = died.elapsed();
    assert_dead(command);
    assert!(moved < ttl + SLACK, "{url}: moved after {moved:?}");
    until("b is the address", || address() == "b");
}

/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(10);

#[test]
fn the_command_moves_when_its_host_dies() {
    assert_command_moves_when_its_host_dies("sqlite:locks.db", Duration::from_secs(3));
}

#[test]
fn the_command_of_a_frozen_leader_is_killed_when_that_goes_on_and_it_stands_again() {
    let place = Place::new();
    let mut frozen = place.leader("--ttl 3s");
    let command = pid_of(&place.read("a"));
    frozen.signal(Signal::STOP);
    let mut next = place.host("b", "", SERVE);
    place.until_there("b");
    frozen.signal(Signal::CONT);
    until("the command is dead", || !is_alive(command));
    place.remove(&["a"]);
    next.signal(Signal::TERM);
    next.expect(0);
    place.until_there("a");
    frozen.signal(Signal::TERM);
    frozen.expect(0).says(&["service: the lead is lost: "]);
}

#[test]
fn a_command_that_ends_is_started_again_with_a_larger_token() {
    let place = Place::new();
    let script = "date +%s%3N >> begun; echo $LOCK_FENCING_TOKEN >> tokens; exit $(wc -l < tokens)";
    let mut host = place.host("a", "", script);
    host.until("three commands have begun", |_| {
        place.read("tokens").lines().count() == 3
    });
    host.signal(Signal::TERM);
    let ended = host.expect(0);
    let ended = ended.says(&[
        "lockctl: service: leads with token ",
        "lockctl: service: resigns, the command ended with exit status: 1",
        "lockctl: service: stands again in ",
    ]);
    let numbers = |name: &str| -> Vec<u64> {
        let text = place.read(name);
        text.lines()
            .map(|line| line.parse().expect("a number"))
            .collect()
    };
    let (tokens, begun) = (numbers("tokens"), numbers("begun"));
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}: {ended}");
    let pauses: Vec<_> = begun.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(pauses[0] >= 250 && pauses[1] >= 500, "{pauses:?}: {ended}");
}

#[test]
fn nothing_of_a_command_that_ended_runs_beside_the_next_one() {
    let place = Place::new();
    let script = "sleep 60 >/dev/null 2>&1 & echo $! >> workers; exit 0";
    let mut host = place.host("a", "", script);
    host.until("the command begins again", |_| {
        place.read("workers").lines().count() == 2
    });
    let workers = place.read("workers");
    let first = workers.lines().next().expect("there are two");
    assert_dead(pid_of(first));
    host.signal(Signal::TERM);
    host.expect(0);
}

#[test]
fn a_command_that_fails_lets_another_host_lead() {
    let place = Place::new();
    let mut failing = place.host("a", "", "until test -e go; do sleep 0.01; done; exit 3");
    place.until_there("a");
    let _waiting = place.waiting("b", "");
    place.go();
    place.until_there("b");
    failing.signal(Signal::TERM);
    failing.expect(0);
}

#[test]
fn a_signal_stops_the_command_resigns_and_is_a_success() {
    let deaf = "trap '' TERM INT QUIT; while :; do sleep 0.01; done";
    for (signal, script) in [
        (Signal::TERM, SERVE),
        (Signal::INT, SERVE),
        (Signal::QUIT, SERVE),
        (Signal::TERM, deaf),
    ] {
        let place = Place::new();
        let mut host = place.host("a", "--kill-after 300ms", &format!("touch ready; {script}"));
        place.until_there("ready");
        let mut waiting = place.waiting("b", "");
        host.signal(signal);
        host.expect(0);
        assert_dead(pid_of(&place.read("a")));
        place.until_there("b");
        waiting.signal(Signal::TERM);
        waiting.expect(0);
    }
    let place = Place::new();
    let _leader = place.leader("");
    let mut waiting = place.waiting("b", "");
    waiting.signal(Signal::TERM);
    waiting.expect(0);
}

#[test]
fn a_hangup_is_for_the_command_and_ends_no_host() {
    let place = Place::new();
    let script = "trap 'touch loaded' HUP; touch ready; while :; do sleep 0.01; done";
    let mut leader = place.host("a", "--ttl 3s", script);
    place.until_there("ready");
    let mut waiting = place.waiting("b", "");
    for host in [&mut leader, &mut waiting] {
        host.signal(Signal::HUP);
    }
    place.until_there("loaded");
    leader.signal(Signal::KILL);
    place.until_there("b");
}

#[test]
fn a_lead_that_is_broken_stops_the_command_and_the_host_stands_again() {
    let place = Place::new();
    let script =
        "trap 'echo TERM >> got; exit 0' TERM; echo >> begun; while :; do sleep 0.01; done";
    let mut host = Process::start({
        let mut command = place.lockctl("lead --ttl 3s --events events service -- sh -c");
        command.arg(script);
        command
    });
    place.until_there("begun");
    place.expect(0, "break --yes service");
    host.until("the command begins again", |_| {
        place.read("begun").lines().count() == 2
    });
    assert_eq!(place.read("got"), "TERM\n", "the signals that came");
    host.signal(Signal::TERM);
    host.expect(0)
        .says(&["the lead is lost: an administrator broke it"]);
    let events = place.events();
    let names = events.iter().filter_map(|event| event["event"].as_str());
    let names: Vec<_> = names.filter(|name| !name.starts_with("renew")).collect();
    let term = ["acquired", "child_exit", "released"];
    let lost = ["acquired", "lost", "child_exit", "released"];
    assert_eq!(names, [&lost[..], &term].concat(), "{events:?}");
}

#[test]
fn followers_see_who_leads_and_its_address() {
    let place = Place::new();
    let nobody = json!({ "election": "service", "leader": null });
    assert_eq!(place.json("leader service"), nobody);
    place
        .expect(0, "leader service")
        .prints_only("nobody leads service\n");

    let line = "lead --address 10.0.0.7:9000 --note blue service -- sleep 60";
    let mut host = place.start(line);
    let leader = || place.json("leader service")["leader"].clone();
    until("the address is seen", || {
        leader()["address"] == "10.0.0.7:9000"
    });
    let leader = leader();
    for (name, text) in [("note", "blue"), ("user", "deploy"), ("program", "lockctl")] {
        assert_eq!(leader[name], text, "{leader}");
    }
    assert_eq!(leader["pid"], host.pid().as_raw_nonzero().get(), "{leader}");
    assert!(
        leader["token"].is_u64() && leader["since"].is_string(),
        "{leader}"
    );
    let page = place.expect(0, "leader service");
    page.prints(&["leader   ", "  note   ", "blue\n", "10.0.0.7:9000\n"]);
    let page = place.expect(0, "inspect service");
    page.prints(&["address    10.0.0.7:9000\n"]);
    let inspected = place.json("inspect service");
    assert_eq!(inspected["address"], "10.0.0.7:9000", "{inspected}");

    host.signal(Signal::TERM);
    host.expect(0);
    let free = json!({ "key": "service", "held": false, "lock": null });
    assert_eq!(place.json("inspect service"), free, "the address of nobody");
    let _next = place.leader("");
    let address = &place.json("leader service")["leader"]["address"];
    assert_eq!(*address, Value::Null, "the address of another term");
}

#[test]
fn changes_of_the_leader_are_watched() {
    let place = Place::new();
    let mut watch = place.start("--format json leader --watch service");
    let until_last = |watch: &mut Process, address: Value| {
        watch.until("the change is printed", |watch| {
            let text = watch.stdout.text();
            let last = text.lines().next_back().unwrap_or_default();
            let last: Value = serde_json::from_str(last).unwrap_or_default();
            last["time"].is_string() && last["leader"]["address"] == address
        });
    };
    until_last(&mut watch, Value::Null);
    let mut leader = place.leader("--address 10.0.0.7:9000");
    until_last(&mut watch, json!("10.0.0.7:9000"));
    leader.signal(Signal::TERM);
    leader.expect(0);
    until_last(&mut watch, Value::Null);
}

#[test]
fn what_a_candidate_waits_for_is_told_without_the_id_of_a_term() {
    let place = Place::new();
    let mut leader = place.leader("");
    let mut waiting = place.start("lead --events events service -- true");
    let told = place.event("waiting");
    assert_eq!(
        told["holders"][0]["pid"],
        leader.pid().as_raw_nonzero().get()
    );
    assert_eq!(told["holders"][0]["note"], Value::Null, "{told}");
    waiting.signal(Signal::TERM);
    let ended = waiting.expect(0);
    ended
        .says(&[
            "waiting for service  held by ",
            "gave up waiting for service (TERM)",
        ])
        .says_nothing_of(&["note"]);
}

#[test]
fn a_host_that_cannot_be_elected_ends() {
    let place = Place::new();
    for (code, line) in [
        (64, "lead service"),
        (64, "lead a b -- true"),
        (64, "lead '' -- true"),
        (64, "lead --ttl 25h service -- true"),
        (64, "lead -w 5s service -- true"),
        (64, "lead --on-lost warn service -- true"),
        (
            64,
            &format!("lead --address {} service -- true", "x".repeat(2049)),
        ),
        (69, "--backend sqlite:none/locks.db lead service -- true"),
    ] {
        place.expect(code, line);
    }
    place.expect(
        64,
        &format!("run service -- {LOCKCTL} lead service -- true"),
    );
    let ended = place.expect(64, "lead service true");
    ended.says(&["lockctl lead NAME -- CMD ARGS"]);
}
