use std::time::Duration;

use polylock_core::{ErrorKind, LockUrl, Login};

use super::*;

fn read(url: &str) -> Result<ZooKeeperConfig> {
    ZooKeeperConfig::from_url(&LockUrl::parse(url)?)
}

#[test]
fn reads_hosts_and_the_root() {
    for (url, hosts, root) in [
        ("zk://a", &["a:2181"][..], "/locks"),
        ("zk://a/", &["a:2181"], "/locks"),
        ("zookeeper://a:1,b", &["a:1", "b:2181"], "/locks"),
        ("zk://[::1]:7,b/x", &["::1:7", "b:2181"], "/x"),
        ("zk://a/apps/shop%20a/", &["a:2181"], "/apps/shop a"),
    ] {
        let config = read(url).unwrap();
        let read = config
            .hosts
            .iter()
            .map(|(host, port)| format!("{host}:{port}"));
        assert_eq!(read.collect::<Vec<_>>(), hosts, "{url}");
        assert_eq!(config.root, root, "{url}");
    }
    let config = ZooKeeperConfig::new([("a", 1)]).with_root("/").unwrap();
    assert_eq!(config.root, "/");
}

#[test]
fn reads_every_parameter() {
    let config = read("zk://a").unwrap();
    assert_eq!(config.session_timeout, Duration::from_secs(20));
    assert_eq!(config.connect_timeout, Duration::from_secs(15));
    assert_eq!(config.timeout, Duration::from_secs(10));
    assert_eq!(config.compat, Compat::Curator);
    assert!(config.login.is_none() && config.tls.is_none());
    assert!(!config.strict);

    let config = read(
        "zk://me:s3%40c@a?access=creator-and-readers&auth=sasl&compat=kazoo&connect-timeout=3s\
         &session-timeout=5s&strict=on&timeout=2s&tls=on&tls-ca-file=/ca&tls-cert-file=/cert\
         &tls-key-file=/key",
    );
    let config = config.unwrap();
    let (auth, login) = config.login.as_ref().unwrap();
    let known = Login::new().with_username("me").with_password("s3@c");
    assert_eq!((*auth, login.known()), (Auth::Sasl, Some(&known)));
    assert_eq!(config.access(), NodeAccess::CreatorAndReaders);
    assert_eq!(config.compat, Compat::Kazoo);
    assert_eq!(config.connect_timeout, Duration::from_secs(3));
    assert_eq!(config.session_timeout, Duration::from_secs(5));
    assert_eq!(config.timeout, Duration::from_secs(2));
    assert!(config.strict);
    let tls = config.tls.unwrap();
    assert_eq!(tls.ca, Some("/ca".into()));
    assert_eq!(tls.identity, Some(("/cert".into(), "/key".into())));

    let config = read("zk://a?access=everybody&compat=curator-rw&auth=digest&tls=off");
    assert!(config.unwrap_err().message().contains("USER:PASSWORD"));
    let config = read("zk://a?access=everybody&compat=curator-rw").unwrap();
    assert_eq!(config.compat, Compat::CuratorReadWrite);
    assert_eq!(config.access(), NodeAccess::Everybody);
}

#[test]
fn nodes_belong_to_a_client_with_an_identity() {
    let plain = ZooKeeperConfig::new([("a", 1)]);
    let digest = plain.clone().with_digest_login("me", "pw").unwrap();
    let sasl = plain.clone().with_sasl_login("me", "pw").unwrap();
    let tls = plain.clone().with_tls_ca("/ca");
    let certificate = plain.clone().with_tls_identity("/cert", "/key");
    for (config, access, is_open) in [
        (plain.clone(), NodeAccess::Everybody, true),
        (tls, NodeAccess::Everybody, true),
        (
            plain.with_access(NodeAccess::Everybody),
            NodeAccess::Everybody,
            false,
        ),
        (digest.clone(), NodeAccess::Creator, false),
        (sasl, NodeAccess::Creator, false),
        (certificate, NodeAccess::Creator, false),
        (
            digest.with_access(NodeAccess::CreatorAndReaders),
            NodeAccess::CreatorAndReaders,
            false,
        ),
    ] {
        assert_eq!(config.access(), access, "{config:?}");
        assert_eq!(config.is_open_by_default(), is_open, "{config:?}");
    }
}

#[test]
fn a_password_is_never_shown() {
    for url in ["zk://me:s3cret@a", "zk://me:s3cret@a?auth=sasl"] {
        let config = read(url).unwrap();
        let shown = format!("{config:?} {:?}", config.login);
        assert!(shown.contains("me") && !shown.contains("s3cret"), "{shown}");
    }
    for url in [
        "zk://me:s3cret@a?timeout=5",
        "zk://me:s3cret@a//",
        "zk://m:e:s3cret@a?tls=x",
    ] {
        let error = read(url).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    }
}

#[test]
fn names_the_mistake() {
    for (url, says) in [
        ("zk:", "zk://HOST"),
        ("zk:/locks", "no host"),
        ("zk://a/locks//b", "no path of ZooKeeper"),
        ("zk://a/zookeeper/quota", "belongs to ZooKeeper"),
        ("zk://me@a", "without a password"),
        (
            "zk://me:pw@a?auth=sasl&password-file=/p",
            "leave one of them out",
        ),
        ("zk://me@a?password-file=/p", "auth=sasl"),
        ("zk://a?auth=sasl&password-file=/p", "auth=sasl"),
        ("zk://:pw@a", "without a user"),
        ("zk://a%3Ab:pw@a", "without a colon"),
        ("zk://a%22b:pw@a?auth=sasl", "without quotes"),
        ("zk://a?auth=sasl", "zk://USER:PASSWORD@HOST"),
        ("zk://me:pw@a?auth=kerberos", "one of"),
        ("zk://a?compat=curator-read", "one of"),
        ("zk://a?access=me", "one of"),
        ("zk://a?session-timeout=1ms", "200ms"),
        ("zk://a?session-timeout=11min", "and 10m"),
        ("zk://a?timeout=1ms", "100ms"),
        ("zk://a?timeout=5", "unit"),
        ("zk://a?connect-timeout=61s", "and 1m"),
        ("zk://a?tls-ca-file=/ca", "tls=on"),
        ("zk://a?tls=on&tls-key-file=/k", "belong together"),
        (
            "zk://a?sesion-timeout=1s",
            "did you mean \"session-timeout\"",
        ),
        ("zk://a?retention=1s", "unknown parameter"),
    ] {
        let error = read(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}: {error}");
        assert!(error.message().contains(says), "{url}: {error}");
    }
}

#[test]
fn a_root_is_an_absolute_path_of_plain_names() {
    for (path, read) in [
        ("/", "/"),
        ("/locks", "/locks"),
        ("/locks/", "/locks"),
        ("/a/zookeeper/ü b", "/a/zookeeper/ü b"),
        ("/zookeepers", "/zookeepers"),
    ] {
        assert_eq!(root(path).unwrap(), read);
    }
    for path in [
        "",
        "locks",
        "//",
        "/a//b",
        "/a/./b",
        "/a/..",
        "/a\n",
        "/\u{e000}",
    ] {
        assert!(root(path).is_err(), "{path:?}");
    }
    for path in ["/zookeeper", "/zookeeper/", "/zookeeper/quota"] {
        let error = root(path).unwrap_err();
        assert!(error.message().contains("belongs to ZooKeeper"), "{error}");
    }
}
