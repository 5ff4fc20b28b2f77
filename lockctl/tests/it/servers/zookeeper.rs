//! Locks that live with a session, from the command line.

use lock_testkit::servers::ZooKeeperServer;
use rustix::process::Signal;

use crate::fixture::{LOCKCTL, Place};

#[test]
fn a_command_is_not_stopped_by_a_session_shorter_than_its_lease() {
    let (url, process) = (ZooKeeperServer::shared().url(), std::process::id());
    let url = format!("{url}/lockctl-run-{process}?session-timeout=4s");
    let place = Place::new();
    // The time to stop that follows from the ttl is 5 s, longer than the session is ever valid.
    // The command takes longer than the session lives without a heartbeat.
    place.expect(0, &format!("--backend {url} run --ttl 30s k -- sleep 5"));
}

/// The node is not watched yet, so that only the release finds it gone.
#[test]
fn a_short_command_that_loses_its_lock_is_not_a_success() {
    let (url, process) = (ZooKeeperServer::shared().url(), std::process::id());
    let backend = format!("--backend {url}/lockctl-lost-{process}");
    for code in [0, 4] {
        let place = Place::new();
        let script = format!("{LOCKCTL} {backend} break --yes k; exit {code}");
        let line = format!("{backend} run --events events k -- sh -c '{script}'");
        let ended = place.expect(79, &line);
        ended.says(&["error: lost the lock on k: "]);
        assert_eq!(place.event("released")["outcome"], "already_lost");
        place.event("lost");
    }
}

/// The session outlives `lockctl`, so that its end would free the lock 10 s later.
#[test]
fn a_signal_during_the_min_hold_frees_the_lock_at_once() {
    let (url, process) = (ZooKeeperServer::shared().url(), std::process::id());
    let backend = format!("--backend {url}/lockctl-min-hold-{process}");
    for signal in [Signal::INT, Signal::TERM] {
        let place = Place::new();
        let options = "--min-hold 30s --events events k";
        let mut run = place.start(&format!("{backend} run -n {options} -- sh -c 'exit 7'"));
        place.event("child_exit");
        place.expect(75, &format!("{backend} try k"));
        assert!(run.is_running(), "it keeps no lock");
        run.signal(signal);
        run.expect(7);
        place.expect(0, &format!("{backend} try k"));
        assert_eq!(place.event("released")["outcome"], "clean");
    }
}

#[test]
fn a_loss_during_the_min_hold_counts() {
    let (url, process) = (ZooKeeperServer::shared().url(), std::process::id());
    let backend = format!("--backend {url}/lockctl-lost-hold-{process}");
    let place = Place::new();
    let run = place.start(&format!(
        "{backend} run --min-hold 30s --events events k -- true"
    ));
    place.event("child_exit");
    place.expect(0, &format!("{backend} break --yes k"));
    run.expect(79)
        .says(&["error: lost the lock on k: it ended before its min hold"]);
    assert_eq!(place.event("lost")["reason"], "broken");
}

/// A loss is noticed within the ttl, so that this one came after the command.
#[test]
fn a_loss_late_in_the_min_hold_says_nothing_of_the_command() {
    let (url, process) = (ZooKeeperServer::shared().url(), std::process::id());
    let backend = format!("--backend {url}/lockctl-late-loss-{process}");
    let place = Place::new();
    let run = place.start(&format!(
        "{backend} run --ttl 1s --min-hold 30s --events events k -- sh -c 'exit 4'"
    ));
    place.event("child_exit");
    std::thread::sleep(std::time::Duration::from_secs(2));
    place.expect(0, &format!("{backend} break --yes k"));
    run.expect(4)
        .says(&["warning: k was lost before the end of its min hold"]);
    assert_eq!(place.event("lost")["reason"], "broken");
}
