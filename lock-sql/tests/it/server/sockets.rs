//! Sessions watch their own sockets, and no other one of the process.

use lock_testkit::locks::release;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};

use crate::server::support::{Forwarder, SOON, Site, ms, sessions, take};

/// Behind a proxy the server sees other ports than the client has.
async fn a_socket_of_others_with_the_same_ports_is_left_alone(site: Site) {
    let forwarder = Forwarder::start(site.server.port()).await;
    let locks = site.open_at(forwarder.port()).await;
    let guard = take(&locks, "job").await;
    // A session looks for its socket when it was asked for nothing for 100 ms.
    sleep(ms(400)).await;
    let mut bystanders = forwarder.take_bystanders();
    assert!(!bystanders.is_empty(), "nothing went through the proxy");
    for bystander in &mut bystanders {
        bystander.far.shutdown().await.expect("it is open");
    }
    // A session that watches one of them would take that for its own end.
    sleep(ms(400)).await;
    let reason = guard.lost().reason();
    assert!(
        guard.is_held(),
        "lost by the end of another socket: {reason:?}"
    );
    for bystander in bystanders {
        let mut far = bystander.far;
        drop(bystander.near);
        let end = timeout(SOON, far.read(&mut [0])).await;
        let end = end.expect("the session keeps a socket open that others have closed");
        assert_eq!(end.expect("it ends in order"), 0);
    }
    release(guard).await;
}

sessions!(a_socket_of_others_with_the_same_ports_is_left_alone);
