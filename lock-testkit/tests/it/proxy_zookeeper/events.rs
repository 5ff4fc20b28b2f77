//! What happens to the events that the server pushes.

use std::time::Instant;

use lock_testkit::proxy::{Fate, PushFate};
use lock_testkit::servers::Reply;

use super::client::{
    CREATE, DELETE, DELETED, EPHEMERAL, EXISTS, Frame, Watched, client, create, delete, look,
};
use super::{MOMENT, start};
use crate::support::{bulk, eventually};

#[test]
fn events_are_lost_doubled_and_late() {
    let (_server, proxy) = start();
    let (mut waiter, mut holder) = (client(&proxy), client(&proxy));
    let paths = ["/lost", "/doubled", "/late", "/last"];
    for path in paths {
        assert_eq!(
            holder
                .ask(CREATE, &create(path, EPHEMERAL))
                .expect("a reply"),
            0
        );
        assert_eq!(
            waiter
                .ask(EXISTS, &look(path, Watched::On))
                .expect("a reply"),
            0
        );
    }
    let of = |path: &'static str| move |items: &[Reply]| items[2] == bulk(path);
    proxy.plan_push(of("/lost"), PushFate::Lost);
    proxy.plan_push(of("/doubled"), PushFate::Doubled);
    proxy.plan_push(of("/late"), PushFate::Late(MOMENT));
    let began = Instant::now();
    for path in paths {
        assert_eq!(holder.ask(DELETE, &delete(path)).expect("a reply"), 0);
    }
    for path in ["/doubled", "/doubled", "/late", "/last"] {
        let event = waiter.receive().expect("an event");
        assert_eq!(event, Frame::Event(DELETED, path.to_owned()));
    }
    assert!(began.elapsed() >= MOMENT);
}

/// A client that has not seen the reply does not know of the watch.
#[test]
fn an_event_does_not_overtake_a_late_reply() {
    let (server, proxy) = start();
    let (mut waiter, mut holder) = (client(&proxy), client(&proxy));
    holder
        .ask(CREATE, &create("/a", EPHEMERAL))
        .expect("a reply");
    proxy.plan(
        |command| command.arg(2) == "watch",
        Fate::LateReply(5 * MOMENT),
    );
    let sent = waiter.send(EXISTS, &look("/a", Watched::On)).expect("sent");
    eventually(|| server.mntr("zk_watch_count") == Some(1));
    let pushed = proxy.watch_pushes(|_| true);
    holder.ask(DELETE, &delete("/a")).expect("a reply");
    eventually(|| pushed.count() == 1);
    let reply = waiter.receive().expect("a reply");
    assert!(
        matches!(reply, Frame::Reply(xid, 0, _) if xid == sent),
        "{reply:?}"
    );
    let event = waiter.receive().expect("an event");
    assert_eq!(event, Frame::Event(DELETED, "/a".to_owned()));
}

#[test]
fn events_are_counted() {
    let (_server, proxy) = start();
    let (mut holder, mut waiters) = (client(&proxy), [client(&proxy), client(&proxy)]);
    for (path, waiter) in ["/a", "/b"].into_iter().zip(&mut waiters) {
        holder
            .ask(CREATE, &create(path, EPHEMERAL))
            .expect("a reply");
        waiter
            .ask(EXISTS, &look(path, Watched::On))
            .expect("a reply");
    }
    let all = proxy.watch_pushes(|_| true);
    let others = proxy.watch_pushes(|items| items[1] != Reply::Integer(DELETED.into()));
    for _ in 0..2 {
        proxy.plan_push(|_| true, PushFate::Lost);
    }
    holder.ask(DELETE, &delete("/b")).expect("a reply");
    eventually(|| all.count() == 1);
    let seen = all.seen();
    assert_eq!(
        seen[0].items,
        [
            bulk("event"),
            Reply::Integer(2),
            bulk("/b"),
            Reply::Integer(3)
        ]
    );
    assert_eq!(seen[0].connection, 2, "the second waiter came third");
    proxy.clear();
    holder.ask(DELETE, &delete("/a")).expect("a reply");
    waiters[0].receive().expect("an event");
    assert_eq!((all.count(), others.count()), (2, 0));
}
