//! ZooKeeper keeps every promise, on one server and on an ensemble.

mod single {
    lock_testkit::conformance!(
        harness = crate::support::Store::single().await,
        skip = [Duplicates, Lease]
    );
}

mod ensemble {
    lock_testkit::conformance!(
        harness = crate::support::Store::ensemble().await,
        skip = [Duplicates, Lease]
    );
}
