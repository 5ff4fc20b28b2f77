//! One program, every backend: the configuration says where the locks are and what they need, and
//! the code that does the work knows neither.
//!
//! ```console
//! $ cargo run -p polylock-examples --example choose_backend
//! $ cargo run -p polylock-examples --example choose_backend -- --profile staging
//! $ LOCK_PROFILE=prod REDIS_URL=redis://cache \
//!     cargo run -p polylock-examples --example choose_backend
//! $ cargo run -p polylock-examples --example choose_backend -- --config lock.toml
//! $ cargo run -p polylock-examples --example choose_backend -- --backend postgres://localhost/app
//! ```
//!
//! What the work needs a class of locks requires, and connecting fails if the backend does not have
//! it: a mistake in the configuration shows at the start and not when the first request comes in.
//!
//! Exits with 0 if every ticket was sold once, and a backend that lacks something is refused.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use polylock::config::{Config, ConfiguredLocks, Loader, Scope};
use polylock::{Fencing, FencingToken};
use tokio::task::JoinSet;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The same work on whichever backend the configuration names.
#[derive(Debug, Parser)]
struct Options {
    /// The configuration, with a class of locks "tickets"; without it there are three profiles.
    #[arg(long, value_name = "FILE", env = "LOCK_CONFIG")]
    config: Option<PathBuf>,
    /// The backend of the configuration, in place of LOCK_PROFILE and of its default.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Where the locks are, whatever the configuration says.
    #[arg(long, value_name = "URL")]
    backend: Option<String>,
    /// The class of locks of the configuration.
    #[arg(long, value_name = "NAME", default_value = "tickets")]
    class: String,
}

/// The configuration of those who name none. A real one names a path that all processes know; the
/// file of this one is gone with the example.
const PROFILES: &str = r#"
    default = "dev"
    namespace = "box-office"

    [backend.dev]                       # one process, nothing to install
    url = "memory:choose_backend"       # without a name every connection has its own store

    [backend.staging]                   # several processes on one machine
    url-file = "staging.url"

    [backend.prod]                      # several machines
    url-env = "REDIS_URL"

    [lock.tickets]
    ttl = "10s"
    require = ["fencing"]

    [lock.audited]                      # refused where acknowledged writes can be lost
    require = ["strong-fencing"]

    [lock.queue]                        # refused where nobody keeps the order of arrival
    backend = "staging"
    require = ["fair"]
"#;

impl Options {
    fn load(&self, directory: &Path) -> Result<Config> {
        let mut loader = Loader::new().with_scope(Scope::Class(self.class.clone()));
        if let Some(profile) = &self.profile {
            loader = loader.with_profile(profile);
        }
        if let Some(url) = &self.backend {
            loader = loader.with_url(url);
        }
        if let Some(file) = &self.config {
            return Ok(loader.load(file)?);
        }
        let file = directory.join("lock.toml");
        let staging = format!("sqlite:{}", directory.join("locks.db").display());
        std::fs::write(directory.join("staging.url"), staging)?;
        std::fs::write(&file, PROFILES)?;
        Ok(loader.load(file)?)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let mut out = io::stdout().lock();
    let directory = tempfile::tempdir()?;
    let config = options.load(directory.path())?;
    let sold = serve(&config, &options.class).await?;
    sold.check()?;
    writeln!(out, "{sold}")?;

    let fair = Options::parse_from(["choose_backend", "--class", "queue"]);
    match fair.load(directory.path())?.connect().await {
        Err(refused) => writeln!(out, "refused at the start: {refused}")?,
        Ok(_) => return Err("SQLite was taken for fair".into()),
    }
    Ok(())
}

/// The service: connects, which makes sure that the backend is good enough, and works.
async fn serve(config: &Config, class: &str) -> Result<Sold> {
    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        instances.push(config.connect().await?);
    }
    let mut locks = Vec::new();
    for instance in &instances {
        locks.push(instance.class(class)?.clone());
    }
    let backend = locks[0].capabilities();
    let tickets = work(&locks).await?;
    for instance in instances {
        instance.shutdown(Duration::from_secs(5)).await;
    }
    Ok(Sold {
        backend: backend.backend,
        fencing: backend.fencing,
        tickets,
    })
}

const INSTANCES: usize = 2;
const TICKETS: u64 = 40;

/// Sells tickets at the counters of all instances.
async fn work(instances: &[ConfiguredLocks]) -> Result<Vec<u64>> {
    let office = Arc::new(Office::default());
    let mut sales = JoinSet::new();
    for (_, locks) in (0..TICKETS).zip(instances.iter().cycle()) {
        let (locks, office) = (locks.clone(), Arc::clone(&office));
        sales.spawn(async move { sell(&locks, &office).await });
    }
    sales.join_all().await.into_iter().collect()
}

