//! Servers that refuse: an error, and never a lock or contention.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_testkit::servers::{
    MariaDbOptions, MariaDbServer, PgBouncer, PoolMode, PostgresOptions, PostgresServer,
    PostgresStandby,
};
use polylock_core::{DistributedLock, Error, ErrorKind, Wait};
use polylock_sql::SqlLock;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::server::support::{
    Forwarder, Mode, ReplyChanger, Site, assert_free, connect, ms, request, take_and_release, until,
};

const MODES: [Mode; 3] = [Mode::Row, Mode::Advisory, Mode::Lease];

/// A client that knew a primary meets a standby: its sessions end, and none is opened.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_in_the_place_of_the_primary_is_unavailable() {
    let primary = Arc::new(PostgresServer::start(PostgresOptions::new()));
    let forwarder = Forwarder::start(primary.port()).await;
    let mut clients = Vec::new();
    for mode in MODES {
        let site = Site::postgres(&primary, mode);
        let locks = site.open_at(forwarder.port()).await;
        take_and_release(&locks, "job").await;
        clients.push((mode, locks));
    }
    let standby = PostgresStandby::of(&primary);
    forwarder.lead_to(standby.port());
    for (mode, locks) in &clients {
        // An attempt may meet a connection of the pool whose end is not yet noticed, and cannot know
        // what became of its statement.
        until("the client has new connections only", async || {
            let error = attempt(locks, "job").await;
            let error = error.expect_err("it takes no writes");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{mode:?}: {error:?}");
            !error.is_outcome_unknown()
        })
        .await;
        assert_unavailable(*mode, attempt(locks, "job").await);
    }
    forwarder.lead_to(primary.port());
    for (_, locks) in &clients {
        take_and_release(locks, "job").await;
    }
}

/// A pooler goes on with a standby under a session that is open.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_behind_a_pooler_is_unavailable() {
    let primary = Arc::new(PostgresServer::start(PostgresOptions::new()));
    let standby = PostgresStandby::of(&primary);
    let pooler = PgBouncer::before(&primary, PoolMode::Transaction);
    for mode in [Mode::Row, Mode::Lease] {
        let site = Site::postgres(&primary, mode).with("pooler=transaction");
        let locks = site.open_at(pooler.port()).await;
        take_and_release(&locks, "job").await;
        lead(&pooler, primary.port(), standby.port()).await;
        assert_unavailable(mode, attempt(&locks, "job").await);
        lead(&pooler, standby.port(), primary.port()).await;
        take_and_release(&locks, "job").await;
    }
}

fn assert_unavailable(mode: Mode, attempt: Result<(), Error>) {
    let error = attempt.expect_err("a standby takes no writes");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{mode:?}: {error:?}");
    assert!(!error.is_outcome_unknown(), "{mode:?}: {error:?}");
}

/// Makes a pooler connect to another server. `RELOAD` closes its connections to the first one as
/// well; `RECONNECT` after it could cut off a login, and the pooler would pause for 15 s.
async fn lead(pooler: &PgBouncer, from: u16, to: u16) {
    let file = pooler.dir().join("pgbouncer.ini");
    let config = std::fs::read_to_string(&file).expect("it is there");
    let (from, to) = (format!("port={from}"), format!("port={to}"));
    assert!(config.contains(&from), "no {from} in {config}");
    std::fs::write(&file, config.replace(&from, &to)).expect("it is written");
    let options: PgConnectOptions = pooler.admin_url().parse().expect("a URL");
    let options = options.extra_float_digits(None);
    let mut admin = options.connect().await.expect("it has a console");
    let reloaded = sqlx::raw_sql("RELOAD").execute(&mut admin).await;
    reloaded.expect("it obeys");
}

/// A server that has become read-only grants no lock, and grants them again later.
#[tokio::test(flavor = "multi_thread")]
async fn a_mariadb_that_only_reads_is_no_contention() {
    let server = Arc::new(MariaDbServer::start(MariaDbOptions::new()));
    for mode in MODES {
        let site = Site::mariadb(&server, mode);
        let locks = site.open().await;
        take_and_release(&locks, "old").await;
        site.sql("SET GLOBAL read_only = 1").await;
        // A key that was never locked needs a write in any mode.
        let error = attempt(&locks, "new").await;
        let error = error.expect_err("it takes no writes");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{mode:?}: {error}");
        site.sql("SET GLOBAL read_only = 0").await;
        assert_free(&site, "new").await;
        take_and_release(&locks, "new").await;
    }
}

async fn attempt(locks: &SqlLock, name: &str) -> Result<(), Error> {
    let one = request(name).with_wait(Wait::Never);
    locks.acquire(&one).await.map(drop)
}

