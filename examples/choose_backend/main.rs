//! One program, three environments: the profile names the URL, the URL names the backend, and the
//! code that does the work knows neither.
//!
//! ```console
//! $ cargo run -p polylock-examples --example choose_backend
//! $ cargo run -p polylock-examples --example choose_backend -- --profile staging
//! $ APP_PROFILE=prod REDIS_URL=redis://cache \
//!     cargo run -p polylock-examples --example choose_backend
//! $ cargo run -p polylock-examples --example choose_backend -- --backend postgres://localhost/app
//! ```
//!
//! What the work needs it demands at the start, by [`Capabilities`], and not when the first request
//! comes in: a backend that cannot do it is a mistake in the configuration.
//!
//! Exits with 0 if every ticket was sold once, and a backend without tokens is refused.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use polylock::prelude::*;
use polylock::{Capabilities, Fencing, FencingToken};
use tokio::task::JoinSet;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The same work on whichever backend the configuration names.
#[derive(Debug, Parser)]
struct Options {
    /// The environment that this process runs in.
    #[arg(long, env = "APP_PROFILE", value_enum, default_value_t = Profile::Dev)]
    profile: Profile,
    /// Where the locks are, whatever the profile says.
    #[arg(long, value_name = "URL")]
    backend: Option<String>,
    /// Where the profile `prod` has its locks.
    #[arg(
        long,
        value_name = "URL",
        env = "REDIS_URL",
        default_value = "redis://localhost"
    )]
    redis: String,
    /// Refuses a backend that can lose acknowledged writes, and with them tokens.
    #[arg(long)]
    strong: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Profile {
    /// One process, nothing to install.
    Dev,
    /// Several processes on one machine.
    Staging,
    /// Several machines.
    Prod,
}

impl Options {
    /// A real profile names a path that all processes know; this one is gone with the example.
    fn url(&self, temporary: &Path) -> String {
        match (&self.backend, self.profile) {
            (Some(url), _) => url.clone(),
            // Without a name every connection would have a store of its own.
            (None, Profile::Dev) => "memory:choose_backend".to_owned(),
            (None, Profile::Staging) => {
                let file = temporary.join("locks.db");
                format!("sqlite:{}", file.display())
            }
            (None, Profile::Prod) => self.redis.clone(),
        }
    }

    fn needed(&self) -> Fencing {
        match self.strong {
            true => Fencing::Strong,
            false => Fencing::BestEffort,
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let mut out = io::stdout().lock();
    let directory = tempfile::tempdir()?;
    let sold = serve(&options.url(directory.path()), options.needed()).await?;
    sold.check()?;
    match options.backend {
        Some(_) => writeln!(out, "--backend: {sold}")?,
        None => writeln!(out, "profile {:?}: {sold}", options.profile)?,
    }

    let bare = Capabilities::least("a backend without tokens");
    match demand(bare, options.needed()) {
        Err(refused) => writeln!(out, "refused at the start: {refused}")?,
        Ok(()) => return Err("a backend without tokens was accepted".into()),
    }
    Ok(())
}

/// The service: connects, makes sure that the backend is good enough, and works.
async fn serve(url: &str, needed: Fencing) -> Result<Sold> {
    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        instances.push(polylock::connect(url).await?);
    }
    let backend = instances[0].capabilities();
    demand(backend, needed)?;
    let tickets = work(&instances).await?;
    for instance in instances {
        instance.shutdown(Duration::from_secs(5)).await;
    }
    Ok(Sold {
        backend: backend.backend,
        fencing: backend.fencing,
        tickets,
    })
}

/// Refuses a backend whose fencing tokens cannot be trusted as far as is needed.
fn demand(capabilities: Capabilities, needed: Fencing) -> Result<()> {
    let Capabilities {
        backend, fencing, ..
    } = capabilities;
    if fencing < needed {
        return Err(format!("fencing of {backend} is {fencing:?}, needed is {needed:?}").into());
    }
    Ok(())
}

const INSTANCES: usize = 2;
const TICKETS: u64 = 40;

/// Sells tickets at the counters of all instances.
async fn work(instances: &[Arc<dyn DistributedLock>]) -> Result<Vec<u64>> {
    let office = Arc::new(Office::default());
    let mut sales = JoinSet::new();
    for (_, locks) in (0..TICKETS).zip(instances.iter().cycle()) {
        let (locks, office) = (Arc::clone(locks), Arc::clone(&office));
        sales.spawn(async move { sell(&*locks, &office).await });
    }
    sales.join_all().await.into_iter().collect()
}

/// Reads and writes in two steps, so that two at a time would sell one ticket.
async fn sell(locks: &dyn DistributedLock, office: &Office) -> Result<u64> {
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
    use lock_testkit::servers::{RedisOptions, RedisServer};

    use super::*;

    async fn sold(url: &str) -> Sold {
        let sold = serve(url, Fencing::BestEffort).await.unwrap();
        sold.check().unwrap();
        sold
    }

    #[tokio::test]
    async fn one_function_works_on_all_three() {
        let directory = tempfile::tempdir().unwrap();
        let file = format!("sqlite:{}", directory.path().join("locks.db").display());
        let server = RedisServer::start(RedisOptions::new());
        assert_eq!(sold("memory:choose_backend").await.backend, "memory");
        assert_eq!(sold(&file).await.backend, "sqlite");
        assert_eq!(sold(&server.url()).await.backend, "redis");

        let refused = serve(&server.url(), Fencing::Strong).await.unwrap_err();
        let why = "fencing of redis is BestEffort, needed is Strong";
        assert_eq!(refused.to_string(), why);
    }

    #[tokio::test]
    async fn stores_that_do_not_meet_are_found_out() {
        // Two instances with a store each; which of them goes wrong first is up to chance.
        match serve("memory:", Fencing::BestEffort).await {
            Ok(sold) => assert!(sold.check().is_err()),
            Err(stale) => assert!(stale.to_string().contains("stale"), "{stale}"),
        }
    }

    #[test]
    fn a_backend_without_tokens_is_refused() {
        let bare = Capabilities::least("example");
        let refused = demand(bare, Fencing::BestEffort).unwrap_err();
        assert!(refused.to_string().contains("is Unavailable"), "{refused}");
        assert!(demand(bare, Fencing::Unavailable).is_ok());
    }

    #[test]
    fn a_url_goes_before_the_profile() {
        let here = Path::new("/here");
        let url = |args: &[&str]| Options::try_parse_from(args).unwrap().url(here);
        let dev = ["choose_backend", "--profile", "dev"];
        let staging = ["choose_backend", "--profile", "staging"];
        let prod = [
            "choose_backend",
            "--profile",
            "prod",
            "--redis",
            "redis://cache",
        ];
        let other = ["choose_backend", "--profile", "prod", "--backend", "zk://a"];
        assert_eq!(url(&dev), "memory:choose_backend");
        assert_eq!(url(&staging), "sqlite:/here/locks.db");
        assert_eq!(url(&prod), "redis://cache");
        assert_eq!(url(&other), "zk://a");
    }
}
