//! PostgreSQL and MariaDB on hosts of their own: power that fails, a standby behind a partition.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use lock_testkit::network::{Host, Network};
use lock_testkit::servers::{
    MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer, PostgresStandby,
};

#[test]
fn a_postgres_server_that_lost_its_power_starts_at_the_same_place_with_its_data() {
    let network = Network::new().unwrap();
    let (a, b) = (network.host("a"), network.host("b"));
    let began = Instant::now();
    let server = PostgresServer::start(PostgresOptions::new().with_host(&a));
    println!("ready after {:?}", began.elapsed());
    assert!(server.url().contains(&a.address().to_string()));
    assert!(reaches(&b, &server.address()));
    server.sql("CREATE TABLE t AS SELECT 1 AS a");

    network.power_off(&a);
    let began = Instant::now();
    server.restart();
    println!("again after {:?}", began.elapsed());
    assert!(!reaches(&b, &server.address()));
    network.rejoin(&a);
    assert!(reaches(&b, &server.address()));
    assert_eq!(server.sql("SELECT a FROM t"), [["1"]]);
}

#[test]
fn a_standby_behind_a_partition_is_promoted_beside_its_primary() {
    let network = Network::new().unwrap();
    let (a, b) = (network.host("a"), network.host("b"));
    let primary = PostgresServer::start(PostgresOptions::new().with_host(&a));
    let began = Instant::now();
    let standby = PostgresStandby::on(&b, &primary);
    println!("standby after {:?}", began.elapsed());
    primary.sql("CREATE TABLE t AS SELECT 1 AS a");
    standby.catch_up(&primary);
    let follows = "SELECT client_addr = inet '%' FROM pg_stat_replication";
    let follows = follows.replace('%', &b.address().to_string());
    assert_eq!(primary.sql(&follows), [["t"]]);

    network.partition(&[&a], &[&b]);
    primary.sql("INSERT INTO t VALUES (2)");
    standby.promote();
    standby.sql("INSERT INTO t VALUES (3)");
    assert_eq!(standby.sql("SELECT a FROM t ORDER BY a"), [["1"], ["3"]]);
    assert_eq!(primary.sql("SELECT a FROM t ORDER BY a"), [["1"], ["2"]]);
}

#[test]
fn a_mariadb_server_that_lost_its_power_starts_at_the_same_place_with_its_data() {
    let network = Network::new().unwrap();
    let (a, b) = (network.host("a"), network.host("b"));
    let began = Instant::now();
    let server = MariaDbServer::start(MariaDbOptions::new().with_host(&a));
    println!("ready after {:?}", began.elapsed());
    assert!(server.url().contains(&a.address().to_string()));
    assert!(reaches(&b, &server.address()));
    server.sql("CREATE TABLE t AS SELECT 1 AS a");
    for user in ["test", "root"] {
        assert_eq!(read(&b, &server, user), "1\n");
    }

    network.power_off(&a);
    let began = Instant::now();
    server.restart();
    println!("again after {:?}", began.elapsed());
    assert!(!reaches(&b, &server.address()));
    network.rejoin(&a);
    assert!(reaches(&b, &server.address()));
    assert_eq!(server.sql("SELECT a FROM t"), [["1"]]);
}

fn reaches(from: &Host, address: &str) -> bool {
    let address = address.parse().expect("an address");
    let within = Duration::from_secs(1);
    from.enter(|| TcpStream::connect_timeout(&address, within))
        .is_ok()
}

/// What a client on a host reads as this user.
fn read(from: &Host, server: &MariaDbServer, user: &str) -> String {
    let host = server.host().expect("it has a host").address();
    let output = from
        .command("mariadb")
        .args(["--no-defaults", "--batch", "--skip-column-names"])
        .args(["--host", &host.to_string(), "--user", user])
        .args(["--port", &server.port().to_string(), "--database", "test"])
        .args(["--execute", "SELECT a FROM t"])
        .env("MYSQL_PWD", user)
        .output()
        .expect("the client is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
