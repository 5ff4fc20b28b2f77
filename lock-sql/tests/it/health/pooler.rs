use lock_testkit::servers::{PgBouncer, PoolMode, PostgresServer};

use crate::health::support::{assert_only, check_health, faults};

#[tokio::test]
async fn a_pooler_is_a_fault_for_locks_that_it_does_not_keep() {
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
        (PoolMode::Session, "advisory", None),
    ] {
        let pooler = PgBouncer::before_shared(&server, pool);
        let found = faults(&format!("{}?mode={mode}", pooler.url())).await;
        match says {
            Some(says) => assert_only(&found, "pooler", says),
            None => assert_eq!(found, [""; 0], "{pool:?} {mode}"),
        }
    }
}

#[tokio::test]
async fn a_pooler_that_is_named_is_not_looked_for() {
    let server = PostgresServer::shared();
    let pooler = PgBouncer::before_shared(&server, PoolMode::Transaction);
    let found = check_health(&format!("{}?mode=lease&pooler=transaction", pooler.url())).await;
    assert_eq!(found[0].id, "pooler");
    assert!(
        found[0].summary.contains("names a transaction pooler"),
        "{}",
        found[0]
    );
    assert!(found.len() > 6, "{found:?}");
}
