//! What a run leaves on servers, and what rights it needs there.

use std::time::Duration;

use lock_testkit::servers::{PostgresServer, RedisOptions, RedisServer};
use polylock_bench::plan::Workload;
use polylock_bench::target::Openers;

use crate::support::{measure, plan};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_leaves_no_table_of_its_bare_statements() {
    let mut plan = plan(&[Workload::Uncontended], 1);
    // A commit of a busy disk takes its time.
    plan.duration = Duration::from_secs(2);
    let server = PostgresServer::shared();
    for (mode, with_bare) in [("lease", true), ("row", true), ("row", false)] {
        plan.with_bare = with_bare;
        let database = server.database();
        let target = Openers::compiled_in().target("db", format!("{database}?mode={mode}"));
        let report = measure(&plan, target.unwrap()).await;
        assert_eq!(report.series.len(), 1 + usize::from(with_bare));
        for series in &report.series {
            assert!(series.samples[0].acquisitions > 0, "{series:?}");
        }
        let warnings = report.environment.warnings.join("\n");
        assert!(!warnings.contains("keeps what"), "{warnings}");
        let tables = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'polylock_bench%'";
        assert_eq!(server.sql(&database, tables).concat(), [""; 0], "{mode}");
    }
}

/// What docs/backends/redis.md lists.
const RIGHTS: &str = "resetchannels &polylock:* -@all +hello +eval +evalsha +get +set +getrange +del \
     +time +pttl +pexpire +pexpireat +xadd +xdel +xrange +hget +hset +hdel +hkeys +zadd +zcard \
     +zrange +zrangebyscore +zrem +zscore +publish +subscribe";

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_user_with_no_more_rights_than_locks_need_can_be_measured() {
    let keys = |prefix: &str| {
        format!("resetkeys ~{prefix} ~{{{prefix} ~{{*}}:{{{prefix} ~{{lock}}:tokens")
    };
    let options = RedisOptions::new()
        .with_user("least", &format!("on >secret {} {RIGHTS}", keys("lock:*")))
        .with_user(
            "less",
            &format!("on >secret {} {RIGHTS}", keys("lock:lock-bench/*")),
        );
    let server = RedisServer::start(options);
    for (user, has_limit) in [("least", true), ("less", false)] {
        let at = format!("127.0.0.1:{}", server.port());
        let url = format!("redis://{user}:secret@{at}?namespace=lock");
        let target = Openers::compiled_in().target("redis", url).unwrap();
        let mut plan = plan(&[Workload::Uncontended], 1);
        plan.duration = Duration::from_secs(1);
        plan.with_bare = true;
        let report = measure(&plan, target).await;
        assert_eq!(report.series.len(), 1 + usize::from(has_limit), "{user}");
        for series in &report.series {
            let sample = &series.samples[0];
            assert!(
                sample.acquisitions > 0 && sample.errors.is_empty(),
                "{sample:?}"
            );
        }
        let warnings = report.environment.warnings.join("\n");
        assert!(
            warnings.contains("redis has no figures in round trips"),
            "{warnings}"
        );
        let is_warned = warnings.contains("redis is measured without its limit");
        assert_eq!(is_warned, !has_limit, "{warnings}");
        assert!(!warnings.contains("secret"), "{warnings}");
    }
}
