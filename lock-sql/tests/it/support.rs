//! What the tests of this crate share.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

use std::path::PathBuf;

use lock_testkit::servers::data_dir;
use polylock_sql::Sqlite;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _};
use tempfile::TempDir;

/// A directory of its own for a database that is not there yet.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) directory: TempDir,
}

impl Place {
    /// In memory if there is enough of it: a disk that other tests keep busy stalls for longer than a
    /// short lease has.
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir_in(data_dir()).unwrap(),
        }
    }

    pub(crate) fn on_disk() -> Self {
        Self {
            directory: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.file("locks.db")
    }

    /// A client as of another process.
    pub(crate) async fn open(&self) -> Sqlite {
        Sqlite::open(self.database()).await.unwrap()
    }

    /// A connection past the library.
    pub(crate) async fn sql(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.database());
        options.connect().await.unwrap()
    }

    /// Runs a statement past the library.
    pub(crate) async fn run(&self, sql: &str) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql));
        sql.execute(&mut self.sql().await).await.unwrap();
    }

    /// One number that a statement reads.
    pub(crate) async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql)
            .fetch_one(&mut self.sql().await)
            .await
            .unwrap()
    }
}

/// A program of `tests/programs`, which cargo builds with the tests.
pub(crate) fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().with_file_name("examples").join(name);
    assert!(
        program.exists(),
        "build it by cargo build -p polylock-sql --all-features --examples"
    );
    program
}
