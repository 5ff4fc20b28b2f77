//! `lockctl doctor`: its arguments and output. The faults of each server are tested by its backend;
//! here is one of each kind.

use std::time::Duration;

use serde_json::{Value, json};

use crate::fixture::{Ended, Place, Process};

/// The answer of one `lockctl --format json doctor`, which each failed assertion on it shows.
struct Bill {
    ended: Ended,
    value: Value,
}

/// Has the doctor look at this URL.
#[track_caller]
fn examine(url: &str) -> Bill {
    examine_with(&[url], &[])
}

/// The same with other arguments, and variables.
#[track_caller]
fn examine_with(args: &[&str], variables: &[(&str, &str)]) -> Bill {
    let place = Place::new();
    let mut command = place.lockctl("--format json doctor");
    command.args(args).envs(variables.iter().copied());
    let mut process = Process::start(command);
    process.time = EXAMINATION;
    let ended = process.ended();
    let value = ended.json();
    let bill = Bill { ended, value };
    for check in bill.checks() {
        let heading = format!("\n### {}\n", text(check, "id"));
        assert!(
            MANUAL.contains(&heading),
            "docs/doctor.md does not explain {check}"
        );
    }
    bill
}

const MANUAL: &str = include_str!("../../../docs/doctor.md");

/// Longer than the doctor waits for a server by itself.
const EXAMINATION: Duration = Duration::from_secs(60);

impl Bill {
    #[track_caller]
    fn checks(&self) -> &[Value] {
        let checks = self.value["targets"][0]["checks"].as_array();
        checks.unwrap_or_else(|| panic!("no checks: {}", self.ended))
    }

    /// What this check found.
    #[track_caller]
    fn check(&self, id: &str) -> &Value {
        let mut checks = self.checks().iter();
        let found = checks.find(|known| known["id"] == id);
        found.unwrap_or_else(|| panic!("no {id}: {}", self.ended))
    }

    /// These are the checks that something is wrong with, each once and in order of names, and the
    /// exit code says so.
    #[track_caller]
    fn assert_faults(&self, expected: &[(&str, &str)]) {
        let is_bad = |check: &&Value| ["warning", "error"].contains(&text(check, "status"));
        let mut faults = Vec::new();
        for check in self.checks().iter().filter(is_bad) {
            for name in ["impact", "fix", "see"] {
                assert!(check[name].is_string(), "no {name} in {check}");
            }
            faults.push((text(check, "id"), text(check, "status")));
        }
        faults.sort_unstable();
        faults.dedup();
        assert_eq!(faults, expected, "{}", self.ended);
        let code = i32::from(!expected.is_empty());
        assert_eq!(self.ended.code, code, "{}", self.ended);
    }

    /// Nothing is wrong, and locks were tried.
    #[track_caller]
    fn assert_clean(&self) {
        self.assert_faults(&[]);
        for id in ["exclusion", "round-trip"] {
            assert_eq!(self.check(id)["status"], "ok", "{}", self.ended);
        }
        self.check("token-order");
    }
}

#[track_caller]
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    let text = value[name].as_str();
    text.unwrap_or_else(|| panic!("{name} is no text in {value}"))
}

#[test]
fn the_answer_for_programs_has_its_documented_form() {
    let bill = examine("memory:");
    bill.assert_clean();
    assert_eq!(bill.check("expiry")["status"], "ok");
    let value = &bill.value;
    assert_eq!(value["schema"], "lockctl-doctor/2", "{value}");
    assert_eq!(value["status"], "ok", "{value}");
    let target = &value["targets"][0];
    assert_eq!(target["status"], "ok", "{value}");
    let recommended = json!({
        "bound": "lease",
        "min_ttl_ms": 5000,
        "ttl_ms": 30000,
        "renewal_ms": 10000,
    });
    assert_eq!(target["recommended"], recommended, "{value}");
    for exchange in ["acquire_release", "refused_try"] {
        let measured = &target["round_trip"][exchange];
        assert!(measured["count"].as_u64() >= Some(5), "{measured}");
        let quantiles = [&measured["p50_ms"], &measured["p99_ms"]].map(Value::as_f64);
        assert!(quantiles.iter().all(Option::is_some), "{measured}");
        assert!(quantiles[0] <= quantiles[1], "{measured}");
    }
    let check = bill.check("exclusion").as_object().expect("an object");
    let mut keys: Vec<_> = check.keys().map(String::as_str).collect();
    keys.sort_unstable();
    let expected = [
        "accepted", "fix", "id", "impact", "see", "status", "summary",
    ];
    assert_eq!(keys, expected);
    assert_eq!(check["impact"], Value::Null);
    assert!(target["not_checked"].is_array(), "{value}");
}

