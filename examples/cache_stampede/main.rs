//! A cache stampede: the entry of a page has run out, and 200 requests to four instances of a
//! service want it at the same moment.
//!
//! ```console
//! $ cargo run -p polylock-examples --example cache_stampede
//! $ cargo run -p polylock-examples --example cache_stampede -- --backend redis://localhost
//! ```
//!
//! Without a lock the page is computed 200 times, and once per instance where each process looks
//! after itself. A distributed lock alone changes nothing but the time it takes: the 200 come one
//! after the other. It takes a second look into the cache, under the lock.
//!
//! The lock saves work and protects nothing: who does not get it in time computes the page without
//! it. Exits with 0 if the page was computed as often as is said here, by one at a time where there
//! is a lock, and by several where there is none.

use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use polylock::prelude::*;
use tokio::sync::{Barrier, OnceCell};
use tokio::task::JoinSet;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// What 200 requests for a cold cache entry cost, with a lock and without.
#[derive(Parser)]
struct Options {
    /// Where the locks are. A memory store has a name, so that the instances share it.
    #[arg(long, value_name = "URL", default_value = "memory:cache_stampede")]
    backend: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let mut out = io::stdout().lock();
    for way in Way::ALL {
        let stampede = stampede(&options.backend, way).await?;
        writeln!(out, "{stampede}")?;
        stampede.check()?;
    }
    Ok(())
}

const REQUESTS: usize = 200;
const INSTANCES: usize = 4;

/// Sends all requests at once, and counts what they cost.
async fn stampede(backend: &str, way: Way) -> Result<Stampede> {
    let site = Arc::new(Site::new());
    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        instances.push(Arc::new(Instance {
            locks: polylock::connect(backend).await?,
            flight: OnceCell::new(),
            site: Arc::clone(&site),
        }));
    }
    let begun = Instant::now();
    let mut requests = JoinSet::new();
    for instance in instances.iter().cycle().take(REQUESTS) {
        let instance = Arc::clone(instance);
        requests.spawn(async move { instance.page(way).await });
    }
    let pages = requests.join_all().await.into_iter();
    let pages = pages.collect::<Result<HashSet<_>>>()?;
    let took = begun.elapsed();
    for instance in instances {
        instance.locks.shutdown(PATIENCE).await;
    }
    Ok(Stampede {
        way,
        computed: site.computed.load(Ordering::Relaxed),
        at_once: site.at_once.load(Ordering::Relaxed),
        pages: pages.len(),
        took,
    })
}

/// How an instance answers a request for a page that is not in the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Computes it.
    NoLock,
    /// Computes it unless this process is about to.
    SingleFlight,
    /// Computes it under the lock.
    LockAlone,
    /// Looks again under the lock.
    LockAndLook,
}

impl Way {
    const ALL: [Self; 4] = [
        Self::NoLock,
        Self::SingleFlight,
        Self::LockAlone,
        Self::LockAndLook,
    ];

    /// How often the page is computed in this way.
    fn cost(self) -> usize {
        match self {
            Self::NoLock | Self::LockAlone => REQUESTS,
            Self::SingleFlight => INSTANCES,
            Self::LockAndLook => 1,
        }
    }

    fn is_serial(self) -> bool {
        matches!(self, Self::LockAlone | Self::LockAndLook)
    }
}

/// One process of the service.
struct Instance {
    locks: Arc<dyn DistributedLock>,
    /// What the requests of this process wait for together.
    flight: OnceCell<String>,
    site: Arc<Site>,
}

impl Instance {
    async fn page(&self, way: Way) -> Result<String> {
        if let Some(page) = self.site.cached() {
            return Ok(page);
        }
        // The worst case, made certain: nobody has computed before all of them have looked.
        self.site.missed.wait().await;
        Ok(match way {
            Way::NoLock => self.site.compute().await,
            Way::SingleFlight => {
                let computed = self.flight.get_or_init(|| self.site.compute());
                computed.await.clone()
            }
            Way::LockAlone => {
                let _held = self.lock().await?;
                self.site.compute().await
            }
            Way::LockAndLook => {
                let _held = self.lock().await?;
                match self.site.cached() {
                    Some(page) => page,
                    None => self.site.compute().await,
                }
            }
        })
    }

