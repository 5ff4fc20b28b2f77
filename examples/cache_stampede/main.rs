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
//! it. Exits with 0 if the page was computed as often as is said here.

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
    let pages: HashSet<_> = requests.join_all().await.into_iter().collect();
    let took = begun.elapsed();
    for instance in instances {
        instance.locks.shutdown(PATIENCE).await;
    }
    Ok(Stampede {
        way,
        computed: site.computed.load(Ordering::Relaxed),
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
}

/// One process of the service.
struct Instance {
    locks: Arc<dyn DistributedLock>,
    /// What the requests of this process wait for together.
    flight: OnceCell<String>,
    site: Arc<Site>,
}

impl Instance {
    async fn page(&self, way: Way) -> String {
        if let Some(page) = self.site.cached() {
            return page;
        }
        // The worst case, made certain: nobody has computed before all of them have looked.
        self.site.missed.wait().await;
        match way {
            Way::NoLock => self.site.compute().await,
            Way::SingleFlight => {
                let computed = self.flight.get_or_init(|| self.site.compute());
                computed.await.clone()
            }
            Way::LockAlone => {
                let _held = self.lock().await;
                self.site.compute().await
            }
            Way::LockAndLook => {
                let _held = self.lock().await;
                match self.site.cached() {
                    Some(page) => page,
                    None => self.site.compute().await,
                }
            }
        }
    }

    /// `None` if the lock is not to be had: a page that is computed twice is better than none.
    async fn lock(&self) -> Option<LockGuard> {
        self.locks.lock_within("page/front", PATIENCE).await.ok()
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

/// What all instances share: the cache, and behind it what computes pages.
struct Site {
    cache: Mutex<Option<String>>,
    computed: AtomicUsize,
    missed: Barrier,
}

impl Site {
    fn new() -> Self {
        Self {
            cache: Mutex::default(),
            computed: AtomicUsize::new(0),
            missed: Barrier::new(REQUESTS),
        }
    }

    fn cached(&self) -> Option<String> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.clone()
    }

    async fn compute(&self) -> String {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let version = self.computed.fetch_add(1, Ordering::Relaxed) + 1;
        let page = format!("the front page, version {version}");
        *self.cache.lock().unwrap_or_else(PoisonError::into_inner) = Some(page.clone());
        page
    }
}

/// What one stampede cost.
#[derive(Debug)]
struct Stampede {
    way: Way,
    computed: usize,
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
        Ok(())
    }
}

impl fmt::Display for Stampede {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            way,
            computed,
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
             versions seen {pages}, {ms} ms"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn computed(way: Way) -> usize {
        let stampede = stampede("memory:cache_stampede", way).await.unwrap();
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
        for backend in ["memory:cache_stampede", &file] {
            let stampede = stampede(backend, Way::LockAndLook).await.unwrap();
            assert_eq!((stampede.computed, stampede.pages), (1, 1), "{backend}");
        }
    }

    #[test]
    fn another_cost_is_not_accepted() {
        let stampede = Stampede {
            way: Way::LockAndLook,
            computed: 2,
            pages: 2,
            took: Duration::ZERO,
        };
        assert!(stampede.check().is_err());
    }
}
