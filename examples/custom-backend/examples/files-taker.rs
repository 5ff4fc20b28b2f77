//! The process that the conformance suite kills and stops.

use std::process::ExitCode;

use custom_backend::FilesBackend;
use polylock_core::Registry;

fn main() -> ExitCode {
    polylock_conformance::taker::main(Registry::new().with(FilesBackend))
}
