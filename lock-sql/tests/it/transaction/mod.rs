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

/// Runs each claim on each server.
macro_rules! on_each_server {
    ($($claim:ident)*) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $claim() {
                let server = <crate::transaction::servers::Postgres as crate::transaction::servers::Server>::start();
                super::$claim(server.await).await;
            })*
        }

        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $claim() {
                let server = <crate::transaction::servers::MariaDb as crate::transaction::servers::Server>::start();
                super::$claim(server.await).await;
            })*
        }
    };
}

use on_each_server;