#[test]
fn without_a_url_it_looks_at_the_chosen_backend() {
    let place = Place::on_disk();
    let ended = place.expect(0, "doctor");
    assert!(ended.stdout.starts_with("sqlite:"), "{ended}");
    assert!(place.database().exists(), "no default database");
    let value = place.json("--backend memory: --namespace 'a b' doctor");
    let url = &value["targets"][0]["url"];
    assert_eq!(url, "memory:?namespace=a%20b", "{value}");
}

#[test]
fn all_targets_are_examined_in_their_namespace() {
    let of_shop = [("LOCK_KEY_NAMESPACE", "shop")];
    for (args, variables, expected) in [
        // An option is that of all targets, a variable that of targets without one.
        (
            &["--namespace", "shop", "memory:", "memory:x?namespace=old"][..],
            &[][..],
            &["memory:?namespace=shop", "memory:x?namespace=shop"][..],
        ),
        (
            &["memory:", "memory:x?namespace=own"],
            &of_shop,
            &["memory:?namespace=shop", "memory:x?namespace=own"],
        ),
        (
            &["memory:", "memory:shop", "memory:shop"],
            &[],
            &["memory:", "memory:shop", "memory:shop"],
        ),
    ] {
        let bill = examine_with(args, variables);
        bill.assert_clean();
        let targets = bill.value["targets"].as_array().expect("targets").iter();
        let found: Vec<_> = targets
            .map(|target| (text(target, "url"), text(target, "status")))
            .collect();
        let expected: Vec<_> = expected.iter().map(|url| (*url, "ok")).collect();
        assert_eq!(found, expected, "{}", bill.ended);
    }
}

#[test]
fn a_url_that_is_wrong_is_a_fault_with_a_fix() {
    for (url, says) in [
        ("carrier-pigeon://roof", "unknown scheme"),
        ("rdis://cache", "did you mean \"redis\"?"),
        ("memory:?namspace=x", "did you mean \"namespace\"?"),
        ("localhost:6379", ""),
        ("redis://cache:port", "not a number"),
    ] {
        let bill = examine(url);
        bill.assert_faults(&[("url", "error")]);
        let summary = text(bill.check("url"), "summary");
        assert!(summary.contains(says), "{summary}");
    }
    let bill = examine_with(&["memory:", "carrier-pigeon://roof"], &[]);
    assert_eq!(bill.ended.code, 1, "{}", bill.ended);
    assert_eq!(bill.value["status"], "error");
    let statuses = [0, 1].map(|at: usize| text(&bill.value["targets"][at], "status"));
    assert_eq!(statuses, ["ok", "error"]);
}

#[test]
fn people_get_lines_with_the_impact_and_the_fix() {
    let place = Place::new();
    let ended = place.expect(1, "doctor memory: redis://127.0.0.1:1");
    assert!(ended.stdout.starts_with("memory:\n"), "{ended}");
    let ended = ended.prints(&[
        "\n  ok        exclusion: two connections contended",
        "\n            recommended ttl: 30s, renewed every 10s; min 5s\n  no problems found\n",
        "\n  not checked: crashes, partitions and failovers (docs/guarantees.md",
        "\nredis://127.0.0.1:1\n  error     connect: cannot connect to 127.0.0.1:1",
        "\n            impact ",
        "\n            fix    start the server",
        "\n            see    https://github.com/polylock/polylock/blob/main/docs/doctor.md#connect",
        "\n  1 error\n",
    ]);
    ended.says_nothing_of(&["\u{1b}"]);
    let colored = place.expect(1, "--color always doctor redis://127.0.0.1:1");
    colored.prints(&["\u{1b}[1m\u{1b}[31merror"]);
}

