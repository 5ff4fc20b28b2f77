//! The process that the conformance suite starts, stops and kills.

use std::process::ExitCode;

use lock_core::Registry;
use lock_zk::ZooKeeperBackend;

fn main() -> ExitCode {
    lock_testkit::taker::main(Registry::new().with(ZooKeeperBackend::default()))
}
