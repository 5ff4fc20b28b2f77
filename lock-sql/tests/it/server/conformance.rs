//! The conformance suite: nobody is served in the order of arrival, and no request arrives twice,
//! for a connection takes each once.

mod postgres_row {
    use crate::server::support::{Site, Store};

    lock_testkit::conformance!(
        harness = Store::new(Site::postgres_row()),
        skip = [Downgrade, Duplicates, Fair, Lease, Look, Permits]
    );
}

mod postgres_advisory {
    use crate::server::support::{Site, Store};

    lock_testkit::conformance!(
        harness = Store::new(Site::postgres_advisory()),
        skip = [Duplicates, Fair, Lease, Look, Permits]
    );
}

mod postgres_lease {
    use crate::server::support::{Site, Store};

    lock_testkit::conformance!(
        harness = Store::new(Site::postgres_lease()),
        skip = [Duplicates, Fair]
    );
}

/// Leases behind PgBouncer in transaction mode.
mod postgres_pooled {
    use crate::server::support::Store;

    lock_testkit::conformance!(harness = Store::pooled(), skip = [Duplicates, Fair]);
}

mod mariadb_row {
    use crate::server::support::{Site, Store};

    lock_testkit::conformance!(
        harness = Store::new(Site::mariadb_row()),
        skip = [Downgrade, Duplicates, Fair, Lease, Look, Permits]
    );
}

mod mariadb_advisory {
    use crate::server::support::{Site, Store};

    lock_testkit::conformance!(
        harness = Store::new(Site::mariadb_advisory()),
        skip = [Downgrade, Duplicates, Fair, Lease, Look, Permits, Shared]
    );
}

mod mariadb_lease {
    use crate::server::support::{Site, Store};

    lock_testkit::conformance!(
        harness = Store::new(Site::mariadb_lease()),
        skip = [Duplicates, Fair]
    );
}
