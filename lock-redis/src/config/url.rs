use polylock_core::{Error, LockUrl, Login, LoginSource, Params, Result};

use super::RedisConfig;

/// The schemes, the canonical one first.
pub(crate) const SCHEMES: &[&str] = &[
    "redis",
    "rediss",
    "redis+unix",
    "redis-sentinel",
    "redis-cluster",
    "redlock",
];

impl RedisConfig {
    /// Reads a URL and its parameters.
    ///
    /// | URL | servers |
    /// |---|---|
    /// | `redis://[user:password@]host[:6379][/database]` | one |
    /// | `rediss://...` | one, by TLS |
    /// | `redis+unix:/path/of/socket` | one on this machine; `username`, `password`, `database` are parameters |
    /// | `redis-sentinel://[user:password@]sentinel[:26379],.../master[/database]` | a master that Sentinels watch; user and password are those of the master |
    /// | `redis-cluster://[user:password@]node[:6379],...` | a cluster, found from any of its nodes |
    /// | `redlock://[user:password@]master[:6379],...[/database]` | a quorum of independent masters, three or more |
    ///
    /// | parameter | default | meaning |
    /// |---|---|---|
    /// | `connect-timeout=DURATION` | `1s` | see [`with_connect_timeout`](Self::with_connect_timeout) |
    /// | `database=NUMBER` | `0` | `redis+unix` only |
    /// | `min-replica-acks=NUMBER` | `0` | see [`with_replica_acks`](Self::with_replica_acks) |
    /// | `node-timeout=DURATION` | `250ms` | `redlock` only, see [`with_node_timeout`](Self::with_node_timeout) |
    /// | `password=TEXT` | none | `redis+unix` only |
    /// | `password-file=PATH` | none | a file with the password, read at each connection: see [`with_credentials`](Self::with_credentials) |
    /// | `push=on` or `off` | `on` | see [`without_push`](Self::without_push) |
    /// | `rejoin-delay=DURATION` | `30s` | `redlock` only, see [`with_rejoin_delay`](Self::with_rejoin_delay) |
    /// | `replica-ack-timeout=DURATION` | `500ms` | see [`with_replica_acks`](Self::with_replica_acks) |
    /// | `resp=3` or `2` | `3` | see [`with_resp2`](Self::with_resp2) |
    /// | `retention=DURATION` | `7days` | see [`with_retention`](Self::with_retention) |
    /// | `sentinel-password=TEXT` | none | `redis-sentinel` only, see [`with_sentinel_login`](Self::with_sentinel_login) |
    /// | `sentinel-password-file=PATH` | none | `redis-sentinel` only, see [`with_sentinel_credentials`](Self::with_sentinel_credentials) |
    /// | `sentinel-username=TEXT` | none | `redis-sentinel` only |
    /// | `strict=on` or `off` | `off` | see [`with_strict_checks`](Self::with_strict_checks) |
    /// | `timeout=DURATION` | `1s` | see [`with_timeout`](Self::with_timeout) |
    /// | `tls=on` or `off` | `on` for `rediss`, else `off` | see [`with_tls`](Self::with_tls) |
    /// | `tls-ca-file=PATH` | those of the system | see [`with_tls_ca`](Self::with_tls_ca) |
    /// | `tls-cert-file=PATH` | none | see [`with_tls_identity`](Self::with_tls_identity) |
    /// | `tls-key-file=PATH` | none | see [`with_tls_identity`](Self::with_tls_identity) |
    /// | `username=TEXT` | none | `redis+unix` only |
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) names what is wrong with the URL.
    pub fn from_url(url: &LockUrl) -> Result<Self> {
        let mut params = url.params();
        let mut config = match url.scheme() {
            "redis+unix" => unix(url, &mut params)?,
            "redis-cluster" => cluster(url)?,
            "redis-sentinel" => sentinel(url, &mut params)?,
            "redlock" => quorum(url, &mut params)?,
            _ => single(url)?,
        };
        if url.scheme() != "redis+unix" {
            let (username, password) = (url.username(), url.password());
            config.login = login(&mut params, username, password, "password-file")?;
        }
        tls(url, &mut params, &mut config)?;
        let config = common(&mut params, config)?;
        params.finish()?;
        Ok(config)
    }
}

fn single(url: &LockUrl) -> Result<RedisConfig> {
    let host = url.expect_host()?;
    let config = RedisConfig::new(&host.name, host.port_or(PORT));
    Ok(config.with_database(database(url.path().trim_start_matches('/'))?))
}

fn unix(url: &LockUrl, params: &mut Params<'_>) -> Result<RedisConfig> {
    let mut config = RedisConfig::unix(url.expect_file()?);
    let (username, password) = (params.string("username"), params.string("password"));
    config.login = login(params, username, password, "password-file")?;
    if let Some(number) = params.integer("database", 0..=LAST_DATABASE)? {
        config = config.with_database(number);
    }
    Ok(config)
}

