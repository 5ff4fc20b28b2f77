//! The backends that the facade compiles in, and its errors for the rest.

use polylock::prelude::*;

#[tokio::test]
async fn named_memory_is_one_store_in_the_process() {
    let here = polylock::connect("memory:facade").await.unwrap();
    let there = polylock::compiled_in()
        .connect("memory:facade")
        .await
        .unwrap();
    let elsewhere = polylock::connect("memory:").await.unwrap();
    let _guard = here.lock("key").await.unwrap();
    assert!(there.try_lock("key").await.unwrap().is_none());
    assert!(elsewhere.try_lock("key").await.unwrap().is_some());
}

#[tokio::test]
async fn a_backend_that_is_not_compiled_in_names_its_feature() {
    let table = [
        (
            cfg!(feature = "postgres"),
            "postgres",
            "postgres://h1/locks",
        ),
        (cfg!(feature = "sqlite"), "sqlite", "sqlite:locks.db"),
    ];
    for (_, feature, url) in table.into_iter().filter(|(is_on, ..)| !is_on) {
        let error = polylock::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        let expected = format!("{feature} needs the feature {feature:?} of polylock");
        for part in [expected.as_str(), "registered: ", "memory"] {
            assert!(error.message().contains(part), "{error}");
        }
    }
}

#[tokio::test]
async fn backends_read_their_urls_before_they_connect() {
    let etcd = cfg!(feature = "etcd");
    let mysql = cfg!(feature = "mysql");
    let postgres = cfg!(feature = "postgres");
    let sqlite = cfg!(feature = "sqlite");
    let zk = cfg!(feature = "zk");
    let table = [
        (etcd, "etcd://127.0.0.1:1/locks", "timout", "timeout"),
        (etcd, "etcds://127.0.0.1:1/locks", "namespce", "namespace"),
        (mysql, "mariadb://127.0.0.1:1/locks", "mod", "mode"),
        (mysql, "mysql://127.0.0.1:1/locks", "mod", "mode"),
        (postgres, "postgres://127.0.0.1:1/locks", "mod", "mode"),
        (postgres, "postgresql://127.0.0.1:1/locks", "mod", "mode"),
        (sqlite, "sqlite:locks.db", "busy-timout", "busy-timeout"),
        (sqlite, "sqlite:locks.db", "namespce", "namespace"),
        (zk, "zk://127.0.0.1:1/locks", "namespce", "namespace"),
        (
            zk,
            "zookeeper://127.0.0.1:1/l",
            "sesion-timeout",
            "session-timeout",
        ),
    ];
    for (_, url, misspelt, meant) in table.into_iter().filter(|(is_on, ..)| *is_on) {
        let error = polylock::connect(&format!("{url}?{misspelt}=1")).await;
        let error = error.unwrap_err();
        let expected = format!("unknown parameter {misspelt:?}, did you mean {meant:?}?");
        assert!(error.message().starts_with(&expected), "{url}: {error}");
    }
}

#[tokio::test]
async fn a_host_and_a_port_without_a_scheme_get_a_suggestion() {
    let table = [
        (cfg!(feature = "etcd"), 2379, "etcd"),
        (cfg!(feature = "mysql"), 3306, "mysql"),
        (cfg!(feature = "postgres"), 5432, "postgres"),
        (cfg!(feature = "redis"), 6379, "redis"),
        (cfg!(feature = "redis"), 26379, "redis-sentinel"),
        (cfg!(feature = "zk"), 2181, "zk"),
    ];
    for (_, port, scheme) in table.into_iter().filter(|(is_on, ..)| *is_on) {
        for host in ["localhost", "10.0.0.1", "[::1]"] {
            let text = format!("{host}:{port}/locks?namespace=a");
            let error = polylock::connect(&text).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{text}");
            let expected = format!("there is no scheme; did you mean {scheme}://{host}:{port}?");
            assert_eq!(error.message(), expected, "{text}");
        }
    }
}
