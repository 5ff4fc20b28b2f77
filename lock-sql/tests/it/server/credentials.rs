//! Passwords that change while locks are held.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use lock_testkit::locks::renewed_after;
use lock_testkit::servers::{
    DatabaseServer, MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer,
};
use polylock_core::{DistributedLock, DistributedLockExt as _, Error, ErrorKind, LockUrl};
use polylock_sql::SqlLock;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::server::support::until;

/// Long enough for logins that are not optimized, of many tests at a time.
const TTL: Duration = Duration::from_secs(10);

/// A server with one user of locks, whose password is in a file.
struct Scene<'a> {
    server: &'a DatabaseServer,
    folder: TempDir,
    rotate: &'static str,
    disconnect: &'static str,
}

impl<'a> Scene<'a> {
    fn postgres(server: &'a DatabaseServer) -> Self {
        server.sql("CREATE USER locker PASSWORD 'first'");
        server.sql("GRANT ALL ON SCHEMA public TO locker");
        let disconnect = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                          WHERE usename = 'locker'";
        Self {
            server,
            folder: tempfile::tempdir().expect("a directory"),
            rotate: "ALTER USER locker PASSWORD",
            disconnect,
        }
    }

    fn mariadb(server: &'a DatabaseServer) -> Self {
        server.sql("CREATE USER locker@'%' IDENTIFIED BY 'first'");
        server.sql("GRANT ALL ON *.* TO locker@'%'");
        Self {
            server,
            folder: tempfile::tempdir().expect("a directory"),
            rotate: "ALTER USER locker@'%' IDENTIFIED BY",
            disconnect: "KILL USER locker",
        }
    }

    fn file(&self) -> String {
        self.folder.path().join("password").display().to_string()
    }

    fn write(&self, password: &str) {
        let new = self.folder.path().join("new");
        fs::write(&new, format!("{password}\n")).expect("it is written");
        fs::rename(new, self.file()).expect("it takes its place");
    }

    /// The server and the file have a new password, and the client loses its connections.
    fn rotate(&self, password: &str) {
        self.server.sql(&format!("{} '{password}'", self.rotate));
        self.write(password);
        self.disconnect();
    }

    fn disconnect(&self) {
        // MariaDB answers with an error if there is none.
        drop(self.server.try_sql(self.disconnect));
    }

    async fn open(&self) -> Arc<dyn DistributedLock> {
        self.write("first");
        let url = LockUrl::parse(&self.server.url()).expect("a URL");
        let (scheme, host, path) = (url.scheme(), &url.hosts()[0], url.path());
        let (name, port, file) = (&host.name, host.port_or(0), self.file());
        let url = format!("{scheme}://locker@{name}:{port}{path}?mode=lease&password-file={file}");
        let opened = SqlLock::open(&url).await;
        Arc::new(opened.expect("the password is right"))
    }

    /// The first error of attempts that is neither a broken connection nor a success, whose release
    /// may have to wait for a connection.
    async fn refused(&self, locks: &Arc<dyn DistributedLock>, kind: ErrorKind) -> Error {
        for _ in 0..50 {
            match locks.try_lock("probe").await {
                Err(error) if error.kind() == kind && !error.is_outcome_unknown() => return error,
                _ => self.disconnect(),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no attempt was refused with {kind:?}");
    }

    async fn test(&self) {
        let locks = self.open().await;
        let request = locks.request("held").ttl(TTL);
        let guard = request.acquire().await.expect("it is free");
        for password in ["second", "third"] {
            self.rotate(password);
            renewed_after(&guard, Instant::now(), TTL).await;
            until("acquisitions log in anew", async || {
                locks.try_lock("other").await.is_ok_and(|it| it.is_some())
            })
            .await;
        }
        guard.release().await.expect("it is held");

        self.write("wr0ng");
        let error = self.refused(&locks, ErrorKind::Denied).await;
        assert!(!format!("{error:?}").contains("wr0ng"), "{error:?}");
        fs::remove_file(self.file()).expect("it was there");
        let error = self.refused(&locks, ErrorKind::Unavailable).await;
        let text = format!("{error:?}");
        assert!(text.contains("the password file"), "{text}");
        self.write("third");
        until("the password is right again", async || {
            locks.try_lock("again").await.is_ok_and(|it| it.is_some())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_of_postgres_is_rotated_under_a_held_lock() {
    let server = PostgresServer::start(PostgresOptions::new());
    Scene::postgres(&server).test().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_of_mariadb_is_rotated_under_a_held_lock() {
    let server = MariaDbServer::start(MariaDbOptions::new());
    Scene::mariadb(&server).test().await;
}