fn cluster(url: &LockUrl) -> Result<RedisConfig> {
    if !matches!(url.path(), "" | "/" | "/0") {
        return Err(Error::config(
            "a cluster has database 0 only, leave the path out",
        ));
    }
    Ok(RedisConfig::cluster(hosts(url, PORT)?))
}

fn sentinel(url: &LockUrl, params: &mut Params<'_>) -> Result<RedisConfig> {
    let sentinels = hosts(url, SENTINEL_PORT)?;
    let path = url.path().trim_start_matches('/');
    let (master, number) = path.split_once('/').unwrap_or((path, ""));
    if master.is_empty() {
        return Err(Error::config(
            "there is no master, write redis-sentinel://SENTINEL,SENTINEL/MASTER",
        ));
    }
    let config = RedisConfig::sentinel(sentinels, master);
    let mut config = config.with_database(database(number)?);
    let username = params.string("sentinel-username");
    let password = params.string("sentinel-password");
    config.sentinel_login = login(params, username, password, "sentinel-password-file")?;
    Ok(config)
}

fn quorum(url: &LockUrl, params: &mut Params<'_>) -> Result<RedisConfig> {
    let config = RedisConfig::quorum(hosts(url, PORT)?);
    config.masters()?;
    let mut config = config.with_database(database(url.path().trim_start_matches('/'))?);
    if let Some(delay) = params.duration("rejoin-delay")? {
        config = config.with_rejoin_delay(delay)?;
    }
    match params.duration("node-timeout")? {
        Some(timeout) => config.with_node_timeout(timeout),
        None => Ok(config),
    }
}

fn tls(url: &LockUrl, params: &mut Params<'_>, config: &mut RedisConfig) -> Result<()> {
    if url.scheme() == "redis+unix" {
        return Ok(());
    }
    let is_on = url.scheme() == "rediss";
    config.tls = params.tls(is_on)?;
    if is_on && config.tls.is_none() {
        return Err(Error::config(
            "rediss is TLS, write redis: or leave tls=off out",
        ));
    }
    Ok(())
}

fn common(params: &mut Params<'_>, mut config: RedisConfig) -> Result<RedisConfig> {
    if let Some(timeout) = params.duration("timeout")? {
        config = config.with_timeout(timeout)?;
    }
    if let Some(timeout) = params.duration("connect-timeout")? {
        config = config.with_connect_timeout(timeout)?;
    }
    if let Some(retention) = params.duration("retention")? {
        config = config.with_retention(retention);
    }
    let acks = params.integer("min-replica-acks", 0..=100)?;
    let within = params.duration("replica-ack-timeout")?;
    let within = within.unwrap_or(RedisConfig::DEFAULT_REPLICA_ACK_TIMEOUT);
    config = config.with_replica_acks(acks.unwrap_or(0), within)?;
    if params.one_of("resp", &["2", "3"])? == Some("2") {
        config = config.with_resp2();
    }
    if params.bool("push")? == Some(false) {
        config = config.without_push();
    }
    if params.bool("strict")? == Some(true) {
        config = config.with_strict_checks();
    }
    Ok(config)
}

fn hosts(url: &LockUrl, port: u16) -> Result<impl Iterator<Item = (&str, u16)>> {
    let hosts = url.expect_hosts()?.iter();
    Ok(hosts.map(move |host| (&*host.name, host.port_or(port))))
}

fn login(
    params: &mut Params<'_>,
    username: Option<&str>,
    password: Option<&str>,
    file: &'static str,
) -> Result<LoginSource> {
    let login = params.login(username, password, file)?;
    let lacks_password = |login: &Login| login.username().is_some() && login.password().is_none();
    if login.known().is_some_and(lacks_password) {
        return Err(Error::config("there is a user without a password"));
    }
    Ok(login)
}

fn database(text: &str) -> Result<u32> {
    match text.trim_end_matches('/') {
        "" => Ok(0),
        text => match text.parse() {
            Ok(number @ 0..=LAST_DATABASE) => Ok(number),
            _ => Err(Error::config(
                "the path is the number of a database, such as /0; a prefix of the keys is written \
                 ?namespace=PREFIX",
            )),
        },
    }
}

/// The port of a URL that names none; a socket has none.
pub(crate) fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "redis+unix" => None,
        "redis-sentinel" => Some(SENTINEL_PORT),
        _ => Some(PORT),
    }
}

