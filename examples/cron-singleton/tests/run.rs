//! The program itself is run, because it starts copies of itself.

use std::process::Command;

#[test]
fn another_process_leads_after_the_first_is_killed() {
    let output = Command::new(env!("CARGO_BIN_EXE_cron-singleton"))
        .output()
        .expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(printed.contains("3 runs, with min_hold 1"), "{printed}");
    assert!(
        printed.ends_with("ticks, none missed, none twice\n"),
        "{printed}"
    );
}

#[test]
fn locks_that_are_not_shared_are_found_out() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cron-singleton"));
    // Each process has a store of its own, and leads.
    let output = command.arg("memory:cron").output().expect("it starts");
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("follows"), "{errors}");
}
