//! The program itself is run, because it stops a copy of itself.

use std::process::Command;

#[test]
fn late_write_is_accepted_without_its_token_and_refused_with_it() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zombie-writer"));
    let output = command.output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        printed.contains("without token   written by the first"),
        "{printed}"
    );
    assert!(
        printed.contains("with token      written by the second"),
        "{printed}"
    );
}

#[test]
fn locks_that_are_not_shared_are_found_out() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zombie-writer"));
    // Each process has a store of its own.
    let output = command.arg("memory:zombie").output().expect("it starts");
    assert!(!output.status.success());
}
