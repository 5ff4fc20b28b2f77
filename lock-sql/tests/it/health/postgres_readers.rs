//! Readers of the log of PostgreSQL: standbys, and others that are no target of a failover.

use std::process::{Child, Command, Stdio};

use lock_testkit::locks::until;
use lock_testkit::servers::{PostgresOptions, PostgresServer, PostgresStandby};
use polylock_core::Fencing;
use polylock_core::prelude::*;
use polylock_sql::SqlLock;
use tempfile::TempDir;

use crate::health::support::{assert_only, check_health, faults};

fn server() -> PostgresServer {
    let options = PostgresOptions::new().with_durability(true);
    PostgresServer::start(options.with_config("wal_level", "logical"))
}

/// Those of a role that may read little, and of one that may read all.
fn urls(server: &PostgresServer) -> [String; 2] {
    [server.url(), server.admin_url()]
}

/// Whether the server reports so, and accepts a configuration with the strongest tokens and no risk.
async fn assert_fit(server: &PostgresServer, says: &str) {
    for url in urls(server) {
        let url = format!("{url}?strict=on");
        let found = check_health(&url).await;
        let found = found.iter().find(|found| found.id == "replication");
        let said = found.expect("it is looked at").to_string();
        assert_eq!(said, says, "{url}");
        let locks = SqlLock::open(&url).await.expect("it is fit for locks");
        assert_eq!(locks.capabilities().fencing, Fencing::Strong, "{url}");
    }
}

/// Whether the server reports so as its only fault, and its tokens are not the strongest.
async fn assert_unfit(server: &PostgresServer, says: &str) {
    for url in urls(server) {
        assert_only(&faults(&url).await, "replication", says);
        let locks = SqlLock::open(&url).await.expect("it starts");
        assert_eq!(locks.capabilities().fencing, Fencing::BestEffort, "{url}");
    }
}

/// How many readers are in this state.
fn readers(server: &PostgresServer, state: &str) -> usize {
    let rows = "SELECT pid FROM pg_stat_replication WHERE state";
    server.sql(&format!("{rows} = '{state}'")).len()
}

/// Has the server wait for these standbys, until so many are in that state.
async fn wait_for(server: &PostgresServer, names: &str, (state, count): (&str, usize)) {
    server.sql(&format!(
        "ALTER SYSTEM SET synchronous_standby_names = '{names}'"
    ));
    server.sql("SELECT pg_reload_conf()");
    let waited_for = format!("SELECT pid FROM pg_stat_replication WHERE sync_state = '{state}'");
    until(names, async || {
        let is_set = server.sql("SHOW synchronous_standby_names") == [[names]];
        is_set && server.sql(&waited_for).len() == count
    })
    .await;
}

/// Has a database of the server subscribe to what it publishes itself.
async fn subscribe(server: &PostgresServer) {
    let (socket, port) = (server.dir().display(), server.port());
    server.sql(&format!(
        "CREATE PUBLICATION news;
        SELECT pg_create_logical_replication_slot('reader', 'pgoutput');
        CREATE SUBSCRIPTION reader CONNECTION 'host={socket} port={port} dbname=test user=postgres'
            PUBLICATION news WITH (create_slot = false)"
    ));
    until("it reads", async || readers(server, "streaming") == 1).await;
}

#[tokio::test]
async fn a_backup_is_no_standby() {
    let server = server();
    let backup = Backup::of(&server);
    let runs = || [readers(&server, "backup"), readers(&server, "streaming")] == [1, 1];
    until("it runs", async || runs()).await;
    assert_fit(&server, "the server has no standbys").await;
    assert!(runs(), "it has ended");
    drop(backup);
}

#[tokio::test]
async fn a_subscriber_is_no_standby_and_a_standby_beside_it_is_one() {
    let server = server();
    subscribe(&server).await;
    assert_fit(&server, "the server has no standbys").await;
    let _standby = PostgresStandby::of(&server);
    until("it follows", async || readers(&server, "streaming") == 2).await;
    assert_unfit(&server, "does not wait for them").await;
    wait_for(&server, "walreceiver", ("sync", 1)).await;
    assert_fit(&server, "the server has 1 standby and waits for it").await;
}

#[tokio::test]
async fn standbys_beyond_the_number_waited_for_are_found() {
    let server = server();
    let _standbys = [(); 2].map(|()| PostgresStandby::of(&server));
    until("they follow", async || readers(&server, "streaming") == 2).await;
    wait_for(&server, "ANY 1 (walreceiver)", ("quorum", 2)).await;
    assert_unfit(&server, "1 of its 2 standbys").await;
    wait_for(&server, "ANY 2 (walreceiver)", ("quorum", 2)).await;
    assert_fit(&server, "the server waits for its 2 standbys").await;
}

/// A backup that takes many minutes, and its log beside it; ends when it is dropped.
struct Backup {
    process: Child,
    _dir: TempDir,
}

impl Backup {
    fn of(server: &PostgresServer) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let place = server.sql("SELECT setting FROM pg_config WHERE name = 'BINDIR'");
        let mut command = Command::new(format!("{}/pg_basebackup", place[0][0]));
        command
            .args(["-c", "fast", "-X", "stream", "--max-rate", "32k"])
            .args(["--no-sync", "-w", "-U", "postgres"])
            .args(["-p", &server.port().to_string()])
            .args(["-h".as_ref(), server.dir().as_os_str()])
            .args(["-D".as_ref(), dir.path().join("copy").as_os_str()])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        let process = command.spawn().expect("it starts");
        Self { process, _dir: dir }
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
