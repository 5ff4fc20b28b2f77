//! Redis on hosts of its own: Sentinels and Clusters that are partitioned, servers without power.

use std::time::Duration;

use lock_testkit::network::{Host, Network};
use lock_testkit::servers::{Fsync, RedisCluster, RedisOptions, RedisSentinels, RedisServer};

use crate::support::{SILENCE, SOON};

#[test]
fn a_server_on_a_host_is_reached_from_other_hosts() {
    let network = Network::new().unwrap();
    let (a, b) = (network.host("a"), network.host("b"));
    let server = RedisServer::start(RedisOptions::new().with_host(&a));
    assert_eq!(
        server.address(),
        format!("{}:{}", a.address(), server.port())
    );
    assert_eq!(server.url(), format!("redis://{}", server.address()));
    assert_eq!(set(&b, &server).unwrap(), "OK");
    assert_eq!(set(&network.outside(), &server).unwrap(), "OK");
    network.partition(&[&a], &[&b]);
    assert!(set_within(&b, &server, SILENCE).is_err());
    // The testkit itself always reaches it.
    assert_eq!(server.command(&["GET", "key"]).text().unwrap(), "value");
}

#[test]
fn a_server_that_lost_its_power_starts_at_the_same_place_with_what_it_has_written() {
    let network = Network::new().unwrap();
    let (a, b) = (network.host("a"), network.host("b"));
    let options = RedisOptions::new().with_aof(Fsync::Always).with_host(&a);
    let server = RedisServer::start(options);
    assert_eq!(set(&b, &server).unwrap(), "OK");
    let mut client = server.connect_from(&b, SILENCE).unwrap();

    network.power_off(&a);
    assert!(client.command(&["PING"]).is_err(), "nobody answers");
    server.restart();
    assert!(set_within(&b, &server, SILENCE).is_err(), "still cut off");
    network.rejoin(&a);
    assert_eq!(set(&b, &server).unwrap(), "OK");
    let value = server.command(&["GET", "key"]);
    assert_eq!(value.text().unwrap(), "value");
}

#[test]
fn sentinels_elect_a_master_on_the_side_of_the_majority() {
    let network = Network::new().unwrap();
    let [a, b, c, client] = ["a", "b", "c", "client"].map(|name| network.host(name));
    let watched = RedisSentinels::start_on([&a, &b], [&a, &b, &c], &RedisOptions::new());
    assert!(watched.url().contains(&c.address().to_string()));

    network.partition(&[&a, &client], &[&b, &c]);
    watched.wait_until_seen(&[1, 2], 1);
    assert_eq!(watched.master_seen_by(0), Some(0));
    // Both take writes, each from its side.
    let servers = watched.servers();
    assert_eq!(set(&client, &servers[0]).unwrap(), "OK");
    assert_eq!(set(&c, &servers[1]).unwrap(), "OK");
    assert!(set_within(&client, &servers[1], SILENCE).is_err());

    network.heal();
    watched.wait_for_fail_over(0);
    assert_eq!(watched.master().host().unwrap().name(), "b");
}

#[test]
fn a_cluster_gives_the_slots_of_a_master_that_is_cut_off_to_its_replica() {
    let network = Network::new().unwrap();
    let [a, b, c, d, client] = ["a", "b", "c", "d", "client"].map(|name| network.host(name));
    let cluster = RedisCluster::start_on(&[&a, &b, &c], &[&d], &RedisOptions::new());
    assert!(cluster.url().contains(&d.address().to_string()));

    network.partition(&[&a, &client], &[&b, &c, &d]);
    cluster.wait_until_seen(&[1, 2, 3], 3);
    assert!(cluster[3].connect_from(&client, SILENCE).is_err());

    network.heal();
    cluster.wait_until_seen(&[0, 1, 2, 3], 3);
}

/// Writes from a host.
fn set(from: &Host, server: &RedisServer) -> std::io::Result<String> {
    set_within(from, server, SOON)
}

fn set_within(from: &Host, server: &RedisServer, within: Duration) -> std::io::Result<String> {
    let mut client = server.connect_from(from, within)?;
    let reply = client.command(&["SET", "key", "value"])?;
    Ok(reply.text().unwrap_or_default())
}
