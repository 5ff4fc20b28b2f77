//! The process that the conformance suite starts, stops and kills.

use std::process::ExitCode;

use polylock_core::Registry;
use polylock_etcd::EtcdBackend;

fn main() -> ExitCode {
    lock_testkit::taker::main(Registry::new().with(EtcdBackend::default()))
}
