//! Notes which compiler it is, for the reports.

use std::env;
use std::process::Command;

fn main() {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output();
    let version = output.ok().and_then(|o| String::from_utf8(o.stdout).ok());
    let version = version.unwrap_or_else(|| "rustc of an unknown version".to_owned());
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=LOCK_BENCH_RUSTC={}", version.trim());
}
