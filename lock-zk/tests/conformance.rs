//! ZooKeeper keeps every promise, on one server and on an ensemble.

mod support;

mod single {
    lock_testkit::conformance!(
        harness = super::support::Store::single().await,
        skip = [Duplicates, Lease]
    );
}

mod ensemble {
    lock_testkit::conformance!(
        harness = super::support::Store::ensemble().await,
        skip = [Duplicates, Lease]
    );
}