/// A server without free connections is unavailable, reported in time; with free ones it grants locks.
async fn a_full_server_is_unavailable<C: Connection>(sites: [Site; 2]) {
    let (mut others, mut refusals) = (Vec::new(), 0);
    // The connection that found the server to be ready may still be closing, which frees a place.
    while refusals < 10 {
        match C::connect(&sites[0].plain_url()).await {
            Ok(other) => {
                others.push(other);
                refusals = 0;
            }
            Err(_) => {
                refusals += 1;
                tokio::time::sleep(ms(50)).await;
            }
        }
    }
    assert!(others.len() > 2);
    let mut clients = Vec::new();
    for site in sites {
        let url = site.url();
        let error = SqlLock::open(&url).await.expect_err("there is no room");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.is_retryable(), "{error:?}");
        clients.push(tokio::spawn(async move {
            loop {
                match SqlLock::open(&url).await {
                    Ok(locks) => break locks,
                    Err(_) => tokio::time::sleep(ms(20)).await,
                }
            }
        }));
    }
    let began = Instant::now();
    drop(others);
    for client in clients {
        take_and_release(&client.await.expect("no panic"), "job").await;
    }
    let waited = began.elapsed();
    assert!(
        waited < Duration::from_secs(10),
        "all connected after {waited:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_postgres_is_unavailable() {
    let options = PostgresOptions::new().with_config("max_connections", "20");
    let server = Arc::new(PostgresServer::start(options));
    let sites = [Mode::Row, Mode::Lease].map(|mode| Site::postgres(&server, mode));
    a_full_server_is_unavailable::<sqlx::PgConnection>(sites).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_mariadb_is_unavailable() {
    // The smallest number that there is.
    let options = MariaDbOptions::new().with_config("max_connections", "10");
    let server = Arc::new(MariaDbServer::start(options));
    let sites = [Mode::Row, Mode::Lease].map(|mode| Site::mariadb(&server, mode));
    a_full_server_is_unavailable::<sqlx::MySqlConnection>(sites).await;
}

/// A database that is closed for a while opens again.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_takes_no_connections_is_unavailable() {
    let server = Arc::new(PostgresServer::start(PostgresOptions::new()));
    let site = Site::postgres(&server, Mode::Row);
    // Its own connection is to that database, where the command is refused.
    site.sql("UPDATE pg_database SET datallowconn = false WHERE datname = 'test'")
        .await;
    let error = SqlLock::open(&site.url()).await.expect_err("it is closed");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.message().contains("ALLOW_CONNECTIONS"), "{error}");
}