#[test]
fn an_accepted_warning_that_is_not_there_is_said() {
    let ended = Place::new().expect(0, "doctor --accept flush,clock memory:");
    let note = |name: &str| format!("--accept {name}: there is no such warning");
    ended.says(&[&note("flush"), &note("clock")]);
}

/// The names are those of the manual, which has a section on each check.
#[test]
fn an_accepted_check_that_does_not_exist_is_wrong_usage() {
    let sections = MANUAL.lines().filter_map(|line| line.strip_prefix("### "));
    let sections: Vec<_> = sections.collect();
    let ended = Place::new().expect(64, "doctor --accept clock,persistences memory:");
    ended.says(&[
        "invalid value 'persistences' for '--accept <CHECK>'",
        "a similar value exists: 'persistence'",
        &format!("[possible values: {}]", sections.join(", ")),
    ]);
}

#[cfg(feature = "sqlite")]
#[test]
fn both_backends_of_a_migration_are_examined() {
    let place = Place::new();
    place.write_migration("sqlite:old.db");
    let mut process = place.start("--format json --config lock.toml doctor");
    process.time = EXAMINATION;
    let value = process.ended().json();
    let targets = value["targets"].as_array().expect("targets").iter();
    let urls: Vec<_> = targets.map(|target| text(target, "url")).collect();
    let [new, old] = urls[..] else {
        panic!("two targets: {value}");
    };
    assert!(
        new.ends_with("new.db") && old.ends_with("old.db"),
        "{value}"
    );
    let ended = place.expect(64, "--config lock.toml doctor --same-locks sqlite:old.db");
    ended.says(&["(`migrate-from`)", "give two URLs"]);
}

#[cfg(feature = "sqlite")]
#[test]
fn a_file_gets_a_clean_bill_and_one_that_is_no_database_an_error() {
    let place = Place::on_disk();
    let at = |name: &str| format!("sqlite:{}", place.file(name).display());
    examine(&at("locks.db")).assert_clean();
    let listed = place.json(&["--backend", &at("locks.db"), "list"]);
    assert_eq!(listed["locks"], json!([]), "a lock stays");
    let noise = "no database at all, and long enough to be read as a header ".repeat(20);
    place.write("noise", &noise);
    for file in ["missing/locks.db", "noise"] {
        examine(&at(file)).assert_faults(&[("connect", "error")]);
    }
}

#[cfg(all(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zk"
))]
mod servers {
    use std::net::TcpListener;

    use lock_testkit::proxy::{Direction, Proxy};
    #[cfg(feature = "etcd")]
    use lock_testkit::servers::EtcdServer;
    use lock_testkit::servers::{
        Fsync, MariaDbOptions, MariaDbServer, PgBouncer, PoolMode, PostgresOptions, PostgresServer,
        RedisOptions, RedisServer, ZooKeeperEnsemble, unique,
    };

    use super::*;
    use crate::fixture::side_by_side;
    fn durable_redis() -> RedisServer {
        RedisServer::start(RedisOptions::new().with_aof(Fsync::EverySecond))
    }

    /// A directory of its own.
    fn zookeeper(login: &str, params: &str) -> String {
        let hosts = ZooKeeperEnsemble::shared().addresses().join(",");
        let root = unique("doctor");
        format!("zk://{login}{hosts}/{root}?session-timeout=8s{params}")
    }

    /// Has the doctor look at all of these, two at a time: URLs and the faults there.
    #[track_caller]
    fn expect(scenarios: &[(String, &[(&str, &str)])]) {
        for some in scenarios.chunks(2) {
            side_by_side(some, |(url, faults)| match faults {
                [] => examine(url).assert_clean(),
                faults => examine(url).assert_faults(faults),
            });
        }
    }