    /// `None` if the lock is not to be had in time: a page that is computed twice is better than
    /// none. Anything else that goes wrong is not hidden: a service that always computes without
    /// its lock should be noticed.
    async fn lock(&self) -> Result<Option<LockGuard>> {
        match self.locks.lock_within("page/front", PATIENCE).await {
            Ok(held) => Ok(Some(held)),
            Err(late) if late.kind() == ErrorKind::Contended => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Longer than all requests take one after the other.
const PATIENCE: Duration = Duration::from_secs(30);

/// What all instances share: the cache, and behind it what computes pages.
struct Site {
    cache: Mutex<Option<String>>,
    computed: AtomicUsize,
    computing: AtomicUsize,
    /// The most that were computing at the same time.
    at_once: AtomicUsize,
    missed: Barrier,
}

impl Site {
    fn new() -> Self {
        Self {
            cache: Mutex::default(),
            computed: AtomicUsize::new(0),
            computing: AtomicUsize::new(0),
            at_once: AtomicUsize::new(0),
            missed: Barrier::new(REQUESTS),
        }
    }

    fn cached(&self) -> Option<String> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.clone()
    }

    async fn compute(&self) -> String {
        let computing = self.computing.fetch_add(1, Ordering::Relaxed) + 1;
        self.at_once.fetch_max(computing, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(10)).await;
        let version = self.computed.fetch_add(1, Ordering::Relaxed) + 1;
        let page = format!("the front page, version {version}");
        *self.cache.lock().unwrap_or_else(PoisonError::into_inner) = Some(page.clone());
        self.computing.fetch_sub(1, Ordering::Relaxed);
        page
    }
}

/// What one stampede cost.
#[derive(Debug)]
struct Stampede {
    way: Way,
    computed: usize,
    at_once: usize,
    /// How many different versions the requests were answered with.
    pages: usize,
    took: Duration,
}

impl Stampede {
    fn check(&self) -> Result<()> {
        let cost = self.way.cost();
        if (self.computed, self.pages) != (cost, cost) {
            return Err(format!("{self}, not {cost}").into());
        }
        if (self.at_once == 1) != self.way.is_serial() {
            return Err(format!("{self}: not what a lock makes of it").into());
        }
        Ok(())
    }
}

impl fmt::Display for Stampede {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            way,
            computed,
            at_once,
            pages,
            took,
        } = self;
        let way = match way {
            Way::NoLock => "no lock",
            Way::SingleFlight => "single flight in each process",
            Way::LockAlone => "distributed lock alone",
            Way::LockAndLook => "distributed lock and second look",
        };
        let ms = took.as_millis();
        write!(
            f,
            "{way}: {REQUESTS} requests, {INSTANCES} instances, computed {computed}, \
             at once {at_once}, versions seen {pages}, {ms} ms"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn computed(way: Way) -> usize {
        // A store for each test: they would wait for each other's locks.
        let backend = format!("memory:{way:?}");
        let stampede = stampede(&backend, way).await.unwrap();
        stampede.check().unwrap();
        stampede.computed
    }

    #[tokio::test]
    async fn without_a_lock_every_request_computes() {
        assert_eq!(computed(Way::NoLock).await, 200);
    }

    #[tokio::test]
    async fn single_flight_is_one_per_instance() {
        assert_eq!(computed(Way::SingleFlight).await, 4);
    }

    #[tokio::test]
    async fn a_lock_without_a_second_look_computes_for_each_in_turn() {
        assert_eq!(computed(Way::LockAlone).await, 200);
    }

    #[tokio::test]
    async fn with_the_lock_and_a_second_look_one_computes() {
        let directory = tempfile::tempdir().unwrap();
        let file = format!("sqlite:{}", directory.path().join("locks.db").display());
        for backend in ["memory:one_computes", &file] {
            let stampede = stampede(backend, Way::LockAndLook).await.unwrap();
            stampede.check().unwrap();
            assert_eq!((stampede.computed, stampede.pages), (1, 1), "{backend}");
        }
    }

    #[test]
    fn another_cost_is_not_accepted() {
        let check = |way, computed, at_once| {
            let stampede = Stampede {
                way,
                computed,
                at_once,
                pages: computed,
                took: Duration::ZERO,
            };
            stampede.check()
        };
        assert!(check(Way::LockAndLook, 1, 1).is_ok());
        assert!(check(Way::LockAndLook, 2, 1).is_err());
        assert!(check(Way::LockAlone, 200, 1).is_ok());
        assert!(check(Way::LockAlone, 200, 2).is_err());
        assert!(check(Way::NoLock, 200, 1).is_err());
    }
}
