//! Commands that run on one host at a time. Each process of `lockctl` is a host.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fixture::{LOCKCTL, Line, Place, Process, UNTIL_GO, is_alive, pid_of, state, until};

/// A command that runs until it is stopped.
pub(crate) const SERVE: &str = "exec sleep 60";

impl Place {
    /// A host whose command has written its process id to the file `NAME` before it runs the script.
    ///
    /// Before that it looks for processes of the file `pids` that are alive, and adds its own.
    pub(crate) fn host(&self, name: &str, options: &str, script: &str) -> Process {
        let look = "for pid in $(cat pids); do
                        grep -qs '^State:.[^ZX]' /proc/$pid/status && echo $pid >> met
                    done 2>/dev/null";
        let script = format!(
            "{look}; echo $$ >> pids; echo $$ > {name}.new; mv {name}.new {name}; {script}"
        );
        let mut command = self.lockctl("lead");
        command.args(options.words());
        command.args(["service", "--", "sh", "-c", &script]);
        Process::start(command)
    }

    /// No command has found another one alive when it began.
    #[track_caller]
    pub(crate) fn assert_never_met(&self) {
        assert_eq!(self.read("met"), "", "processes that were alive");
    }

    /// A host that waits, with a command that runs until it is stopped.
    #[track_caller]
    pub(crate) fn waiting(&self, name: &str, options: &str) -> Process {
        let mut host = self.host(name, options, SERVE);
        host.until_says("waiting for service");
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

    let died = Instant::now();
    first.signal(Signal::KILL);
    place.until_there("b");
    let moved = died.elapsed();
    place.assert_never_met();
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
fn the_command_of_a_frozen_leader_is_killed_when_that_goes_on_and_it_campaigns_again() {
    let place = Place::new();
    let mut frozen = place.leader("--ttl 3s");
    let command = pid_of(&place.read("a"));
    frozen.signal(Signal::STOP);
    let next = place.host("b", "", SERVE);
    place.until_there("b");
    frozen.signal(Signal::CONT);
    until("the command is dead", || !is_alive(command));
    place.remove(&["a"]);
    next.terminate(0);
    place.until_there("a");
    frozen.terminate(0).says(&["service: the lead is lost: "]);
}

#[test]
fn a_command_that_ends_is_started_again_with_a_larger_token() {
    let place = Place::new();
    let script = "date +%s%3N >> begun; echo $LOCK_FENCING_TOKEN >> tokens; exit $(wc -l < tokens)";
    let mut host = place.host("a", "", script);
    host.until("three commands have begun", |_| {
        place.read("tokens").lines().count() >= 3
    });
    let ended = host.terminate(0);
    let ended = ended.says(&[
        "lockctl: service: leads with token ",
        "lockctl: service: resigns, the command ended with exit status: 1",
        "lockctl: service: campaigns again in ",
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

/// Whether the command succeeds or fails. What it leaves in the group of `lockctl` is reaped too.
#[test]
fn nothing_of_a_command_that_ended_runs_beside_the_next_one() {
    for (options, code) in [("", 3), ("", 0), ("--pgid inherit", 0)] {
        let place = Place::new();
        let worker = "sleep 60 >/dev/null 2>&1 & echo $! >> pids; echo $! > worker";
        let mut host = place.host("a", options, &format!("{worker}; {UNTIL_GO}; exit {code}"));
        place.until_there("a");
        let _waiting = place.waiting("b", "");
        place.go();
        place.until_there("b");
        place.assert_never_met();
        host.until_says("campaigns again in");
        let worker = pid_of(&place.read("worker"));
        assert!(!is_alive(worker), "{options} {code}");
        if !options.is_empty() {
            assert_eq!(state(worker), None, "it is reaped");
        }
        host.terminate(0);
    }
}

#[test]
fn a_signal_stops_the_command_resigns_and_is_a_success() {
    let deaf = "trap '' TERM INT QUIT; while :; do sleep 0.05; done";
    for (signal, script) in [
        (Signal::TERM, SERVE),
        (Signal::INT, SERVE),
        (Signal::QUIT, SERVE),
        (Signal::TERM, deaf),
    ] {
        let place = Place::new();
        let mut host = place.host("a", "--kill-after 300ms", &format!("touch ready; {script}"));
        place.until_there("ready");
        let waiting = place.waiting("b", "");
        host.signal(signal);
        host.expect(0);
        place.until_there("b");
        place.assert_never_met();
        waiting.terminate(0);
    }
    let place = Place::new();
    let _leader = place.leader("");
    let waiting = place.waiting("b", "");
    waiting.terminate(0);
}

#[test]
fn what_a_command_has_started_has_its_time_to_end_and_the_next_one_waits_for_it() {
    let place = Place::new();
    let drains = "trap 'sleep 0.5; touch drained; exit 0' TERM";
    let worker = format!("{drains}; echo $$ >> pids; touch ready; while :; do sleep 0.05; done");
    // The command itself ends at once.
    let script = format!("sh -c \"{worker}\" & wait");
    let script = script.replace("$$", "\\$\\$");
    let host = place.host("a", "--kill-after 10s", &script);
    place.until_there("ready");
    let _waiting = place.waiting("b", "");
    host.terminate(0);
    assert!(place.file("drained").exists(), "the worker is killed");
    place.until_there("b");
    place.assert_never_met();
}

#[test]
fn a_host_that_waits_after_a_term_is_stopped_by_ctrl_z() {
    let place = Place::new();
    let mut host = place.host("a", "", &format!("{UNTIL_GO}; exit 0"));
    place.until_there("a");
    let _next = place.waiting("b", "");
    place.go();
    place.until_there("b");
    host.until_says("campaigns again in");
    host.signal(Signal::TSTP);
    let pid = host.pid();
    until("it is stopped", || state(pid) == Some('T'));
    host.signal(Signal::CONT);
    host.terminate(0);
}

#[test]
fn a_host_whose_backend_is_away_connects_again() {
    let place = Place::new();
    let mut host = place.host("a", "--backend sqlite:later/locks.db", SERVE);
    host.until_says("connects again in");
    fs::create_dir(place.file("later")).expect("the directory of the test");
    place.until_there("a");
    host.terminate(0);
}

#[test]
fn a_hangup_is_for_the_command_and_ends_no_host() {
    let place = Place::new();
    let script = "trap 'touch loaded' HUP; touch ready; while :; do sleep 0.05; done";
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
        "trap 'echo TERM >> got; exit 0' TERM; echo >> begun; while :; do sleep 0.05; done";
    let mut host = Process::start({
        let mut command = place.lockctl("lead --ttl 9s --events events service -- sh -c");
        command.arg(script);
        command
    });
    place.until_there("begun");
    place.expect(0, "break --yes service");
    host.until("the command begins again", |_| {
        place.read("begun").lines().count() >= 2
    });
    assert_eq!(place.read("got"), "TERM\n", "the signals that came");
    host.terminate(0)
        .says(&["the lead is lost: an administrator broke it"]);
    let events = place.events();
    let names = events.iter().filter_map(|event| event["event"].as_str());
    // How often it renews and how soon it waits is a matter of time.
    let names = names.filter(|name| !name.starts_with("renew") && *name != "waiting");
    let first: Vec<_> = names.take(5).collect();
    let expected = ["acquired", "lost", "child_exit", "released", "acquired"];
    assert_eq!(first, expected, "{events:?}");
}

#[test]
fn followers_see_the_leader_and_its_address() {
    let place = Place::new();
    let nobody = json!({ "election": "service", "leader": null });
    assert_eq!(place.json("leader service"), nobody);
    place
        .expect(0, "leader service")
        .prints_only("nobody leads service\n");

    let line = "lead --address 10.0.0.7:9000 --note blue service -- sleep 60";
    let host = place.start(line);
    let leader = || place.json("leader service")["leader"].clone();
    until("the address is seen", || {
        leader()["address"] == "10.0.0.7:9000"
    });
    let leader = leader();
    for (name, text) in [("note", "blue"), ("user", "deploy"), ("program", "lockctl")] {
        assert_eq!(leader[name], text, "{leader}");
    }
    assert_eq!(leader["pid"], host.child.id(), "{leader}");
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

    host.terminate(0);
    let free = json!({ "key": "service", "held": false, "lock": null });
    assert_eq!(place.json("inspect service"), free, "it has no leader");
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
    let leader = place.leader("--address 10.0.0.7:9000");
    until_last(&mut watch, json!("10.0.0.7:9000"));
    leader.terminate(0);
    until_last(&mut watch, Value::Null);
}

#[test]
fn what_a_candidate_waits_for_is_told_without_the_id_of_a_term() {
    let place = Place::new();
    let leader = place.leader("");
    let waiting = place.start("lead --events events service -- true");
    let told = place.waiting_event();
    assert_eq!(told["holders"][0]["pid"], leader.child.id());
    assert_eq!(told["holders"][0]["note"], Value::Null, "{told}");
    let ended = waiting.terminate(0);
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
