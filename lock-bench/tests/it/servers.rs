//! What a run leaves on servers, and what rights it needs there.

use std::fs;
use std::path::Path;
use std::time::Duration;

use lock_testkit::servers::{
    MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
    ZooKeeperOptions, ZooKeeperServer,
};
use polylock_bench::plan::{Plan, Workload};
use polylock_bench::report::Report;
use polylock_bench::target::{Openers, Target};

use crate::support::{measure, plan};

/// Off by less than half a command: what the server counts around the window is little of it.
#[tokio::test(flavor = "multi_thread")]
async fn bare_commands_are_counted_by_their_servers_and_leave_no_table() {
    let redis = RedisServer::start(RedisOptions::default());
    let zookeeper = ZooKeeperServer::start(ZooKeeperOptions::new());
    let options =
        PostgresOptions::new().with_config("shared_preload_libraries", "pg_stat_statements");
    let postgres = PostgresServer::start(options);
    postgres.sql("CREATE EXTENSION pg_stat_statements");
    postgres.sql("GRANT pg_read_all_stats TO test");
    let mariadb = MariaDbServer::start(MariaDbOptions::new());
    // Two of the client, and two inside of the script.
    let mut expected = vec![(redis.url(), 4.0), (zookeeper.url(), 3.0)];
    for url in [postgres.url(), mariadb.url()] {
        let modes = [("advisory", 2.0), ("lease", 2.0), ("row", 3.0)];
        expected.extend(modes.map(|(mode, count)| (format!("{url}?mode={mode}"), count)));
    }
    let mut plan = plan(&[Workload::Uncontended], 1);
    plan.with_bare = true;
    // A commit of a busy disk takes its time.
    plan.duration = Duration::from_secs(2);
    for (url, count) in expected {
        let target = Openers::compiled_in().target("server", &*url).unwrap();
        let report = served(&plan, target).await;
        let warnings = report.environment.warnings.join("\n");
        assert!(!warnings.contains("keeps what"), "{warnings}");
        assert_eq!(report.series.len(), 2, "{url}");
        for series in &report.series {
            assert!(series.samples[0].acquisitions > 0, "{url}: {series:?}");
        }
        let bare = report.figures(&report.series[1]);
        let commands = bare.commands.expect("the server counts").median;
        assert!((commands - count).abs() < 0.45, "{url}: {commands}");
    }
    plan.with_bare = false;
    let url = format!("{}?mode=row", postgres.url());
    let target = Openers::compiled_in().target("server", url).unwrap();
    let report = served(&plan, target).await;
    assert_eq!(report.series.len(), 1);
    assert!(report.series[0].samples[0].acquisitions > 0, "{report:?}");
    let warnings = report.environment.warnings.join("\n");
    assert!(!warnings.contains("keeps what"), "{warnings}");
    let of_postgres = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'polylock_bench%'";
    assert_eq!(postgres.sql(of_postgres).concat(), [""; 0]);
    let of_mariadb = "SHOW TABLES LIKE 'polylock_bench%'";
    assert_eq!(mariadb.sql(of_mariadb).concat(), [""; 0]);
}

/// Measures until every series has a request that was served, and three times at most: a busy disk may stop a
/// server for longer than a measurement lasts.
async fn served(plan: &Plan, target: Target) -> Report {
    let mut report = Box::pin(measure(plan, target.clone())).await;
    for _ in 0..2 {
        let mut samples = report.series.iter().flat_map(|series| &series.samples);
        if samples.any(|sample| sample.acquisitions == 0) {
            report = Box::pin(measure(plan, target.clone())).await;
        }
    }
    report
}

/// The rights that docs/backends/redis.md lists, without the keys.
fn rights() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/backends/redis.md");
    let page = fs::read_to_string(page).expect("a text");
    let block = page
        .split("ACL SETUSER locks on >password resetkeys ")
        .nth(1);
    let block = block.and_then(|rest| rest.split("```").next());
    let words = block.expect("a list").split_whitespace();
    let words: Vec<_> = words.filter(|word| !word.starts_with('~')).collect();
    words.join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_user_with_no_more_rights_than_locks_need_can_be_measured() {
    let keys = |prefix: &str| {
        format!("resetkeys ~{prefix} ~{{{prefix} ~{{*}}:{{{prefix} ~{{lock}}:tokens")
    };
    let rules = |prefix| format!("on >secret {} {}", keys(prefix), rights());
    let options = RedisOptions::new()
        .with_user("least", &rules("lock:*"))
        .with_user("less", &rules("lock:lock-bench/*"));
    let server = RedisServer::start(options);
    for (user, has_limit) in [("least", true), ("less", false)] {
        let at = format!("127.0.0.1:{}", server.port());
        let url = format!("redis://{user}:secret@{at}?namespace=lock");
        let target = Openers::compiled_in().target("redis", url).unwrap();
        let mut plan = plan(&[Workload::Uncontended], 1);
        plan.duration = Duration::from_secs(1);
        plan.with_bare = true;
        let report = served(&plan, target).await;
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
