//! Redis keeps every promise, in every way to run it but for the quorum, which has tests of its own.

mod single {
    lock_testkit::conformance!(harness = crate::support::Store::single());
}

mod least_rights {
    lock_testkit::conformance!(harness = crate::support::Store::with_least_rights());
}

#[cfg(feature = "tls")]
mod tls {
    lock_testkit::conformance!(
        harness = crate::support::Store::with_tls(),
        skip = [Duplicates, Faults]
    );
}

mod sentinels {
    lock_testkit::conformance!(harness = crate::support::Store::sentinels());
}

mod cluster {
    lock_testkit::conformance!(harness = crate::support::Store::cluster());
}