    #[test]
    fn servers_that_are_fit_get_a_clean_bill_and_keep_nothing() {
        let redis = durable_redis();
        let mariadb = MariaDbServer::start(MariaDbOptions::new().with_durability(true));
        let postgres = PostgresServer::start(PostgresOptions::new().with_durability(true));
        let mut urls = vec![redis.url(), zookeeper("me:pw@", "")];
        for database in [mariadb.url(), postgres.url()] {
            let modes = ["row", "lease", "advisory"];
            urls.extend(modes.map(|mode| format!("{database}?mode={mode}&timeout=10s")));
        }
        let scenarios: Vec<_> = urls.into_iter().map(|url| (url, &[][..])).collect();
        expect(&scenarios);
        let listed = Place::new().json(&["--backend", &redis.url(), "list"]);
        assert_eq!(listed["locks"], json!([]), "a lock stays");
    }

    #[cfg(feature = "etcd")]
    #[test]
    fn the_shortest_lease_of_etcd_expires() {
        let (port, root) = (EtcdServer::shared()[0], std::process::id());
        let bill = examine(&format!("etcd://127.0.0.1:{port}/doctor-{root}"));
        assert_eq!(bill.check("expiry")["status"], "ok", "{}", bill.ended);
    }

    #[test]
    fn what_silently_costs_locks_is_found() {
        let evicting = RedisServer::start(
            RedisOptions::new()
                .with_aof(Fsync::EverySecond)
                .with_memory(100 << 20, "allkeys-lru"),
        );
        let forgetful = RedisServer::start(RedisOptions::new());
        let postgres = PostgresServer::start(PostgresOptions::new().with_durability(true));
        let pooler = PgBouncer::before(&postgres, PoolMode::Transaction);
        let unsafe_disk = MariaDbServer::shared().database();
        expect(&[
            (evicting.url(), &[("eviction", "warning")]),
            (forgetful.url(), &[("persistence", "warning")]),
            (unsafe_disk, &[("flush", "warning")]),
            (
                format!("{}?mode=advisory&timeout=10s", pooler.url()),
                &[("pooler", "error")],
            ),
            (zookeeper("", "&access=everybody"), &[]),
            (
                zookeeper("me:pw@", "").replace("=8s", "=60s"),
                &[("session-timeout", "warning")],
            ),
        ]);
        let accepted = examine_with(&["--accept", "persistence", &forgetful.url()], &[]);
        assert_eq!(accepted.ended.code, 0, "{}", accepted.ended);
        assert_eq!(accepted.check("persistence")["accepted"], true);
    }

    #[test]
    fn a_server_that_cannot_be_used_is_an_error_without_the_password() {
        let server = RedisServer::start(
            RedisOptions::new()
                .with_aof(Fsync::EverySecond)
                .with_password("secret")
                .with_user("elsewhere", "on >pw ~other:* &* +@all"),
        );
        let at = |login: &str| format!("redis://{login}@127.0.0.1:{}", server.port());
        let connect: &[_] = &[("connect", "error")];
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let silent = silent.local_addr().expect("bound").port();
        expect(&[
            ("redis://127.0.0.1:1".to_owned(), connect),
            ("redis+unix:///no/such/socket".to_owned(), connect),
            ("redis://no-such-host.invalid".to_owned(), connect),
            ("postgres://u:p@127.0.0.1:1/x".to_owned(), connect),
            ("zk://127.0.0.1:1,127.0.0.1:2/x".to_owned(), connect),
            (
                format!("redis://127.0.0.1:{silent}?connect-timeout=1s"),
                connect,
            ),
            (
                at(":secret").replace("redis", "rediss") + "?connect-timeout=1s",
                connect,
            ),
            (at("elsewhere:pw"), &[("round-trip", "error")]),
        ]);
        let bill = examine(&at(":s3ntinel"));
        bill.assert_faults(connect);
        bill.ended.says_nothing_of(&["s3ntinel"]);
    }

