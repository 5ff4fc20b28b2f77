//! What each mode offers.

use lock_core::memory::Request;
use lock_core::{DistributedLock, Fencing, LockLifetime};
use lock_testkit::proxy::Proxy;

use crate::server::support::{Kind, Mode, Site, everywhere, requests, take};

async fn a_mode_offers_what_it_promises(site: Site) {
    let offered = site.open().await.capabilities();
    let (is_lease, is_advisory) = (!site.is_session(), site.mode == Mode::Advisory);
    let is_postgres = site.kind() == Kind::Postgres;
    let bound = if is_lease {
        LockLifetime::Lease
    } else {
        LockLifetime::Connection
    };
    assert_eq!(offered.bound, bound);
    assert_eq!(offered.shared, is_postgres || !is_advisory);
    assert_eq!(offered.permits, is_lease);
    assert_eq!(offered.downgrade, is_lease || (is_postgres && is_advisory));
    assert!(offered.admin && offered.fencing > Fencing::Unavailable);
    assert!(!offered.fair && !offered.reentry);
}

everywhere!(a_mode_offers_what_it_promises);

/// Faults would be planned for nothing if the statements were others than those that are looked for.
async fn the_requests_of_a_mode_are_known(site: Site) {
    let proxy = match site.kind() {
        Kind::MariaDb => Proxy::mysql(site.server.port()),
        Kind::Postgres => Proxy::postgres(site.server.port()),
    };
    let mode = site.mode;
    let watch =
        |wanted: Request| proxy.watch(move |command| requests::of(command, mode) == Some(wanted));
    let kinds = [Request::Acquire, Request::Renew, Request::Release].map(watch);
    let count = || kinds.each_ref().map(lock_testkit::proxy::Watch::count);
    let holder = site.open_at(proxy.port()).await;
    assert_eq!(count()[..2], [0; 2], "before anything is asked for");
    let guard = take(&holder, "job").await;
    assert!(count()[0] > 0, "{kinds:?}");
    guard.renew().await.expect("it is held");
    assert_eq!(count()[1] > 0, !site.is_session(), "{kinds:?}");
    let released = count()[2];
    guard.release().await.expect("it is released");
    assert!(count()[2] > released, "{kinds:?}");
}

everywhere!(the_requests_of_a_mode_are_known);
