//! etcd keeps every promise, on one server and on a cluster.

mod single {
    lock_testkit::conformance!(harness = crate::support::Store::single().await);
}

mod cluster {
    lock_testkit::conformance!(harness = crate::support::Store::cluster().await);
}
