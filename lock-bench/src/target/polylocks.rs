use async_trait::async_trait;
use polylock::LockUrl;

use super::{Opened, Opener, Runner};
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
        servers::of(&parsed).await.map(|server| match server {
            Some(server) => server.beside(opened),
            None => opened,
        })
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
