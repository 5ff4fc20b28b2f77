//! What happens to requests and to their replies.

use std::io;
use std::time::{Duration, Instant};

use lock_testkit::proxy::{Answer, Fate, Proxy, Then};

use super::client::{
    CREATE, Client, DELETE, EPHEMERAL, EXISTS, Frame, GET_CHILDREN, NO_NODE, PERSISTENT, PING,
    PING_XID, Watched, client, create, delete, look,
};
use super::{MOMENT, exists, start};
use crate::support::{GONE, eventually};

#[test]
fn a_lost_request_does_not_arrive_and_a_lost_reply_does_not_either() {
    let (server, proxy) = start();
    let cases = [
        (Fate::LostRequest(Then::Cut), false),
        (Fate::LostReply(Then::Cut), true),
        (Fate::LostRequest(Then::CutAfter(MOMENT)), false),
        (Fate::LostReply(Then::CutAfter(MOMENT)), true),
    ];
    for (at, (fate, arrives)) in cases.into_iter().enumerate() {
        let path = format!("/{at}");
        let planned = proxy.plan(|command| command.is("CREATE"), fate);
        let mut client = client(&proxy);
        let error = client.ask(CREATE, &create(&path, EPHEMERAL));
        let error = error.expect_err("no reply");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{fate:?}");
        assert_eq!(planned.struck(), 1);
        assert_eq!(exists(&server, &path), arrives, "{fate:?}");
        let mut again = Client::resume(proxy.port(), client.session.clone()).expect("resumed");
        assert_eq!(again.session, client.session, "the session ended");
        let error = again.ask(EXISTS, &look(&path, Watched::Off));
        assert_eq!(error.expect("a reply") == 0, arrives, "{fate:?}");
    }
}

#[test]
fn what_a_lost_request_has_before_it_arrives_and_what_it_has_behind_it_does_not() {
    let (server, proxy) = start();
    proxy.plan(
        |command| command.arg(1) == "/b",
        Fate::LostRequest(Then::Cut),
    );
    let mut client = client(&proxy);
    for path in ["/a", "/b", "/c"] {
        client.send(CREATE, &create(path, EPHEMERAL)).ok();
    }
    eventually(|| exists(&server, "/a"));
    // The session stays; so does what was made in it.
    let there = ["/a", "/b", "/c"].map(|path| exists(&server, path));
    assert_eq!(there, [true, false, false]);
}

#[test]
fn silence_is_for_the_whole_connection_and_for_no_other() {
    let (server, proxy) = start();
    let (mut silent, mut other) = (client(&proxy), client(&proxy));
    proxy.plan(
        |command| command.is("CREATE"),
        Fate::LostReply(Then::Silent),
    );
    silent.set_patience(MOMENT);
    let error = silent.ask(CREATE, &create("/a", EPHEMERAL));
    assert_eq!(
        error.expect_err("a reply").kind(),
        io::ErrorKind::WouldBlock
    );
    silent.send_as(PING_XID, PING, &[]).expect("sent");
    let error = silent.receive().expect_err("a reply");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert!(exists(&server, "/a"));
    let error = other.ask(EXISTS, &look("/a", Watched::Off));
    assert_eq!(error.expect("a reply"), 0);
}

#[test]
fn a_late_reply_delays_all_behind_it() {
    let (server, proxy) = start();
    proxy.plan(|command| command.is("CREATE"), Fate::LateReply(MOMENT));
    let mut client = client(&proxy);
    let began = Instant::now();
    let first = client.send(CREATE, &create("/a", EPHEMERAL)).expect("sent");
    let second = client
        .send(GET_CHILDREN, &look("/", Watched::Off))
        .expect("sent");
    client.send_as(PING_XID, PING, &[]).expect("sent");
    eventually(|| exists(&server, "/a"));
    for sent in [first, second, PING_XID] {
        let frame = client.receive().expect("a reply");
        assert!(
            matches!(frame, Frame::Reply(xid, 0, _) if xid == sent),
            "{frame:?}"
        );
        assert!(began.elapsed() >= MOMENT);
    }
}

#[test]
fn a_late_request_arrives_after_its_client_has_gone() {
    let (server, proxy) = start();
    proxy.plan(|command| command.is("CREATE"), Fate::LateRequest(MOMENT));
    let began = Instant::now();
    let mut gone = client(&proxy);
    gone.send(CREATE, &create("/a", EPHEMERAL)).expect("sent");
    drop(gone);
    eventually(|| exists(&server, "/a"));
    assert!(began.elapsed() >= MOMENT);
}

/// On the connection that a session has left nothing is done, however late it comes.
#[test]
fn a_late_request_does_not_arrive_after_its_session_has_moved() {
    let (server, proxy) = start();
    proxy.plan(|command| command.is("CREATE"), Fate::LateRequest(MOMENT));
    let mut gone = client(&proxy);
    gone.send(CREATE, &create("/a", EPHEMERAL)).expect("sent");
    let mut moved = Client::resume(proxy.port(), gone.session.clone()).expect("resumed");
    let error = gone.receive().expect_err("a reply");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "by the server");
    std::thread::sleep(2 * MOMENT);
    let error = moved.ask(EXISTS, &look("/a", Watched::Off));
    assert_eq!(error.expect("a reply"), NO_NODE);
    assert!(!exists(&server, "/a"));
}

/// Before and after each byte of a request and of its reply.
#[test]
fn the_connection_is_cut_at_each_byte() {
    let (server, proxy) = start();
    let body = create("/a", PERSISTENT);
    let request = 4 + 8 + body.len();
    for length in 0..=request {
        proxy.plan(|command| command.is("CREATE"), Fate::CutRequest(length));
        client(&proxy).ask(CREATE, &body).expect_err("a reply");
        assert!(length == request || !exists(&server, "/a"), "{length}");
    }
    eventually(|| exists(&server, "/a"));
    let reply = 4 + 16;
    for length in 0..=reply {
        proxy.plan(|command| command.is("DELETE"), Fate::CutReply(length));
        let mut client = client(&proxy);
        let answer = client.ask(DELETE, &delete("/none"));
        assert_eq!(answer.ok(), (length == reply).then_some(NO_NODE));
        let next = client.ask(EXISTS, &look("/", Watched::Off));
        assert!(GONE.contains(&next.expect_err("a reply").kind()));
    }
}

#[test]
fn a_fate_meets_the_opening_of_a_session() {
    let (_server, proxy) = start();
    for fate in [
        Fate::LostReply(Then::Cut),
        Fate::LostRequest(Then::Cut),
        Fate::CutReply(5),
    ] {
        proxy.plan(|command| command.is("CONNECT"), fate);
        assert!(Client::open(proxy.port()).is_err(), "{fate:?}");
    }
    client(&proxy);
}

#[test]
#[should_panic(expected = "cannot be duplicated")]
fn a_request_is_not_duplicated() {
    let proxy = Proxy::zookeeper(1);
    let (after, answer) = (Duration::ZERO, Answer::First);
    proxy.plan(|_| true, Fate::Duplicated { after, answer });
}