const LAST_DATABASE: u32 = 1_000_000;
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use polylock_core::ErrorKind;

    use super::super::{Endpoint, Servers};
    use super::*;

    fn read(url: &str) -> Result<RedisConfig> {
        RedisConfig::from_url(&LockUrl::parse(url)?)
    }

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::tcp(host, port)
    }

    #[test]
    fn reads_every_scheme() {
        let sentinels = vec![tcp("s1", 1), tcp("s2", 26379)];
        let master = "main".to_owned();
        let nodes = vec![tcp("a", 6379), tcp("::1", 7), tcp("c", 6379)];
        for (url, servers) in [
            ("redis://a", Servers::Standalone(tcp("a", 6379))),
            ("redis://[::1]:7/2", Servers::Standalone(tcp("::1", 7))),
            ("rediss://a", Servers::Standalone(tcp("a", 6379))),
            (
                "redis+unix:/run/r.sock",
                Servers::Standalone(Endpoint::Unix("/run/r.sock".into())),
            ),
            (
                "redis-sentinel://s1:1,s2/main",
                Servers::Sentinel { sentinels, master },
            ),
            (
                "redis-cluster://a,[::1]:7,c/0",
                Servers::Cluster(nodes.clone()),
            ),
            ("redlock://a,[::1]:7,c", Servers::Quorum(nodes)),
        ] {
            assert_eq!(read(url).unwrap().servers, servers, "{url}");
        }
    }

    #[test]
    fn reads_every_parameter() {
        let config = read(
            "redis-sentinel://me:s3%40c@s1/main/4?timeout=2s&connect-timeout=3s&retention=1day\
             &min-replica-acks=2&replica-ack-timeout=100ms&resp=2&push=off&strict=on&tls=on\
             &tls-ca-file=/ca&tls-cert-file=/cert&tls-key-file=/key&sentinel-username=you\
             &sentinel-password=p4ss",
        );
        let config = config.unwrap();
        let login = |user: &str, word: &str| Login::new().with_username(user).with_password(word);
        assert_eq!(config.login.known(), Some(&login("me", "s3@c")));
        assert_eq!(config.sentinel_login.known(), Some(&login("you", "p4ss")));
        assert_eq!(config.database, 4);
        assert_eq!(config.timeout, Duration::from_secs(2));
        assert_eq!(config.connect_timeout, Duration::from_secs(3));
        assert_eq!(config.retention, Duration::from_secs(86_400));
        assert_eq!(config.replica_acks, 2);
        assert_eq!(config.replica_ack_timeout, Duration::from_millis(100));
        assert!(!config.resp3 && !config.push && config.strict);
        let tls = config.tls.clone().unwrap();
        assert_eq!(tls.ca, Some("/ca".into()));
        assert_eq!(tls.identity, Some(("/cert".into(), "/key".into())));
        let shown = format!("{config:?}");
        assert!(
            !shown.contains("s3@c") && !shown.contains("p4ss"),
            "{shown}"
        );

        let config = read("redis+unix:/r?username=u&password=w&database=9").unwrap();
        assert_eq!(config.login.known(), Some(&login("u", "w")));
        assert_eq!(config.database, 9);
        let config = read("redlock://:w@a,b,c/1?node-timeout=20ms&rejoin-delay=0s").unwrap();
        assert!(config.rejoin_delay.is_zero());
        let password = Login::new().with_password("w");
        assert_eq!(config.login.known(), Some(&password));
        assert_eq!(config.node_timeout, Duration::from_millis(20));
        assert!(read("rediss://a").unwrap().tls.is_some());
        assert!(read("redis://a?tls=on").unwrap().tls.is_some());
        assert!(read("redis://a").unwrap().tls.is_none());
    }

    #[test]
    fn names_the_mistake() {
        for (url, says) in [
            ("redis:", "redis://HOST"),
            ("redis://a,b", "one host"),
            ("redis://a/shop", "namespace=PREFIX"),
            ("redis://me@a", "without a password"),
            ("redis://:w@a?password-file=/p", "leave one of them out"),
            ("redis://a?timeout=1ms", "100ms"),
            ("redis://a?timeout=5", "unit"),
            ("redis://a?resp=4", "one of"),
            ("redis://a?node-timeout=1s", "unknown parameter"),
            ("redis://a?sentinel-password=x", "unknown parameter"),
            ("redis://a?tls-ca-file=/ca", "tls=on"),
            ("rediss://a?tls=off", "rediss is TLS"),
            ("rediss://a?tls-cert-file=/c", "belong together"),
            ("redis://a?tiemout=1s", "did you mean \"timeout\""),
            ("redis+unix://a", "redis+unix:"),
            ("redis+unix:/r?tls=on", "unknown parameter"),
            ("redis-sentinel://a", "MASTER"),
            ("redis-cluster://a/1", "database 0 only"),
            ("redlock://a,b", "at least 3"),
            ("redlock://a,b,a", "twice"),
            ("redlock://a,b,c?node-timeout=1ms", "10ms"),
            ("redlock://a,b,c?rejoin-delay=2days", "1day"),
            ("redis://a?rejoin-delay=1s", "unknown parameter"),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}: {error}");
            assert!(error.message().contains(says), "{url}: {error}");
        }
    }
}