    /// A quorum of two servers, one of which has two names.
    fn twins(login: &str, servers: &[RedisServer; 2], params: &str) -> String {
        let [one, other] = [servers[0].port(), servers[1].port()];
        let hosts = format!("127.0.0.1:{one},127.0.0.1:{other},localhost:{one}");
        format!("redlock://{login}{hosts}?rejoin-delay=0s{params}")
    }

    #[test]
    fn an_error_that_does_not_explain_it_hides_no_refusal() {
        let options = RedisOptions::new()
            .with_aof(Fsync::Always)
            .with_user("elsewhere", "on >pw ~other:* &* +@all");
        let servers = [(); 2].map(|()| RedisServer::start(options.clone()));
        let bill = examine(&twins("elsewhere:pw@", &servers, ""));
        bill.assert_faults(&[("round-trip", "error"), ("same-server", "error")]);
    }

    /// The status of `same-locks` of the second of these URLs.
    #[track_caller]
    fn compared(first: &str, second: &str) -> (i32, String) {
        let bill = examine_with(&["--same-locks", first, second], &[]);
        let checks = bill.value["targets"][1]["checks"].as_array();
        let checks = checks.expect("checks").iter();
        let found: Vec<_> = checks.filter(|check| check["id"] == "same-locks").collect();
        assert_eq!(found.len(), 1, "{}", bill.ended);
        (bill.ended.code, text(found[0], "status").to_owned())
    }

    #[test]
    fn urls_that_lead_to_other_locks_are_found() {
        let server = durable_redis();
        let port = server.port();
        let with = |other: &str| {
            let (code, status) = compared(&server.url(), other);
            format!("{code} {status}")
        };
        assert_eq!(with(&format!("redis://localhost:{port}/0")), "0 ok");
        let differs = format!("redis://127.0.0.1:{port}/1?namespace=other");
        assert_eq!(with(&differs), "1 error");
        assert_eq!(with("redis://127.0.0.1:1"), "1 not-checked");
        Place::new().expect(64, "doctor --same-locks");
    }

    #[test]
    fn an_error_of_another_check_does_not_stop_the_comparison() {
        let options = RedisOptions::new().with_aof(Fsync::Always);
        let servers = [(); 2].map(|()| RedisServer::start(options.clone()));
        let [one, other] =
            ["a", "b"].map(|it| twins("", &servers, &format!("&namespace={it}&node-timeout=2s")));
        assert_eq!(compared(&one, &other), (1, "error".to_owned()));
        assert_eq!(compared(&one, &one), (1, "ok".to_owned()));
    }

    #[cfg(feature = "etcd")]
    #[test]
    fn prefixes_of_etcd_are_other_locks() {
        let (port, root) = (EtcdServer::shared()[0], std::process::id());
        let [one, other] =
            ["one", "other"].map(|it| format!("etcd://127.0.0.1:{port}/doctor-{it}-{root}"));
        assert_eq!(compared(&one, &other), (1, "error".to_owned()));
    }

    #[test]
    fn a_link_that_is_too_slow_for_the_leases_is_found() {
        let server = durable_redis();
        let proxy = Proxy::start(server.port());
        proxy.set_latency(Direction::Replies, Duration::from_millis(60));
        let url = format!("{}?connect-timeout=10s", proxy.url());
        let bill = examine_with(&["--ttl", "1s", &url], &[]);
        bill.assert_faults(&[("round-trip", "warning")]);
        let impact = text(bill.check("round-trip"), "impact");
        let room = impact.starts_with("a lease of 1s has room for exchanges of 100ms, and");
        assert!(room, "{impact}");
        let target = &bill.value["targets"][0];
        let cycle = target["round_trip"]["acquire_release"]["p50_ms"].as_f64();
        assert!(cycle >= Some(120.0), "two replies took {cycle:?} ms");
        let min = target["recommended"]["min_ttl_ms"].as_u64();
        assert!(min >= Some(5000), "the min ttl is {min:?} ms");
    }
}
