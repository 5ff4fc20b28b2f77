//! Names are bytes, and tables are where they are said to be.

use polylock_core::{ErrorKind, LockKey};
use polylock_sql::transaction::TransactionLocks;

use crate::transaction::on_each_server;
use crate::transaction::servers::{Server, begin, locks, run};

on_each_server! {
    names_that_differ_are_locks_that_differ
    a_namespace_stands_before_the_key
    a_table_may_have_another_name_and_schema
}

async fn names_that_differ_are_locks_that_differ<S: Server>(server: S) {
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    if S::NAME == "postgres" {
        run(&mut one, "SET standard_conforming_strings = off").await;
    }
    let (long, longer) = ("x".repeat(255), "x".repeat(256));
    let names = [
        "Job", "job", "é", "e", "e\u{301}", "job ", " job", "'; --", "\\", &long, &longer,
    ];
    let mut one = begin::<S>(&mut one).await;
    for name in names {
        // Each is free although those before it are held.
        let mut tx = begin::<S>(&mut two).await;
        let taken = locks().try_acquire_in(&mut *tx, name).await.unwrap();
        assert!(taken.is_some(), "{name:?}");
        tx.rollback().await.unwrap();
        let taken = locks().try_acquire_in(&mut *one, name).await.unwrap();
        assert!(taken.is_some(), "{name:?}");
        let mut tx = begin::<S>(&mut two).await;
        let taken = locks().try_acquire_in(&mut *tx, name).await.unwrap();
        assert!(taken.is_none(), "{name:?}");
        tx.rollback().await.unwrap();
    }
    one.commit().await.unwrap();
    let rows = server.sql("SELECT count(*) FROM polylock_locks WHERE kind = 2");
    assert_eq!(rows, [[names.len().to_string()]]);
    let mut tx = begin::<S>(&mut two).await;
    let refused = locks().acquire_in(&mut *tx, "x".repeat(257)).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidKey);
}

async fn a_namespace_stands_before_the_key<S: Server>(server: S) {
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    let (mut one, mut two) = (begin::<S>(&mut one).await, begin::<S>(&mut two).await);
    let shop = TransactionLocks::new().with_namespace("shop").unwrap();
    let lock = shop.acquire_in(&mut *one, "k").await.unwrap();
    assert_eq!(lock.key().as_str(), "k");
    let taken = locks().try_acquire_in(&mut *two, "k").await.unwrap();
    assert!(taken.is_some());
    let same = LockKey::new("shop:k").unwrap();
    assert_eq!(locks().try_acquire_in(&mut *two, same).await.unwrap(), None);
    let error = TransactionLocks::new().with_namespace("a:b").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
}

async fn a_table_may_have_another_name_and_schema<S: Server>(server: S) {
    let mut raw = server.connect().await;
    let (schema, rename) = match S::NAME {
        "postgres" => (
            "Else_where".to_owned(),
            "ALTER TABLE polylock_locks RENAME TO \"Order\"",
        ),
        _ => (
            server.sql("SELECT DATABASE()")[0][0].clone(),
            "ALTER TABLE polylock_locks RENAME TO `Order`",
        ),
    };
    run(&mut raw, rename).await;
    let of_tokens = rename.replace("locks RENAME", "locks_token RENAME");
    let of_tokens = of_tokens.replace("Order", "Order_token");
    run(&mut raw, of_tokens.leak()).await;
    if S::NAME == "postgres" {
        run(&mut raw, "CREATE SCHEMA \"Else_where\"").await;
        run(&mut raw, "ALTER TABLE \"Order\" SET SCHEMA \"Else_where\"").await;
    }
    let locks = TransactionLocks::new().with_table("Order").unwrap();
    let locks = locks.with_schema(&schema).unwrap();
    let mut tx = begin::<S>(&mut raw).await;
    locks.acquire_in(&mut *tx, "k").await.unwrap();
}
