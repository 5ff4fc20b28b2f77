//! Without a flaw, the double keeps every promise that it makes.

use lock_testkit::doubles::redis_like::RedisLike;

lock_testkit::conformance!(
    harness = RedisLike::new(),
    skip = [Admin, Downgrade, Permits, Shared, Taker],
);
