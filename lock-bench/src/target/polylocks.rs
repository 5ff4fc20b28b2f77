use std::sync::Arc;

use async_trait::async_trait;
use polylock::LockUrl;

use super::{Bare, Opened, Opener, Probe, Runner};
use crate::report::TargetKind;
use crate::servers;
use crate::subject::Failure;

/// Every URL of polylock, with the layers that a user gets.
#[derive(Debug)]
pub(super) struct Polylocks;

#[async_trait]
impl Opener for Polylocks {
    fn schemes(&self) -> Vec<&'static str> {
        polylock::compiled_in().schemes().collect()
    }

    async fn open(&self, url: &str) -> Result<Opened, Failure> {
        let registry = polylock::compiled_in();
        let parsed = registry.backend_url(url)?;
        let locks = registry.connect(url).await?;
        let backend = parsed.scheme().to_owned();
        let mut opened = Opened::new(TargetKind::Lock { backend }, Runner::of_locks(locks));
        if parsed.scheme() == "memory" {
            opened = opened.within_one_process();
        }
        Ok(opened)
    }

    async fn probe(&self, url: &str) -> Result<Option<Arc<dyn Probe>>, Failure> {
        servers::probe(&of_backend(url)?).await
    }

    async fn bare(&self, url: &str, run: u64) -> Result<Option<Bare>, Failure> {
        servers::bare(&of_backend(url)?, run).await
    }

    async fn clear(&self, url: &str, run: u64) -> Result<(), Failure> {
        servers::clear(&of_backend(url)?, run).await
    }

    async fn findings(&self, url: &str) -> Result<Vec<String>, Failure> {
        let found = polylock::compiled_in().examine(url).await?;
        let faults = found.iter().filter(|finding| finding.is_fault());
        Ok(faults.map(ToString::to_string).collect())
    }

    fn shown(&self, url: &str) -> String {
        LockUrl::parse(url).map_or_else(|_| "(not a URL)".to_owned(), |url| url.to_string())
    }
}

fn of_backend(url: &str) -> Result<LockUrl, Failure> {
    Ok(polylock::compiled_in().backend_url(url)?)
}
