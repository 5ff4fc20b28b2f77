use lock_testkit::servers::{PostgresOptions, PostgresServer};

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
    let url = PostgresServer::shared().database();
    for mode in ["advisory", "lease", "row"] {
        excludes(open_both(&url, mode).await.1).await;
    }
}

#[tokio::test]
async fn bare_statements_are_counted() {
    let options =
        PostgresOptions::new().with_config("shared_preload_libraries", "pg_stat_statements");
    let server = PostgresServer::start(options);
    server.sql("CREATE EXTENSION pg_stat_statements");
    server.sql("GRANT pg_read_all_stats TO test");
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
async fn without_leave_to_make_a_table_there_is_no_limit() {
    let url = format!("{}?create-table=off", PostgresServer::shared().database());
    let url = LockUrl::parse(&url).unwrap();
    assert!(bare(&url, RUN).await.unwrap().is_none());
    probe(&url).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn tables_are_of_one_run_and_go_with_it() {
    let server = PostgresServer::shared();
    let text = server.database();
    let tables = || {
        let tables = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'polylock_bench%'";
        server.sql(&text, tables).concat()
    };
    let url = LockUrl::parse(&format!("{text}?mode=lease")).unwrap();
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

#[tokio::test]
async fn who_may_make_no_table_is_refused() {
    let server = PostgresServer::start(PostgresOptions::new().with_user("reader", "secret"));
    let url = format!("postgres://reader:secret@127.0.0.1:{}/test", server.port());
    let url = LockUrl::parse(&url).unwrap();
    let refused = bare(&url, RUN).await.unwrap_err();
    assert_eq!(refused.kind(), "refused", "{refused}");
    probe(&url).await.unwrap().ping().await.unwrap();
}
