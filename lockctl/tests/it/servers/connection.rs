//! Locks that live with a connection, from the command line.

use std::time::{Duration, Instant};

use lock_testkit::servers::{MariaDbServer, PostgresServer};
use rustix::process::{Signal, kill_process};

use crate::child::LIVES_ON;
use crate::fixture::{Ended, LOCKCTL, Place, Process, is_alive, side_by_side};

/// The options that lead to a database of its own.
fn backend() -> String {
    let database = PostgresServer::shared().database();
    format!("--backend {database}?mode=row")
}

#[test]
fn the_command_is_dead_before_the_end_of_max_hold_frees_its_lock() {
    // The last one is being stopped already, and would be killed after the end.
    let ended = "max-hold has ended the lock on k";
    for (options, code, said) in [
        ("--kill-after 0s", 79, ended),
        ("--kill-after 1s", 79, ended),
        (
            "--kill-after 4s --max-run 1500ms",
            137,
            "TERM now, KILL in 4s",
        ),
    ] {
        let mut ended = stopped_by_max_hold(options);
        // After a stall of half a second it sees the loss before the end of the command, and says so.
        for _ in 0..2 {
            if ended.stderr.contains("k is lost: ") {
                ended = stopped_by_max_hold(options);
            }
        }
        assert_eq!(ended.code, code, "{ended}");
        ended.says(&["max-hold ends the lock on k in ", said]);
    }
}

/// The next holder starts after the end of a command that obeys no TERM.
fn stopped_by_max_hold(options: &str) -> Ended {
    let deaf = "trap '' TERM; while :; do echo first >> lines; sleep 0.05; done";
    let (place, backend) = (Place::new(), backend());
    let mut command = place.lockctl(&format!("{backend} run {options} k -- sh -c"));
    command.arg(deaf).env("LOCK_MAX_HOLD", "4s");
    let first = Process::start(command);
    place.until_there("lines");
    let second = "sh -c 'echo second >> lines'";
    place.expect(0, &format!("{backend} run -w 20s k -- {second}"));
    let ended = first.ended();
    let lines = place.read("lines");
    assert!(lines.ends_with("first\nsecond\n"), "{lines}: {ended}");
    ended
}

#[test]
fn a_signal_ends_the_wait_for_min_hold() {
    let (place, backend) = (Place::new(), backend());
    let script = "sh -c 'exit 3'";
    let options = "--min-hold 30s --events events k";
    let mut run = place.start(&format!("{backend} run {options} -- {script}"));
    place.event("child_exit");
    place.expect(75, &format!("{backend} try k"));
    assert!(run.is_running(), "its end would end the lock");
    let asked = Instant::now();
    run.terminate(3);
    let took = asked.elapsed();
    assert!(
        took < Duration::from_secs(5),
        "it ended {took:?} after TERM"
    );
    place.expect(0, &format!("{backend} run -w 20s k -- true"));
}

/// The part on the new backend, which has leases, would outlast `lockctl`, and that on the old one would not.
#[test]
fn the_min_hold_of_a_lock_on_two_backends_counts_on_both() {
    let (place, url) = (Place::new(), PostgresServer::shared().database());
    place.write_migration(&format!("{url}?mode=row"));
    let began = Instant::now();
    let run = place.start("--config lock.toml run --min-hold 6s --events events k -- true");
    place.event("released");
    place.expect(0, &format!("--backend {url}?mode=row run -w 20s k -- true"));
    let held = began.elapsed();
    assert!(
        held >= Duration::from_millis(5900),
        "k was free on the old backend after {held:?}"
    );
    run.expect(0);
}

#[test]
fn acquire_refuses_a_lock_without_a_lease_before_it_waits() {
    let (place, backend) = (Place::new(), backend());
    let _holder = place.holder(&format!("{backend} k"));
    let ended = place.expect(78, &format!("{backend} acquire -n k"));
    ended.says(&["use `lockctl run`, which keeps the process", "mode=lease"]);
}

#[test]
fn a_command_finds_no_ttl_of_a_lock_without_a_lease() {
    let (place, backend) = (Place::new(), backend());
    let outer = [("LOCK_TTL_MS", "30000")];
    let ended = place.expect_with(0, &format!("{backend} run k -- env"), &outer);
    ended
        .prints(&["LOCK_KEY=k\n"])
        .says_nothing_of(&["LOCK_TTL_MS"]);
}

/// The end of the session is noticed before the release, by it, or during it.
#[test]
fn a_lock_that_is_broken_just_before_the_command_ends_is_not_a_success() {
    let servers = [MariaDbServer::shared(), PostgresServer::shared()];
    let modes = ["row", "advisory"];
    let sites = servers
        .iter()
        .flat_map(|server| modes.map(|mode| (server, mode)));
    // A database of its own for each: the next break of the key replaces the mark of this one.
    let cases = sites.flat_map(|(server, mode)| {
        ["0", "0.5"].map(|pause| (format!("{}?mode={mode}", server.database()), pause))
    });
    side_by_side(&cases.collect::<Vec<_>>(), |(url, pause)| {
        let (place, backend) = (Place::new(), format!("--backend {url}"));
        // The record of a holder follows its grant, and without one the key looks free.
        let broken = format!("{LOCKCTL} {backend} break --yes k | grep -v \"is free\"");
        let script = format!("sleep {pause}; until {broken}; do sleep 0.1; done; exit 4");
        let line = format!("{backend} run --events events k -- sh -c '{script}'");
        place
            .expect(79, &line)
            .says(&["error: lost the lock on k: "]);
        place.event("lost");
        assert_eq!(place.event("released")["outcome"], "already_lost", "{url}");
    });
}

/// No other process gets the lock of a killed `lockctl` while its command lives on.
#[test]
fn sessions_outlive_a_killed_lockctl_until_its_command_is_dead() {
    let servers = [MariaDbServer::shared(), PostgresServer::shared()];
    let urls = servers.iter().flat_map(|server| {
        ["row", "advisory"].map(|mode| format!("{}?mode={mode}", server.database()))
    });
    let urls: Vec<_> = urls.collect();
    let urls = urls.iter().flat_map(|url| [(url, false), (url, true)]);
    // A lock on two backends is free for the clients of either as soon as its part there is.
    side_by_side(&urls.collect::<Vec<_>>(), |&(url, migrates)| {
        let place = Place::new();
        let backend = if migrates {
            place.write_migration(url);
            "--config lock.toml".to_owned()
        } else {
            format!("--backend {url}")
        };
        let script = format!("echo $$ > pid; {LIVES_ON}");
        let mut command = place.lockctl(&format!("{backend} run k -- sh -c"));
        command.arg(&script);
        let mut process = Process::start(command);
        place.until_there("cleared");
        let command = place.pid();
        process.signal(Signal::KILL);
        assert_eq!(process.code(), 137);
        let next = |code, wait| {
            place.expect(code, &format!("--backend {url} run -w {wait} k -- true"));
        };
        // A server that answers slowly on a busy machine has said by then that the lock is held.
        next(75, "5s");
        assert!(is_alive(command), "{url}: the command has ended by itself");
        kill_process(command, Signal::KILL).expect("it is there");
        next(0, "20s");
    });
}
