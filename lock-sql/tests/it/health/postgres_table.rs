use lock_core::LockUrl;
use lock_sql::Schema;
use lock_testkit::servers::PostgresServer;

use crate::health::support::{assert_only, faults};

async fn make(url: &str) {
    let schema = Schema::of(&LockUrl::parse(url).expect("a URL")).expect("of a database");
    schema.apply().await.expect("it is made");
}

#[tokio::test]
async fn each_fault_of_a_table_is_found_by_itself() {
    let server = PostgresServer::shared();
    let url = server.database();
    let strict = format!("{url}?create-table=off");
    assert_only(&faults(&strict).await, "table", "create-table=off");
    assert_only(
        &faults(&format!("{url}?schema=nowhere")).await,
        "table",
        "no schema",
    );
    make(&url).await;
    assert_eq!(faults(&strict).await, [""; 0]);
    let table = "polylock_locks";
    for (spoil, says, mend) in [
        (
            format!("UPDATE {table} SET token = 7 WHERE kind = 0"),
            "has layout 7",
            format!("UPDATE {table} SET token = 2 WHERE kind = 0"),
        ),
        (
            format!("ALTER TABLE {table} SET UNLOGGED"),
            "is unlogged",
            format!("ALTER TABLE {table} SET LOGGED"),
        ),
        (
            format!("ALTER TABLE {table} RENAME COLUMN label TO name_tag"),
            "has no columns label",
            format!("ALTER TABLE {table} RENAME COLUMN name_tag TO label"),
        ),
    ] {
        server.sql(&url, &spoil);
        assert_only(&faults(&url).await, "table", says);
        server.sql(&url, &mend);
    }
    assert_eq!(faults(&url).await, [""; 0]);
}

#[tokio::test]
async fn a_table_of_somebody_else_is_found() {
    let server = PostgresServer::shared();
    let url = server.database();
    server.sql(
        &url,
        "SET ROLE test; CREATE TABLE polylock_locks (kind int)",
    );
    assert_only(
        &faults(&url).await,
        "table",
        "has no columns lock_key, slot, name",
    );
}

#[tokio::test]
async fn missing_rights_are_found() {
    let server = PostgresServer::shared();
    let url = server.database();
    let name = url.rsplit('/').next().expect("a name");
    let guest = format!("guest_{name}");
    server.sql(&url, &format!("CREATE ROLE {guest} LOGIN PASSWORD 'guest'"));
    let own = url.replace("test:test@", &format!("{guest}:guest@"));
    assert_only(&faults(&own).await, "rights", "may not make it");
    make(&url).await;
    for (grant, says) in [
        ("SELECT (kind)", "no right to SELECT, INSERT, UPDATE"),
        ("SELECT", "no right to INSERT, UPDATE"),
        ("INSERT", "no right to UPDATE"),
    ] {
        server.sql(&url, &format!("GRANT {grant} ON polylock_locks TO {guest}"));
        assert_only(&faults(&own).await, "rights", says);
    }
    server.sql(&url, &format!("GRANT UPDATE ON polylock_locks TO {guest}"));
    assert_only(&faults(&own).await, "rights", "draw no tokens");
    let tokens = format!("GRANT SELECT, UPDATE ON SEQUENCE polylock_locks_token TO {guest}");
    server.sql(&url, &tokens);
    assert_eq!(faults(&own).await, [""; 0]);
    server.sql(&url, "REVOKE USAGE ON SCHEMA public FROM PUBLIC");
    assert_only(
        &faults(&own).await,
        "rights",
        "no right to SELECT, INSERT, UPDATE",
    );
}
