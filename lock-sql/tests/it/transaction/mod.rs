//! Locks inside of the caller's transaction, on real databases.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

mod cancellation;
mod contention;
mod errors;
mod fence;
mod names;
mod servers;
mod sqlite;
mod tokens;

/// Runs each claim on each server; those before a semicolon in a file of SQLite, too.
macro_rules! on_each_server {
    ($($everywhere:ident)*; $($claim:ident)*) => {
        crate::transaction::on!(mod sqlite, Sqlite: $($everywhere)*);
        crate::transaction::on_each_server!($($everywhere)* $($claim)*);
    };
    ($($claim:ident)*) => {
        crate::transaction::on!(mod postgres, Postgres: $($claim)*);
        crate::transaction::on!(mod mariadb, MariaDb: $($claim)*);
    };
}

macro_rules! on {
    (mod $module:ident, $server:ident: $($claim:ident)*) => {
        mod $module {
            use crate::transaction::servers::{Home as _, $server};

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $claim() {
                super::$claim($server::start().await).await;
            })*
        }
    };
}

use {on, on_each_server};
