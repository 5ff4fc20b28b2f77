//! The program itself is run, because it starts copies of itself.

use std::process::Command;

#[test]
fn another_process_leads_after_the_first_is_killed() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leader"));
    let output = command.output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(printed.ends_with("none missed, none twice\n"), "{printed}");
}

#[test]
fn locks_that_are_not_shared_are_found_out() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leader"));
    // Each process has a store of its own, and leads.
    let output = command.arg("memory:leader").output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("follows"),
        "{errors}"
    );
}
