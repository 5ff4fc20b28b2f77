//! Redis on hosts of its own: Sentinels and Clusters that are partitioned, servers without power.

use std::time::{Duration, Instant};

use lock_testkit::network::{Host, Network};
use lock_testkit::servers::{
    Fsync, RedisCluster, RedisOptions, RedisSentinels, RedisServer, Reply,
};

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
    assert!(set(&b, &server).is_err());
    // The testkit itself always reaches it.
    assert_eq!(server.command(&["GET", "key"]).text().unwrap(), "value");
}

#[test]
fn a_server_that_lost_its_power_starts_at_the_same_place_with_what_it_has_written() {
    let network = Network::new().unwrap();
    let (a, b) = (network.host("a"), network.host("b"));
    let options = RedisOptions::new().with_aof(Fsync::Always).with_host(&a);
    let server = RedisServer::start(options);
    let mut client = server.connect_from(&b, PATIENCE).unwrap();
    assert_eq!(client.command(&["SET", "key", "value"]).unwrap(), ok());

    network.power_off(&a);
    assert!(client.command(&["PING"]).is_err(), "nobody answers");
    server.restart();
    assert!(set(&b, &server).is_err(), "still cut off");
    network.rejoin(&a);
    assert_eq!(set(&b, &server).unwrap(), "OK");
    let value = server.command(&["GET", "key"]);
    assert_eq!(value.text().unwrap(), "value");
}

#[test]
fn sentinels_elect_a_master_on_the_side_of_the_majority() {
    let network = Network::new().unwrap();
    let [a, b, c, client] = ["a", "b", "c", "client"].map(|name| network.host(name));
    let began = Instant::now();
    let watched = RedisSentinels::start_on([&a, &b], [&a, &b, &c], &RedisOptions::new());
    println!("ready after {:?}", began.elapsed());
    assert!(watched.url().contains(&c.address().to_string()));

    let began = Instant::now();
    network.partition(&[&a, &client], &[&b, &c]);
    watched.wait_until_seen(&[1, 2], 1);
    println!("two masters after {:?}", began.elapsed());
    assert_eq!(watched.master_seen_by(0), Some(0));
    // Both take writes, each from its side.
    let servers = watched.servers();
    assert_eq!(set(&client, &servers[0]).unwrap(), "OK");
    assert_eq!(set(&c, &servers[1]).unwrap(), "OK");
    assert!(set(&client, &servers[1]).is_err());

    let began = Instant::now();
    network.heal();
    watched.wait_for_fail_over(0);
    println!("one master after {:?}", began.elapsed());
    assert_eq!(watched.master().host().unwrap().name(), "b");
}

#[test]
fn a_cluster_gives_the_slots_of_a_master_that_is_cut_off_to_its_replica() {
    let network = Network::new().unwrap();
    let [a, b, c, d, client] = ["a", "b", "c", "d", "client"].map(|name| network.host(name));
    let began = Instant::now();
    let cluster = RedisCluster::start_on(&[&a, &b, &c], &[&d], &RedisOptions::new());
    println!("ready after {:?}", began.elapsed());
    assert!(cluster.url().contains(&d.address().to_string()));

    let began = Instant::now();
    network.partition(&[&a, &client], &[&b, &c, &d]);
    cluster.wait_until_seen(&[1, 2, 3], 3);
    println!("another master after {:?}", began.elapsed());
    assert!(cluster[3].connect_from(&client, PATIENCE).is_err());

    network.heal();
    cluster.wait_until_seen(&[0, 1, 2, 3], 3);
}

/// Writes from a host, if it is reached in time.
fn set(from: &Host, server: &RedisServer) -> std::io::Result<String> {
    let mut client = server.connect_from(from, PATIENCE)?;
    let reply = client.command(&["SET", "key", "value"])?;
    Ok(reply.text().unwrap_or_default())
}

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

/// How long what is not dropped may take.
const PATIENCE: Duration = Duration::from_secs(1);
