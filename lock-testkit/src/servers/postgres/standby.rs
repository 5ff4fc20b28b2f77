use std::ops::Deref;

use super::PostgresServer;
use super::launch::Primary;
use crate::servers::cluster::wait;
use crate::servers::port::free_port;
use crate::servers::server_process::started;

/// A standby that follows another server by asynchronous streaming, and is a server of its own: it
/// can be stopped, killed and [restarted](crate::servers::ServerProcess::restart). It takes reads until it is
/// [promoted](Self::promote).
#[derive(Debug)]
pub struct PostgresStandby(PostgresServer);

impl PostgresStandby {
    /// Copies the data of this server, starts the standby with the same options and waits until it
    /// takes connections: 0.5 to 1 s. The server does not wait for it at commit.
    ///
    /// # Panics
    ///
    /// As [`PostgresServer::start`], and if the server does not run.
    #[must_use]
    pub fn of(primary: &PostgresServer) -> Self {
        let mut options = primary.options().clone();
        options.primary = Some(Primary {
            dir: primary.dir().to_owned(),
            port: primary.port(),
        });
        let server = started("a standby", || {
            PostgresServer::start_at(free_port()?, options.clone())
        });
        Self(server)
    }

    /// Makes it a server that takes writes, and waits until it does. It has what it has received.
    ///
    /// # Panics
    ///
    /// If it does not answer, or takes more than 60 s.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote(true, 60)"), [["t"]]);
    }

    /// Cuts it off from the other server for good: what is committed there from here on is missing
    /// when it is promoted.
    ///
    /// # Panics
    ///
    /// If it does not answer, or does not obey within 10 s.
    pub fn detach(&self) {
        self.sql("ALTER SYSTEM SET primary_conninfo = ''; SELECT pg_reload_conf()");
        self.wait_for("SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)");
    }

    /// Waits until readers see here what is committed on the other server at the time of the call.
    ///
    /// # Panics
    ///
    /// If one of them does not answer, or it takes more than 10 s.
    pub fn catch_up(&self, primary: &PostgresServer) {
        let rows = primary.sql(FLUSH);
        let position = rows.last().expect("BUG: it asks for a position")[0].clone();
        self.wait_for(&format!(
            "SELECT pg_last_wal_replay_lsn() >= '{position}'::pg_lsn"
        ));
    }

    fn wait_for(&self, condition: &str) {
        wait(condition, || self.sql(condition) == [["t"]]);
    }
}

impl Deref for PostgresStandby {
    type Target = PostgresServer;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// What is committed is sent once it is flushed, which a commit without `synchronous_commit` does not
/// wait for. Where the next record goes would be past the header of a page that is not sent yet.
const FLUSH: &str = "SET synchronous_commit = local;
    SELECT pg_logical_emit_message(true, '', '');
    SELECT pg_current_wal_flush_lsn()";
