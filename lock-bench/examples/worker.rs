//! A contender that is a process, for tests: the program that measures is none of its own there.

use std::process::ExitCode;

use polylock_bench::target::Openers;
use polylock_bench::worker;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match worker::serve(&Openers::compiled_in()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
