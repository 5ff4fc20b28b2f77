//! Locks that live with a lease, a session and a connection keep every promise they can.

mod redis_like {
    use lock_testkit::doubles::redis_like::RedisLike;

    lock_testkit::conformance!(
        harness = RedisLike::new(),
        skip = [Admin, Downgrade, Permits, Shared, Taker],
    );
}

mod row_lock {
    use lock_testkit::doubles::row_lock::RowLock;

    lock_testkit::conformance!(
        harness = RowLock::new(),
        skip = [Admin, Downgrade, Lease, Permits, Shared, Taker],
    );
}

mod zk_like {
    use lock_testkit::doubles::zk_like::ZkLike;

    lock_testkit::conformance!(
        harness = ZkLike::new(),
        skip = [Downgrade, Lease, Permits, Taker],
    );
}