/// An entry for connections with TLS may be missing as well.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_without_an_entry_is_told_so() {
    let server = Arc::new(PostgresServer::start(PostgresOptions::new()));
    let site = Site::postgres(&server, Mode::Row);
    let hba = site.sql("SHOW hba_file").await.concat().concat();
    std::fs::write(hba, "local all all trust\n").expect("it is written");
    site.sql("SELECT pg_reload_conf()").await;
    until("it refuses the client", async || {
        let opened = SqlLock::open(&site.url()).await;
        opened.is_err_and(|error| {
            assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
            error.message().contains("pg_hba.conf has no entry")
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_and_accounts_of_mariadb_are_told_apart() {
    let server = Arc::new(MariaDbServer::start(MariaDbOptions::new()));
    let site = Site::mariadb(&server, Mode::Lease);
    take_and_release(&site.open().await, "job").await;
    let refusals = [
        (
            "SET GLOBAL max_prepared_stmt_count = 0",
            ErrorKind::Unavailable,
            "max_prepared_stmt_count",
            "SET GLOBAL max_prepared_stmt_count = 16382",
        ),
        (
            "SET GLOBAL init_connect = 'SELECT nothing'",
            ErrorKind::Unavailable,
            "init_connect",
            "SET GLOBAL init_connect = ''",
        ),
        (
            "ALTER USER test@'%' ACCOUNT LOCK",
            ErrorKind::Denied,
            "locked",
            "ALTER USER test@'%' ACCOUNT UNLOCK",
        ),
        (
            "ALTER USER test@'%' PASSWORD EXPIRE",
            ErrorKind::Denied,
            "expired",
            "ALTER USER test@'%' IDENTIFIED BY 'test'",
        ),
    ];
    for (refuse, kind, says, admit) in refusals {
        site.sql(refuse).await;
        let refused = match SqlLock::open(&site.url()).await {
            Ok(locks) => attempt(&locks, "job").await,
            Err(error) => Err(error),
        };
        let error = refused.expect_err("it refuses");
        assert_eq!(error.kind(), kind, "{refuse}: {error:?}");
        assert!(error.message().contains(says), "{refuse}: {error}");
        site.sql(admit).await;
    }
    take_and_release(&site.open().await, "job").await;
}

/// The probe of a load balancer or a port scan is enough.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_the_server_blocks_is_told_so() {
    // MySQL refuses with the same number, but does not count these connections here.
    if MariaDbServer::is_mysql() {
        return;
    }
    let options = MariaDbOptions::new().with_config("skip_name_resolve", "OFF");
    let server = MariaDbServer::start(options.with_config("max_connect_errors", "1"));
    let site = Site::mariadb(&Arc::new(server), Mode::Lease);
    // The server blocks no host that is itself.
    let address = Ipv4Addr::new(127, 0, 0, 5);
    let proxy = ReplyChanger::start_at(address, site.server.port()).await;
    let mut blocked = None;
    until("the server blocks it", async || {
        let mut broken = connect(address, site.server.port()).await;
        let hello = b"\x05\0\0\x01hello";
        broken.write_all(hello).await.expect("it is read");
        let refused = broken.read_to_end(&mut Vec::new()).await;
        refused.expect("it is refused");
        // The server counts it after its reply, and a connection before that begins the count anew.
        tokio::time::sleep(ms(100)).await;
        blocked = SqlLock::open(&site.url_at(proxy.port())).await.err();
        blocked.is_some()
    })
    .await;
    let error = blocked.expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.message().contains("max_connect_errors"), "{error}");
    site.sql("FLUSH HOSTS").await;
    take_and_release(&site.open_at(proxy.port()).await, "job").await;
}

/// MySQL alone has this mode, in which it takes connections of administrators only.
#[tokio::test(flavor = "multi_thread")]
async fn a_mysql_in_offline_mode_is_unavailable() {
    if !MariaDbServer::is_mysql() {
        return;
    }
    let server = Arc::new(MariaDbServer::start(MariaDbOptions::new()));
    for mode in MODES {
        let site = Site::mariadb(&server, mode);
        let locks = site.open().await;
        take_and_release(&locks, "job").await;
        site.sql("SET GLOBAL offline_mode = ON").await;
        until("the connections are ended", async || {
            let error = attempt(&locks, "job").await.expect_err("it refuses");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{mode:?}: {error:?}");
            error.message().contains("offline")
        })
        .await;
        let error = SqlLock::open(&site.url()).await.expect_err("it refuses");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{mode:?}: {error:?}");
        site.sql("SET GLOBAL offline_mode = OFF").await;
        take_and_release(&locks, "job").await;
    }
}

/// The setting is a default for transactions, and does not say that the server is a replica.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_only_read_by_default_keep_no_lock_from_being_taken() {
    let server = Arc::new(MariaDbServer::start(MariaDbOptions::new()));
    let variable = match MariaDbServer::is_mysql() {
        true => "transaction_read_only",
        false => "tx_read_only",
    };
    for mode in MODES {
        let site = Site::mariadb(&server, mode);
        site.sql(format!("SET GLOBAL {variable} = 1")).await;
        take_and_release(&site.open().await, "job").await;
    }
}

/// The client of the database panics at a message that is shorter than its own length.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_database_is_an_error_and_no_panic() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.expect("it listens");
            client.readable().await.expect("a startup message");
            let written = client.write_all(b"R\0\0\0\0").await;
            written.expect("it reads");
        }
    });
    let url = format!("postgres://test@127.0.0.1:{port}/test?timeout=5s");
    let began = Instant::now();
    let error = SqlLock::open(&url).await.expect_err("it is no database");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let expected = format!("cannot connect to 127.0.0.1:{port}");
    assert!(error.to_string().contains(&expected), "{error}");
    assert!(format!("{error:?}").contains("not understood"), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(4), "it waits");
    server.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_clients_is_served() {
    let server = Arc::new(PostgresServer::start(
        PostgresOptions::new().with_config("max_connections", "40"),
    ));
    // With those that listen they need all the room that there is.
    let site = Site::postgres(&server, Mode::Lease).with_connections(2);
    let mut clients = Vec::new();
    for _ in 0..12 {
        clients.push(Arc::new(site.open().await));
    }
    server.restart();
    let tasks: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(n, locks)| {
            tokio::spawn(async move {
                let name = format!("job {n}");
                loop {
                    match locks.acquire(&request(&name)).await {
                        Ok(guard) => break guard.release().await,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                            tokio::time::sleep(ms(50)).await;
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        let served = tokio::time::timeout(Duration::from_secs(40), task).await;
        let released = served.expect("in time").expect("no panic");
        released.expect("it is released");
    }
    until("nothing is locked", async || site.server_locks().await == 0).await;
}
