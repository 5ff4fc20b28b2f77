//! PostgreSQL and MariaDB on hosts of their own: power that fails.

use std::net::TcpStream;
use std::ops::Deref;
use std::time::Duration;

use lock_testkit::network::{Host, Network};
use lock_testkit::servers::{
    DatabaseServer, MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer,
};

use crate::support::{SILENCE, SOON};

/// It starts at the same place with its data; `look` is what others see of it meanwhile.
fn lives_through_a_power_cut<S: Deref<Target = DatabaseServer>>(
    start: fn(&Host) -> S,
    look: fn(&Host, &S),
) {
    let network = Network::new().expect("root makes a network");
    let (a, b) = (network.host("a"), network.host("b"));
    let server = start(&a);
    assert!(server.url().contains(&a.address().to_string()));
    assert!(reaches_within(&b, &server.address(), SOON));
    server.sql("CREATE TABLE t AS SELECT 1 AS a");
    look(&b, &server);

    network.power_off(&a);
    server.restart();
    assert!(!reaches_within(&b, &server.address(), SILENCE));
    network.rejoin(&a);
    assert!(reaches_within(&b, &server.address(), SOON));
    assert_eq!(server.sql("SELECT a FROM t"), [["1"]]);
}

#[test]
fn a_postgres_server_that_lost_its_power_starts_at_the_same_place_with_its_data() {
    let start = |host: &Host| PostgresServer::start(PostgresOptions::new().with_host(host));
    lives_through_a_power_cut(start, |_, _| {});
}

#[test]
fn a_mariadb_server_that_lost_its_power_starts_at_the_same_place_with_its_data() {
    let start = |host: &Host| MariaDbServer::start(MariaDbOptions::new().with_host(host));
    lives_through_a_power_cut(start, |from, server| {
        for user in ["test", "root"] {
            assert_eq!(read(from, server, user), "1\n");
        }
    });
}

fn reaches_within(from: &Host, address: &str, within: Duration) -> bool {
    let address = address.parse().expect("an address");
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
