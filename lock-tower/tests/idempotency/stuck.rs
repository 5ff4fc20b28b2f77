//! Databases that answer some statements and not others.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use lock_core::LockKey;
use lock_testkit::servers::PostgresServer;
use lock_tower::idempotency::{
    Fingerprint, Put, ResponseStore as _, SqlDialect, SqlResponses, StoredResponse,
};
use sqlx::{Connection as _, PgConnection};

const TIME: Duration = Duration::from_secs(4);

#[tokio::test]
async fn a_response_is_stored_while_all_who_look_are_stuck() {
    let (store, _stuck) = stuck().await;
    let stuck = key("stuck");
    let looks = futures_util::future::join_all((0..20).map(|_| store.get(&stuck)));
    let puts = async {
        for name in ["1", "2", "3"] {
            let put = tokio::time::timeout(TIME, put(&store, name));
            put.await.expect("it does not wait");
        }
    };
    tokio::select! {
        biased;
        _ = looks => panic!("nobody was stuck"),
        () = puts => {}
    }
}

#[tokio::test]
async fn who_gives_up_leaves_no_connection_behind_that_waits() {
    let (store, _stuck) = stuck().await;
    let stuck = key("stuck");
    for _ in 0..6 {
        let look = tokio::time::timeout(TIME / 8, store.get(&stuck)).await;
        assert!(look.is_err(), "nobody was stuck");
    }
    let other = key("other");
    let look = tokio::time::timeout(TIME, store.get(&other)).await;
    assert_eq!(look.expect("it does not wait").expect("it works"), None);
}

/// A store in which who looks for one key waits, as long as the connection lives.
async fn stuck() -> (SqlResponses, PgConnection) {
    let url = PostgresServer::shared().database();
    let mut admin = PgConnection::connect(&url).await.expect("it runs");
    let table = SqlResponses::create_table_sql(SqlDialect::Postgres, "behind");
    let sql = table.expect("a name")
        + "; CREATE FUNCTION wait() RETURNS boolean LANGUAGE plpgsql COST 100000 AS
           'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN true; END';
           CREATE VIEW polylock_responses AS SELECT * FROM behind WHERE
           response_key <> 'stuck' OR wait();
           SELECT pg_advisory_lock(1)";
    let made = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut admin);
    made.await.expect("it is right");
    let store = SqlResponses::connect(&url).await.expect("it runs");
    put(&store, "stuck").await;
    (store, admin)
}

async fn put(store: &SqlResponses, name: &str) {
    let response = Response::new(Some(Bytes::from_static(b"paid")));
    let response = StoredResponse::new(Fingerprint::from_bytes([0; 32]), &response);
    let day = Duration::from_secs(24 * 60 * 60);
    let put = store.put(&key(name), &response, None, day).await;
    assert_eq!(put.expect("it works"), Put::Stored);
}

fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("it is right")
}
