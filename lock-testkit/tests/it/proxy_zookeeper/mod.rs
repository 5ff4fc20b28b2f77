//! The fault proxy before a real ZooKeeper: what is planned happens to the request or to the event
//! that it is planned for.

pub(crate) mod client;
mod events;
mod fates;
mod words;

use std::io;
use std::time::{Duration, Instant};

use lock_core::memory::{Fault, Reachable, Request};
use lock_testkit::proxy::{Across, Command, Direction, FaultPlan, Proxy, Then};
use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};

use crate::support::GONE;

use self::client::{
    CREATE, Client, DELETE, EPHEMERAL, EXISTS, GET_CHILDREN, Watched, client, create, delete, look,
};

#[test]
fn connections_are_held_slowed_and_cut() {
    let (server, proxy) = start();
    let mut first = client(&proxy);
    proxy.hold(Direction::Requests);
    first.send(CREATE, &create("/a", EPHEMERAL)).expect("sent");
    std::thread::sleep(MOMENT);
    assert!(!exists(&server, "/a"));
    proxy.resume(Direction::Requests);
    first.receive().expect("a reply");
    proxy.set_latency(Direction::Both, MOMENT);
    let began = Instant::now();
    first
        .ask(EXISTS, &look("/a", Watched::Off))
        .expect("a reply");
    assert!(began.elapsed() >= 2 * MOMENT);
    proxy.clear();
    proxy.set_drip(Direction::Both, 3, Duration::from_millis(1));
    first
        .ask(EXISTS, &look("/a", Watched::Off))
        .expect("a reply");
    proxy.clear();
    let mut second = client(&proxy);
    proxy.set_reachable(Reachable::Cut);
    let error = second.ask(EXISTS, &look("/", Watched::Off));
    assert!(GONE.contains(&error.expect_err("a reply").kind()));
    assert!(Client::open(proxy.port()).is_err());
    proxy.set_reachable(Reachable::Connected);
    let again = Client::resume(proxy.port(), second.session.clone()).expect("resumed");
    assert_eq!(again.session, second.session);
}

/// An acquisition is a `CREATE` with a `GETCHILDREN` behind it, a release a `DELETE`, a renewal a
/// look at the root.
#[test]
fn faults_meet_the_requests_of_their_kind() {
    let (server, proxy) = start();
    let classify = |command: &Command| match &*command.arg(0) {
        "CREATE" => Some(Request::Acquire),
        "DELETE" => Some(Request::Release),
        "EXISTS" => Some(Request::Renew),
        _ => None,
    };
    let faults = FaultPlan::new(vec![proxy], Across::Any, classify);
    let faults = faults.with_silence(Then::CutAfter(MOMENT));
    let acquire = |client: &mut Client| -> io::Result<()> {
        client.send(CREATE, &create("/a", EPHEMERAL))?;
        client.send(GET_CHILDREN, &look("/", Watched::Off))?;
        client.receive().and_then(|_| client.receive()).map(drop)
    };
    for (fault, arrives) in [
        (Fault::LostRequest, false),
        (Fault::Silence, false),
        (Fault::LostReply, true),
    ] {
        let mut holder = client(&faults.proxies()[0]);
        faults.plan(Request::Acquire, fault);
        acquire(&mut holder).expect_err("a reply");
        assert_eq!(exists(&server, "/a"), arrives, "{fault:?}");
    }
    let mut holder = client(&faults.proxies()[0]);
    let planned = [(Request::Renew, 2), (Request::Release, 1)];
    for (request, times) in planned {
        faults.plan(request, Fault::LateReply(times * MOMENT));
    }
    for (operation, body, least) in [
        (DELETE, delete("/a"), MOMENT),
        (EXISTS, look("/", Watched::Off), 2 * MOMENT),
    ] {
        let began = Instant::now();
        assert_eq!(holder.ask(operation, &body).expect("a reply"), 0);
        assert!(began.elapsed() >= least);
    }
    acquire(&mut holder).expect("nothing is planned");
}

fn start() -> (ZooKeeperServer, Proxy) {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    let proxy = Proxy::zookeeper(server.port());
    (server, proxy)
}

/// Whether the server has a node, past the proxy.
fn exists(server: &ZooKeeperServer, path: &str) -> bool {
    let mut client = Client::open(server.port()).expect("the server answers");
    let error = client.ask(EXISTS, &look(path, Watched::Off));
    error.expect("a reply") == 0
}

const MOMENT: Duration = Duration::from_millis(60);
