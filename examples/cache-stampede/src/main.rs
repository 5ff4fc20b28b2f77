//! A cache stampede: a page has dropped out of the cache, and 200 requests to four instances of a
//! service want it at the same moment.
//!
//! ```console
//! $ cargo run -p cache-stampede
//! $ cargo run -p cache-stampede --features polylock/redis -- redis://localhost
//! ```
//!
//! Without a lock the page is computed 200 times, with single flight in each process four times. A
//! distributed lock alone only makes the 200 run one after the other: what helps is a second look
//! into the cache, under the lock.
//!
//! The lock saves work and protects nothing, so a request that times out computes without it.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use polylock::prelude::*;
use tokio::sync::{Barrier, OnceCell};
use tokio::task::JoinSet;

const REQUESTS: usize = 200;
const INSTANCES: usize = 4;
/// Longer than all requests take one after the other.
const TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    // A store in memory has a name, so that all connections of the process share it.
    run(url.as_deref().unwrap_or("memory:cache-stampede")).await
}

async fn run(url: &str) -> Result<()> {
    stampede(url, Way::NoLock, REQUESTS).await?;
    stampede(url, Way::SingleFlight, INSTANCES).await?;
    stampede(url, Way::LockAlone, REQUESTS).await?;
    stampede(url, Way::LockAndSecondLook, 1).await
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    LockAlone,
    LockAndSecondLook,
    NoLock,
    SingleFlight,
}

/// Sends all requests at once and counts how often the page is computed, and how often at the same time.
async fn stampede(url: &str, way: Way, expected: usize) -> Result<()> {
    let site = Arc::new(Site::new());
    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        instances.push(Arc::new(Instance {
            locks: polylock::connect(url).await?,
            flight: OnceCell::new(),
            site: Arc::clone(&site),
        }));
    }
    let start = Instant::now();
    let mut requests = JoinSet::new();
    for instance in instances.iter().cycle().take(REQUESTS) {
        let instance = Arc::clone(instance);
        requests.spawn(async move { instance.page(way).await });
    }
    for page in requests.join_all().await {
        ensure!(page?.starts_with("the front page"));
    }
    let (computed, at_once) = (site.computed.load(Relaxed), site.max_at_once.load(Relaxed));
    let (ms, name) = (start.elapsed().as_millis(), format!("{way:?}"));
    println!("{name:<17} computed {computed:>3} times, {at_once:>3} at once, {ms} ms");
    ensure!(computed == expected, "{way:?}: not {expected} times");
    let is_serial = matches!(way, Way::LockAlone | Way::LockAndSecondLook);
    ensure!((at_once == 1) == is_serial, "{way:?}: {at_once} at once");
    Ok(())
}

/// One process of the service.
struct Instance {
    locks: Arc<dyn DistributedLock>,
    flight: OnceCell<String>,
    site: Arc<Site>,
}

impl Instance {
    async fn page(&self, way: Way) -> Result<String> {
        if let Some(page) = self.site.cached() {
            return Ok(page);
        }
        // The worst case, made certain: every request has missed the cache.
        self.site.all_missed.wait().await;
        Ok(match way {
            Way::NoLock => self.site.compute().await,
            Way::SingleFlight => {
                let page = self.flight.get_or_init(|| self.site.compute());
                page.await.clone()
            }
            Way::LockAlone => {
                let _guard = self.lock().await?;
                self.site.compute().await
            }
            Way::LockAndSecondLook => {
                let _guard = self.lock().await?;
                match self.site.cached() {
                    Some(page) => page,
                    None => self.site.compute().await,
                }
            }
        })
    }

    /// `None` on timeout: a page that is computed twice is better than no page. Other errors are
    /// returned: a service that always computes without its lock should be noticed.
    async fn lock(&self) -> Result<Option<LockGuard>> {
        match self.locks.lock_within("page/front", TIMEOUT).await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.kind() == ErrorKind::Contended => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// What all instances share: the cache, and what computes pages.
struct Site {
    cache: Mutex<Option<String>>,
    computed: AtomicUsize,
    computing: AtomicUsize,
    max_at_once: AtomicUsize,
    all_missed: Barrier,
}

impl Site {
    fn new() -> Self {
        Self {
            cache: Mutex::default(),
            computed: AtomicUsize::new(0),
            computing: AtomicUsize::new(0),
            max_at_once: AtomicUsize::new(0),
            all_missed: Barrier::new(REQUESTS),
        }
    }

    fn cached(&self) -> Option<String> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.clone()
    }

    async fn compute(&self) -> String {
        let computing = self.computing.fetch_add(1, Relaxed) + 1;
        self.max_at_once.fetch_max(computing, Relaxed);
        tokio::time::sleep(Duration::from_millis(10)).await;
        let version = self.computed.fetch_add(1, Relaxed) + 1;
        let page = format!("the front page, version {version}");
        *self.cache.lock().unwrap_or_else(PoisonError::into_inner) = Some(page.clone());
        self.computing.fetch_sub(1, Relaxed);
        page
    }
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn lock_and_second_look_compute_once() -> anyhow::Result<()> {
        super::run("memory:test").await
    }
}
