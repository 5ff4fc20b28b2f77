//! The process that the conformance suite kills and stops.

use std::process::ExitCode;

use custom_backend::FilesBackend;
use lock_core::Registry;

fn main() -> ExitCode {
    lock_conformance::taker::main(Registry::new().with(FilesBackend))
}
