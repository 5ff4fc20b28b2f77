//! What each mode offers.

use lock_core::{Bound, DistributedLock, Fencing};

use crate::support::{Kind, Mode, Site, everywhere};

async fn a_mode_offers_what_it_promises(site: Site) {
    let offered = site.open().await.capabilities();
    let (is_lease, is_advisory) = (!site.is_session(), site.mode == Mode::Advisory);
    let is_postgres = site.kind() == Kind::Postgres;
    let bound = if is_lease {
        Bound::Lease
    } else {
        Bound::Connection
    };
    assert_eq!(offered.bound, bound);
    assert_eq!(offered.shared, is_postgres || !is_advisory);
    assert_eq!(offered.permits, is_lease);
    assert_eq!(offered.downgrade, is_lease || (is_postgres && is_advisory));
    assert!(offered.admin && offered.fencing > Fencing::Unavailable);
    assert!(!offered.fair && !offered.reentry);
}

everywhere!(a_mode_offers_what_it_promises);
