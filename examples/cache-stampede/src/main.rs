//! A cache stampede: a page has dropped out of the cache, and 200 requests to four instances of a
//! service want it at the same moment.
//!
//! ```console
//! $ cargo run -p cache-stampede
//! $ cargo run -p cache-stampede --features polylock/redis -- redis://localhost
//! ```
//!
//! Without a lock the page is computed 200 times, with single flight in each process four times. A
//! distributed lock alone only makes the 200 run one after the other: what helps is to read the cache a
//! second time, under the lock.
//!
//! Where each request wants another page, permits keep more than three from being computed at once.
//!
//! The lock saves work and protects nothing, so a request that times out computes without it.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use polylock::prelude::*;
use tokio::sync::{Barrier, OnceCell};

const REQUESTS: usize = 200;
const INSTANCES: usize = 4;
const PERMITS: NonZeroU32 = NonZeroU32::new(3).expect("three is not zero");
const PAGES: usize = 12;
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
    stampede(url, Way::LockAndSecondRead, 1).await?;
    cold_cache(url).await
}

#[derive(Clone, Copy, Debug)]
enum Way {
    LockAlone,
    LockAndSecondRead,
    NoLock,
    SingleFlight,
}

/// Sends all requests at once, and counts how often the page is computed.
async fn stampede(url: &str, way: Way, expected: usize) -> Result<()> {
    let site = Site {
        cache: OnceLock::new(),
        computed: AtomicUsize::new(0),
        all_missed: Barrier::new(REQUESTS),
    };
    let mut service = Vec::new();
    for _ in 0..INSTANCES {
        service.push(Instance {
            locks: polylock::connect(url).await?,
            flight: OnceCell::new(),
            site: &site,
        });
    }
    let start = Instant::now();
    let requests = service.iter().cycle().take(REQUESTS);
    try_join_all(requests.map(|instance| instance.page(way))).await?;
    let (computed, ms) = (site.computed.load(Relaxed), start.elapsed().as_millis());
    println!("{way:?}: computed {computed} times in {ms} ms");
    ensure!(computed == expected, "{way:?}: not {expected} times");
    Ok(())
}

/// Requests for different pages: all are computed, a few at a time.
async fn cold_cache(url: &str) -> Result<()> {
    let (computing, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let locks = polylock::connect(url).await?;
    let compute = async || {
        let permit = locks.request("pages").permit(PERMITS).acquire().await?;
        most.fetch_max(computing.fetch_add(1, Relaxed) + 1, Relaxed);
        tokio::time::sleep(Duration::from_millis(10)).await;
        computing.fetch_sub(1, Relaxed);
        permit.release().await
    };
    try_join_all((0..PAGES).map(|_| compute())).await?;
    let most = most.into_inner();
    println!("cold cache: {PAGES} pages, {most} computed at once");
    ensure!(most == PERMITS.get() as usize, "not {PERMITS} at once");
    Ok(())
}

/// What all instances share.
struct Site {
    cache: OnceLock<String>,
    computed: AtomicUsize,
    all_missed: Barrier,
}

/// One process of the service.
struct Instance<'a> {
    locks: Arc<dyn DistributedLock>,
    flight: OnceCell<String>,
    site: &'a Site,
}

impl Instance<'_> {
    async fn page(&self, way: Way) -> Result<String> {
        if let Some(page) = self.site.cache.get() {
            return Ok(page.clone());
        }
        // The worst case, made certain: every request has missed the cache.
        self.site.all_missed.wait().await;
        Ok(match way {
            Way::NoLock => self.compute().await,
            Way::SingleFlight => {
                let page = self.flight.get_or_init(|| self.compute());
                page.await.clone()
            }
            Way::LockAlone => {
                let _guard = self.lock().await?;
                self.compute().await
            }
            Way::LockAndSecondRead => {
                let _guard = self.lock().await?;
                match self.site.cache.get() {
                    Some(page) => page.clone(),
                    None => self.compute().await,
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

    async fn compute(&self) -> String {
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.site.computed.fetch_add(1, Relaxed);
        let page = self.site.cache.get_or_init(|| "the front page".to_owned());
        page.clone()
    }
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn lock_and_second_read_compute_once() -> anyhow::Result<()> {
        super::run("memory:test").await
    }
}
