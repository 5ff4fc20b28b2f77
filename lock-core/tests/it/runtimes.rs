//! Work that outlasts the runtime where it began, in real time.

use std::time::{Duration, Instant};

use polylock_core::engine::Engine;
use polylock_core::prelude::*;
use tokio::runtime::Runtime;

use super::server::fake::Fake;

#[test]
fn a_release_whose_runtime_ends_goes_on() {
    let fake = Fake::with_engine(Engine::of_this_process("slow"));
    let brief = Runtime::new().unwrap();
    let guard = brief.block_on(fake.lock("k")).unwrap();
    // Long enough that the runtime ends before the release arrives.
    fake.state().delay = Duration::from_secs(1);
    brief.spawn(guard.release());
    until(|| fake.releases() == 1);
    drop(brief);
    // Its timer has gone with the runtime, so that it begins again on the engine's.
    until(|| fake.releases() == 2 && !fake.is_taken());
    assert_eq!(fake.releases(), 2, "it is done then");
}

fn until(happens: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !happens() {
        assert!(Instant::now() < deadline, "it does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}
