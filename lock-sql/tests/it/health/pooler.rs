use lock_testkit::servers::{PgBouncer, PoolMode, PostgresServer};
use polylock_core::ErrorKind;
use polylock_sql::SqlLock;

use crate::checks::take;
use crate::health::support::{assert_only, check_health, faults};

#[tokio::test]
async fn a_pooler_is_a_fault_for_locks_that_it_does_not_keep_and_refused() {
    let server = PostgresServer::shared();
    for (pool, mode, says) in [
        (
            PoolMode::Transaction,
            "advisory",
            Some("transaction pooler"),
        ),
        (PoolMode::Transaction, "row", None),
        (PoolMode::Transaction, "lease", None),
        (PoolMode::Statement, "row", Some("each statement")),
        (PoolMode::Statement, "advisory", Some("each statement")),
        (PoolMode::Statement, "lease", None),
        (PoolMode::Session, "row", None),
        (PoolMode::Session, "lease", None),
        (PoolMode::Session, "advisory", None),
    ] {
        let pooler = PgBouncer::before_shared(&server, pool);
        let url = format!("{}?mode={mode}", pooler.url());
        let (found, started) = (faults(&url).await, SqlLock::open(&url).await);
        if let Some(says) = says {
            assert_only(&found, "pooler", says);
            let error = started.expect_err("it is refused");
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
            assert!(error.message().contains("mode=lease"), "{error}");
        } else {
            assert_eq!(found, [""; 0], "{pool:?} {mode}");
            take(&url).await;
        }
    }
}

#[tokio::test]
async fn a_pooler_that_is_named_is_not_looked_for() {
    let server = PostgresServer::shared();
    let pooler = PgBouncer::before_shared(&server, PoolMode::Transaction);
    let url = format!("{}?mode=lease&pooler=transaction", pooler.url());
    let found = check_health(&url).await;
    assert_eq!(found[0].id, "pooler");
    let summary = &found[0].summary;
    assert!(summary.contains("names a transaction pooler"), "{summary}");
    take(&url).await;
}
