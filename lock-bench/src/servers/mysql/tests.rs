use lock_testkit::servers::{MariaDbOptions, MariaDbServer};

use super::super::testing::{commands_of_a_pair, excludes};
use super::*;

const RUN: u64 = 0xb;

async fn open_both(url: &str, mode: &str) -> (Asker, Least) {
    let url = LockUrl::parse(&format!("{url}?mode={mode}")).unwrap();
    let place = Place::of(&url).unwrap();
    let options = options(&place);
    let asker = Asker::new(connect(&options).await.unwrap());
    let least = Least::open(&place, options, RUN).await.unwrap();
    (asker, least.expect("the user may make a table"))
}

#[tokio::test]
async fn bare_statements_exclude() {
    let url = MariaDbServer::shared().database();
    for mode in ["advisory", "lease", "row"] {
        excludes(open_both(&url, mode).await.1).await;
    }
}

#[tokio::test]
async fn bare_statements_are_counted() {
    let server = MariaDbServer::start(MariaDbOptions::new());
    for (mode, statements) in [("advisory", 2.0), ("lease", 2.0), ("row", 3.0)] {
        let (asker, least) = open_both(&server.url(), mode).await;
        assert_eq!(
            commands_of_a_pair(&asker, &least).await,
            statements,
            "{mode}"
        );
    }
}

#[tokio::test]
async fn tables_are_of_one_run_and_go_with_it() {
    let server = MariaDbServer::shared();
    let text = server.database();
    let tables = || {
        let tables = server.sql(&text, "SHOW TABLES LIKE 'polylock_bench%'");
        tables.concat()
    };
    let url = LockUrl::parse(&format!("{text}?mode=row")).unwrap();
    let (one, other) = (bare(&url, 0x1a).await, bare(&url, 0x1b).await);
    assert!(one.unwrap().is_some() && other.unwrap().is_some());
    // As each process of a run does.
    assert!(bare(&url, 0x1a).await.unwrap().is_some());
    clear(&url, 0x1a).await.unwrap();
    assert_eq!(tables(), ["polylock_bench_1b"]);
    clear(&url, 0x1b).await.unwrap();
    clear(&url, 0x1b).await.unwrap();
    assert_eq!(tables(), [""; 0]);
}
