use std::time::Duration;

use polylock_core::{ErrorKind, LockUrl, Login};

use super::*;

fn read(url: &str) -> Result<EtcdConfig> {
    EtcdConfig::from_url(&LockUrl::parse(url)?)
}

#[test]
fn reads_hosts_and_the_prefix() {
    let hosts = |hosts: &[(&str, u16)]| {
        let hosts = hosts.iter().map(|(host, port)| ((*host).to_owned(), *port));
        hosts.collect::<Vec<_>>()
    };
    for (url, names, prefix) in [
        ("etcd://a", hosts(&[("a", 2379)]), "locks"),
        ("etcd://a/", hosts(&[("a", 2379)]), "locks"),
        ("etcd://a:1,b", hosts(&[("a", 1), ("b", 2379)]), "locks"),
        ("etcd://[::1]:7/x", hosts(&[("::1", 7)]), "x"),
        (
            "etcd://a/apps/my%20shop/",
            hosts(&[("a", 2379)]),
            "apps/my shop",
        ),
        ("etcd://a//locks", hosts(&[("a", 2379)]), "/locks"),
    ] {
        let config = read(url).unwrap();
        assert_eq!(
            (config.hosts, config.prefix.as_str()),
            (names, prefix),
            "{url}"
        );
    }
}

#[test]
fn the_methods_do_what_a_url_does() {
    let config = EtcdConfig::new([("a", 1), ("b", 2379)]).with_login("me", "s3@c");
    let config = config.with_prefix("apps/shop").unwrap();
    let config = config.with_connect_timeout(Duration::from_secs(3)).unwrap();
    let config = config.with_timeout(Duration::from_secs(2)).unwrap();
    let config = config.with_strict_checks();
    let config = config.with_tls_ca("/ca").with_tls_identity("/cert", "/key");
    let by_url = read(
        "etcd://me:s3%40c@a:1,b/apps/shop?connect-timeout=3s&timeout=2s&strict=on&tls=on\
         &tls-ca-file=/ca&tls-cert-file=/cert&tls-key-file=/key",
    );
    let by_url = by_url.unwrap();
    assert_eq!(format!("{config:?}"), format!("{by_url:?}"));
    // The password is not printed.
    let logins = [config.login, by_url.login].map(Option::unwrap);
    assert_eq!(logins[0].known(), logins[1].known());
}

#[test]
fn reads_every_parameter() {
    let config = read("etcd://a").unwrap();
    assert_eq!(config.connect_timeout, Duration::from_secs(10));
    assert_eq!(config.timeout, Duration::from_secs(10));
    assert!(config.login.is_none() && config.tls.is_none() && !config.strict);
    assert!(read("etcds://a").unwrap().tls.is_some());
    assert!(read("etcds://a?tls=off").unwrap().tls.is_none());

    let config = read(
        "etcd://me:s3%40c@a?connect-timeout=3s&strict=on&timeout=2s&tls=on&tls-ca-file=/ca\
         &tls-cert-file=/cert&tls-key-file=/key",
    );
    let config = config.unwrap();
    let known = Login::new().with_username("me").with_password("s3@c");
    assert_eq!(config.login.unwrap().known(), Some(&known));
    assert_eq!(config.connect_timeout, Duration::from_secs(3));
    assert_eq!(config.timeout, Duration::from_secs(2));
    assert!(config.strict);
    let tls = config.tls.unwrap();
    assert_eq!(tls.ca, Some("/ca".into()));
    assert_eq!(tls.identity, Some(("/cert".into(), "/key".into())));

    let config = read("etcd://me@a?password-file=/p").unwrap();
    assert!(config.login.is_some_and(|login| login.known().is_none()));
}

#[test]
fn a_password_is_never_shown() {
    let config = read("etcd://me:s3cret@a").unwrap();
    assert!(!format!("{config:?}").contains("s3cret"));
    for url in ["etcd://me:s3cret@a?timeout=5", "etcd://me:s3cret@a?tls=x"] {
        let error = read(url).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    }
}

#[test]
fn names_what_is_wrong() {
    for (url, says) in [
        ("etcd:", "etcd://HOST"),
        ("etcd://a///", "no prefix"),
        ("etcd://me@a", "without a password"),
        ("etcd://:pw@a", "without a user"),
        ("etcd://a?password-file=/p", "without a user"),
        ("etcd://a?timeout=1ms", "100ms"),
        ("etcd://a?timeout=5", "unit"),
        ("etcd://a?connect-timeout=61s", "and 1m"),
        ("etcd://a?tls-ca-file=/ca", "tls=on"),
        ("etcd://a?timout=1s", "did you mean \"timeout\""),
    ] {
        let error = read(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}: {error}");
        assert!(error.message().contains(says), "{url}: {error}");
    }
}

#[tokio::test]
async fn a_cluster_without_servers_is_refused() {
    let config = || EtcdConfig::new(Vec::<(String, u16)>::new());
    let connected = crate::Etcd::connect(config()).await.map(drop);
    let checked = crate::lock::check_health(config()).await.map(drop);
    for refused in [connected, checked] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
}
