//! Errors that do not say what became of a statement: the lock that it may have acquired is released.

use polylock_core::{DistributedLock as _, ErrorKind, Wait};

use crate::server::support::{ReplyChanger, Site, assert_free, on, request, take_and_release};

/// The server grants the lock, and its client gets this in place of the reply.
async fn a_grant_in_doubt(site: Site, change: fn(&mut Vec<u8>)) {
    let changer = ReplyChanger::start(site.server.port()).await;
    let locks = site.open_at(changer.port()).await;
    // The row of the key is there, and its statements are prepared.
    take_and_release(&locks, "job").await;
    changer.change_next(change);
    let attempt = request("job").with_wait(Wait::Never);
    let error = locks.acquire(&attempt).await.map(drop);
    let error = error.expect_err("it is not known that it is granted");
    assert!(changer.has_changed(), "{error}");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.is_outcome_unknown(), "{error:?}");
    // Long before the end of the lease.
    assert_free(&site, "job").await;
}

/// Poolers report the end of a connection to the server with a code of their own.
async fn a_grant_whose_reply_is_a_fatal_error_is_released(site: Site) {
    a_grant_in_doubt(site.with("notify=off"), |reply| {
        let fields = b"SFATAL\0VFATAL\0CXX000\0Mthe server has closed the connection\0\0";
        let length = u32::try_from(4 + fields.len()).expect("it is short");
        *reply = [&b"E"[..], &length.to_be_bytes(), fields].concat();
    })
    .await;
}

on!(a_grant_whose_reply_is_a_fatal_error_is_released: postgres_lease);

/// ProxySQL passes on what its client of the server says of a connection that broke.
async fn a_grant_whose_reply_is_the_error_of_a_proxy_is_released(site: Site) {
    a_grant_in_doubt(site, |reply| {
        let error = b"\xff\xdd\x07#HY000Lost connection to MySQL server during query";
        let length = u8::try_from(error.len()).expect("it is short");
        // A packet begins with its length and its number in the exchange.
        *reply = [&[length, 0, 0, 1][..], error].concat();
    })
    .await;
}

on!(a_grant_whose_reply_is_the_error_of_a_proxy_is_released: mariadb_lease);