/// Reads and writes in two steps, so that two at a time would sell one ticket.
async fn sell(locks: &ConfiguredLocks, office: &Office) -> Result<u64> {
    let guard = locks.lock("tickets").await?;
    let token = guard.fencing_token().ok_or("the demand was not met")?;
    let ticket = office.last() + 1;
    tokio::task::yield_now().await;
    office.write(ticket, token)?;
    guard.release().await?;
    Ok(ticket)
}

/// The database, which keeps the last ticket and the largest token.
#[derive(Default)]
struct Office(Mutex<(u64, u64)>);

impl Office {
    fn last(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn write(&self, ticket: u64, token: FencingToken) -> Result<()> {
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if token.value() < books.1 {
            return Err(format!("token {token} is stale").into());
        }
        *books = (ticket, token.value());
        Ok(())
    }
}

/// What was sold, and by which locks.
#[derive(Debug)]
struct Sold {
    backend: &'static str,
    fencing: Fencing,
    tickets: Vec<u64>,
}

impl Sold {
    fn check(&self) -> Result<()> {
        let mut tickets = self.tickets.clone();
        tickets.sort_unstable();
        if !tickets.iter().copied().eq(1..=TICKETS) {
            return Err(format!("sold {tickets:?}").into());
        }
        Ok(())
    }
}

impl fmt::Display for Sold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            backend,
            fencing,
            tickets,
        } = self;
        write!(
            f,
            "{INSTANCES} instances on {backend} (fencing {fencing:?}) sold {} tickets, none twice",
            tickets.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use lock_testkit::servers::{
        MariaDbServer, PostgresServer, RedisOptions, RedisServer, ZooKeeperServer,
    };

    use super::*;

    /// What the program sells with a file of this text.
    async fn sold(text: &str, options: &[&str]) -> Result<Sold> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("lock.toml");
        std::fs::write(&file, text)?;
        let config = ["choose_backend", "--config", file.to_str().expect("UTF-8")];
        let options = Options::try_parse_from(config.iter().chain(options))?;
        serve(&options.load(directory.path())?, &options.class).await
    }

    #[tokio::test]
    async fn the_same_program_works_on_every_backend_by_configuration_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let redis = RedisServer::start(RedisOptions::new());
        let places = [
            ("memory", "memory:every_backend".to_owned()),
            (
                "sqlite",
                format!("sqlite:{}", directory.path().join("locks.db").display()),
            ),
            ("redis", redis.url()),
            ("postgres", PostgresServer::shared().database()),
            ("mysql", MariaDbServer::shared().database()),
            ("zookeeper", ZooKeeperServer::shared().url()),
        ];
        for (kind, url) in places {
            let file = format!(
                "namespace = 'every-backend'\n[backend.main]\nurl = '{url}'\n\
                 [lock.tickets]\nttl = '10s'\nrequire = ['fencing']\n"
            );
            let sold = sold(&file, &[]).await;
            let sold = sold.unwrap_or_else(|error| panic!("{kind}: {error}"));
            sold.check()
                .unwrap_or_else(|error| panic!("{kind}: {error}"));
            assert_eq!(sold.backend, kind);
        }
    }

    #[tokio::test]
    async fn a_demand_that_is_not_met_is_told_at_the_start() {
        let redis = RedisServer::start(RedisOptions::new());
        let file = format!(
            "[backend.main]\nurl = '{}'\n[lock.tickets]\nrequire = ['strong-fencing']\n",
            redis.url()
        );
        let refused = sold(&file, &[]).await.unwrap_err().to_string();
        let why = "requires strong-fencing, which redis of its backend \"main\" does not have";
        assert!(refused.contains(why), "{refused}");
    }

    #[tokio::test]
    async fn stores_that_do_not_meet_are_found_out() {
        // Two instances with a store each; which of them goes wrong first is up to chance.
        match sold("backend.main.url = 'memory:'\n[lock.tickets]\n", &[]).await {
            Ok(sold) => assert!(sold.check().is_err()),
            Err(stale) => assert!(stale.to_string().contains("stale"), "{stale}"),
        }
    }

    #[test]
    fn each_profile_has_a_place_and_a_url_goes_before_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let url = |options: &[&str]| {
            let options = Options::try_parse_from(["choose_backend"].iter().chain(options));
            let config = options.expect("options").load(directory.path());
            let config = config.expect("no mistakes");
            let opened = config.backends().find(|backend| backend.is_opened());
            let url = opened
                .and_then(|backend| backend.url())
                .map(ToString::to_string);
            url.expect("a URL").replace("?namespace=box-office", "")
        };
        let staging = format!("sqlite:{}", directory.path().join("locks.db").display());
        assert_eq!(url(&[]), "memory:choose_backend");
        assert_eq!(url(&["--profile", "staging"]), staging);
        assert_eq!(url(&["--class", "queue"]), staging);
        assert_eq!(
            url(&["--profile", "staging", "--backend", "zk://a"]),
            "zk://a"
        );
    }
}
