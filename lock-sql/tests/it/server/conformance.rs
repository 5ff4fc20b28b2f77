//! The conformance suite. Waiters are not served in order of arrival, and a connection cannot deliver a
//! request twice.

use polylock_core::memory::Request;

use crate::server::support::{Site, everywhere, requests, take};

/// Runs the suite on each site, without the cases that need what is listed.
macro_rules! on_each_site {
    ($($site:ident: [$($lacking:ident),*];)*) => {$(
        mod $site {
            use crate::server::support::{Site, Store};

            lock_testkit::conformance!(harness = Store::new(Site::$site()), skip = [$($lacking),*]);
        }
    )*};
}

on_each_site! {
    postgres_row: [Downgrade, Duplicates, Fair, Lease, Look, Permits];
    postgres_advisory: [Duplicates, Fair, Lease, Look, Permits];
    postgres_lease: [Duplicates, Fair];
    mariadb_row: [Downgrade, Duplicates, Fair, Lease, Look, Permits];
    mariadb_advisory: [Downgrade, Duplicates, Fair, Lease, Look, Permits, Shared];
    mariadb_lease: [Duplicates, Fair];
}

/// Leases behind PgBouncer in transaction mode.
mod postgres_pooled {
    use crate::server::support::Store;

    lock_testkit::conformance!(harness = Store::pooled(), skip = [Duplicates, Fair]);
}

/// Faults would have no effect if the classifier did not know the current statements.
async fn the_requests_of_a_mode_are_known(site: Site) {
    let proxy = site.proxy();
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
