//! Many processes on one row.

use std::path::Path;

use lock_testkit::history::{Checker, Event};
use lock_testkit::taker::{Taker, TakerProcess};

use crate::server::support::{Site, assert_free, everywhere, key};

async fn eight_processes_lose_no_increment(site: Site) {
    const PROCESSES: u64 = 8;
    const ROUNDS: u32 = 15;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let counter = directory.path().join("counter");
    // None of them makes the table before the others come.
    let start = |_| {
        let take = Taker::example("lock-taker", site.url()).take(&key("counter"));
        let take = take
            .with_hold(std::time::Duration::ZERO)
            .with_rounds(ROUNDS);
        take.with_increment(&counter).spawn().expect("it starts")
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(start).collect();
    for process in &mut processes {
        let status = tokio::task::block_in_place(|| process.wait()).expect("it ends");
        assert!(status.success(), "{status}");
    }
    let expected = PROCESSES * u64::from(ROUNDS);
    assert_eq!(count(&counter), expected);
    let events: Vec<Event> = processes.iter().flat_map(TakerProcess::events).collect();
    let summary = Checker::new().check(&events).assert_clean();
    assert_eq!(summary.grants as u64, expected);
    assert_free(&site, "counter").await;
}

everywhere!(eight_processes_lose_no_increment);

fn count(file: &Path) -> u64 {
    let text = std::fs::read_to_string(file).expect("the counter is there");
    let count = text.split_whitespace().next();
    count
        .and_then(|count| count.parse().ok())
        .expect("a number")
}
