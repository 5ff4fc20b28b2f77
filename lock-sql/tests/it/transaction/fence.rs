//! Writes with tokens of another lock service.

use std::time::Duration;

use polylock_core::fencing::StaleToken;
use polylock_core::{ErrorKind, FencingToken};
use polylock_sql::transaction::{Fence, WriteError};
use sqlx::raw_sql;

use crate::transaction::on_each_server;
use crate::transaction::servers::{Home, Server, begin, locks, pass, refused, run};

on_each_server! {
    a_stale_token_writes_nothing
    a_check_outside_of_a_transaction_is_refused;
    a_check_that_is_contended_leaves_the_transaction_as_it_is
    an_older_write_that_commits_later_is_before_or_refused
    locks_and_fences_of_one_name_do_not_meet
}

const SET: &str = "UPDATE counter SET n = n + 1";

fn stale(error: WriteError) -> StaleToken {
    match error {
        WriteError::Stale(stale) => stale,
        other => panic!("{other:?}"),
    }
}

async fn a_stale_token_writes_nothing<S: Home>(server: S) {
    let (fence, mut raw) = (Fence::new(), server.connect().await);
    let [old, new] = [7, 9].map(FencingToken::new);
    for token in [old, old, new, new] {
        let mut tx = begin::<S>(&mut raw).await;
        let rows = fence
            .write_if_newer(&mut *tx, "orders/42", token, raw_sql(SET))
            .await;
        assert_eq!(rows.unwrap(), 1);
        tx.commit().await.unwrap();
    }
    let mut tx = begin::<S>(&mut raw).await;
    let error = fence
        .write_if_newer(&mut *tx, "orders/42", old, raw_sql(SET))
        .await;
    let stale = stale(error.unwrap_err());
    assert_eq!((stale.resource.as_str(), stale.token), ("orders/42", old));
    assert_eq!(stale.newest, Some(new));
    // The transaction goes on, and another resource is another one.
    let rows = fence
        .write_if_newer(&mut *tx, "orders/43", old, raw_sql(SET))
        .await;
    assert_eq!(rows.unwrap(), 1);
    tx.commit().await.unwrap();
    assert_eq!(
        S::read(&mut raw, "SELECT CONCAT(n) FROM counter").await,
        "5"
    );
    let mut tx = begin::<S>(&mut raw).await;
    let wrong = raw_sql("UPDATE nowhere SET n = 1");
    let error = fence
        .write_if_newer(&mut *tx, "orders/42", new, wrong)
        .await;
    assert!(matches!(error, Err(WriteError::Sql(_))), "{error:?}");
}

async fn a_check_outside_of_a_transaction_is_refused<S: Home>(server: S) {
    let mut raw = server.connect().await;
    let fence = Fence::new();
    let error = refused(fence.check(&mut raw, "r", FencingToken::new(1)).await);
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
}

async fn a_check_that_is_contended_leaves_the_transaction_as_it_is<S: Server>(server: S) {
    let (fence, mut one, mut two) = (Fence::new(), server.connect().await, server.connect().await);
    let limit = match S::NAME {
        "postgres" => "SET lock_timeout = '50ms'",
        _ => "SET SESSION innodb_lock_wait_timeout = 1",
    };
    run(&mut two, limit).await;
    let mut first = begin::<S>(&mut one).await;
    let token = FencingToken::new(1);
    fence.check(&mut *first, "r", token).await.unwrap();
    let mut second = begin::<S>(&mut two).await;
    locks().acquire_in(&mut *second, "k").await.unwrap();
    run(&mut *second, SET).await;
    let error = refused(fence.check(&mut *second, "r", token).await);
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    // It still has its lock and its write.
    let taken = locks().try_acquire_in(&mut *first, "k").await.unwrap();
    assert_eq!(taken, None);
    second.commit().await.unwrap();
    first.rollback().await.unwrap();
    assert_eq!(server.sql("SELECT CONCAT(n) FROM counter"), [["1"]]);
}

async fn an_older_write_that_commits_later_is_before_or_refused<S: Server>(server: S) {
    let (fence, mut one, mut two) = (Fence::new(), server.connect().await, server.connect().await);
    let [old, new] = [7, 9].map(FencingToken::new);
    // The older one is first, and the newer one waits for its end.
    let mut first = begin::<S>(&mut one).await;
    fence.check(&mut *first, "r", old).await.unwrap();
    let mut second = begin::<S>(&mut two).await;
    let (passed, ()) = tokio::join!(fence.check(&mut *second, "r", new), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        first.commit().await.unwrap();
    });
    passed.unwrap();
    // The newer one is first, and the older one finds that when it is committed.
    let mut third = begin::<S>(&mut one).await;
    let (passed, ()) = tokio::join!(fence.check(&mut *third, "r", old), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        second.commit().await.unwrap();
    });
    assert_eq!(stale(passed.unwrap_err()).newest, Some(new));
    drop(third);
    // A rollback undoes the accepted token.
    let mut fourth = begin::<S>(&mut one).await;
    pass(&mut *fourth, "r", FencingToken::new(20)).await;
    fourth.rollback().await.unwrap();
    let mut fifth = begin::<S>(&mut one).await;
    fence.check(&mut *fifth, "r", new).await.unwrap();
}

async fn locks_and_fences_of_one_name_do_not_meet<S: Server>(server: S) {
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    let (mut one, mut two) = (begin::<S>(&mut one).await, begin::<S>(&mut two).await);
    let lock = locks().acquire_in(&mut *one, "k").await.unwrap();
    pass(&mut *two, "k", FencingToken::new(1)).await;
    two.rollback().await.unwrap();
    pass(&mut *one, "k", lock.fencing_token()).await;
}
