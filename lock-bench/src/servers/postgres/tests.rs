use lock_testkit::servers::{PostgresOptions, PostgresServer};

use super::super::testing::{commands_of_a_pair, excludes};
use super::*;

async fn open_both(url: &str, mode: &str) -> (Asker, Least) {
    let url = LockUrl::parse(&format!("{url}?mode={mode}")).unwrap();
    let place = Place::of(&url).unwrap();
    let options = options(&place);
    let asker = Asker::new(connect(&options).await.unwrap());
    let least = Least::open(&place, options).await.unwrap();
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
    let server = open(&LockUrl::parse(&url).unwrap()).await.unwrap();
    assert!(server.bare().is_none());
    server.probe().ping().await.unwrap();
}
