//! Databases that answer some statements and not others.

use std::time::Duration;

use lock_testkit::servers::PostgresServer;
use polylock_tower::idempotency::{Put, ResponseStore as _, SqlResponses, StoredResponse};
use sqlx::{Connection as _, PgConnection};

use super::support::{DAY, key, response};

const TIME: Duration = Duration::from_secs(4);

#[tokio::test]
async fn a_response_is_stored_while_all_lookups_are_stuck() {
    let (store, _stuck) = stuck().await;
    let stuck = key("stuck");
    let looks = futures_util::future::join_all((0..20).map(|_| store.get(&stuck)));
    let puts = async {
        for name in ["1", "2", "3"] {
            at_once(put(&store, name)).await;
        }
    };
    tokio::select! {
        biased;
        _ = looks => panic!("the lookups were not stuck"),
        () = puts => {}
    }
}

#[tokio::test]
async fn a_request_that_gives_up_leaves_no_waiting_connection() {
    let (store, _stuck) = stuck().await;
    let stuck = key("stuck");
    for _ in 0..6 {
        let look = tokio::time::timeout(TIME / 8, store.get(&stuck)).await;
        assert!(look.is_err(), "the lookup was not stuck");
    }
    let other = key("other");
    let look = at_once(store.get(&other)).await;
    assert_eq!(look.expect("it works"), None);
}

/// As if the conflicting row had expired and been purged before the lookup.
#[tokio::test]
async fn what_is_not_there_refuses_nothing() {
    let (store, mut admin) = new().await;
    let ignored = "CREATE SEQUENCE inserted;
        CREATE FUNCTION ignored() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RETURN CASE WHEN nextval(''inserted'') > 2 THEN NEW END; END';
        CREATE TRIGGER ignored BEFORE INSERT ON polylock_responses FOR EACH ROW
        EXECUTE FUNCTION ignored()";
    run(&mut admin, ignored).await;
    put(&store, "a").await;
    let downwards = "ALTER SEQUENCE inserted RESTART INCREMENT -1 MINVALUE -100 START -1";
    run(&mut admin, downwards).await;
    let put = store.put(&key("b"), &paid(), None, DAY).await;
    assert!(put.is_err(), "{put:?}");
}

#[tokio::test]
async fn no_caller_waits_for_a_purge() {
    let (store, mut admin) = new().await;
    let waits = "CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN OLD; END';
        CREATE TRIGGER waits BEFORE DELETE ON polylock_responses FOR EACH ROW
        EXECUTE FUNCTION waits();
        SELECT pg_advisory_lock(1)";
    run(&mut admin, waits).await;
    let (over, response) = (key("over"), paid());
    let over = store.put(&over, &response, None, Duration::ZERO);
    assert_eq!(at_once(over).await.expect("it works"), Put::Stored);
    for number in 0..100 {
        at_once(put(&store, &number.to_string())).await;
    }
}

/// A store in which lookups of one key wait, as long as the connection lives.
async fn stuck() -> (SqlResponses, PgConnection) {
    let (store, mut admin) = new().await;
    put(&store, "stuck").await;
    let waits = "ALTER TABLE polylock_responses RENAME TO behind;
        CREATE FUNCTION waits() RETURNS boolean LANGUAGE plpgsql COST 100000 AS
        'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN true; END';
        CREATE VIEW polylock_responses AS SELECT * FROM behind WHERE
        response_key <> 'stuck' OR waits();
        SELECT pg_advisory_lock(1)";
    run(&mut admin, waits).await;
    (store, admin)
}

async fn new() -> (SqlResponses, PgConnection) {
    let url = PostgresServer::shared().database();
    let store = SqlResponses::connect(&url).await.expect("it runs");
    let admin = PgConnection::connect(&url).await.expect("it runs");
    (store, admin)
}

async fn run(admin: &mut PgConnection, sql: &'static str) {
    let done = sqlx::raw_sql(sql).execute(admin).await;
    done.expect("it is right");
}

/// Asserts that a future does not wait for the stuck lookups.
async fn at_once<T>(asked: impl Future<Output = T>) -> T {
    let answered = tokio::time::timeout(TIME, asked).await;
    answered.expect("it does not wait")
}

async fn put(store: &SqlResponses, name: &str) {
    let put = store.put(&key(name), &paid(), None, DAY).await;
    assert_eq!(put.expect("it works"), Put::Stored);
}

fn paid() -> StoredResponse {
    response(1, None)
}
