//! Locks of other libraries, as the benchmark of polylock opens them: each by its documented way,
//! with its defaults but for the length of leases, on connections of its own that are there before
//! anything is measured.
//!
//! | URL | library | what its users have to know |
//! |---|---|---|
//! | `rslock+redis:` | rslock | a waiter asks again after 0 to 200 ms; nothing renews |
//! | `distributed-lock+redis:` | distributed-lock-redis | has no waiters: it is polled every 10 ms, as in its own tests |
//! | `distributed-lock+postgres:` | distributed-lock-postgres | advisory locks, by five statements and one |
//! | `etcd-client+etcd:` | etcd-client | the lock service of etcd, one lease for each holder or waiter |
//! | `zookeeper-client+zk:` | zookeeper-client | a release is sent in the background and cannot be awaited |
//! | `sqlx-advisory+postgres:` | sqlx | each waiter has a connection of the pool to itself |
//!
//! None of them has a fencing token, so that only overlaps can be checked.

mod peers;

use polylock_bench::target::Openers;

use crate::peers::{advisory, distributed_postgres, distributed_redis, etcd, rslock, zookeeper};

/// What opens locks of this project and those of others.
#[must_use]
pub fn openers() -> Openers {
    Openers::compiled_in()
        .with_peer("distributed-lock+postgres", distributed_postgres::open)
        .with_peer("distributed-lock+redis", distributed_redis::open)
        .with_peer("etcd-client+etcd", etcd::open)
        .with_peer("rslock+redis", rslock::open)
        .with_peer("sqlx-advisory+postgres", advisory::open)
        .with_peer("zookeeper-client+zk", zookeeper::open)
}
