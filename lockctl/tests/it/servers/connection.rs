//! Locks that live with a connection, from the command line.

use lock_testkit::servers::PostgresServer;

use crate::fixture::{Place, Process};

/// The options that lead to a database of its own.
fn backend() -> String {
    let database = PostgresServer::shared().database();
    format!("--backend {database}?mode=row")
}

#[test]
fn the_command_is_dead_before_the_end_of_max_hold_frees_its_lock() {
    let (place, backend) = (Place::new(), backend());
    let deaf = "trap '' TERM; while :; do echo first >> lines; sleep 0.01; done";
    let mut command = place.lockctl(&format!("{backend} run k -- sh -c"));
    command.arg(deaf).env("LOCK_MAX_HOLD", "2s");
    let first = Process::start(command);
    place.until_there("lines");
    let second = "sh -c 'echo second >> lines'";
    place.expect(0, &format!("{backend} run -w 20s k -- {second}"));
    first
        .expect(79)
        .says(&["lost the lock on k: it was held for longer than max_hold"]);
    let lines = place.read("lines");
    assert!(lines.ends_with("first\nsecond\n"), "{lines}");
}
