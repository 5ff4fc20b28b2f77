use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::subject::{Failure, UNSUPPORTED};
use crate::target::Probe;

/// Stands for servers of which nothing is known, and says why.
#[derive(Debug)]
pub(super) struct Unasked(pub(super) &'static str);

#[async_trait]
impl Probe for Unasked {
    async fn ping(&self) -> Result<(), Failure> {
        Err(Failure::new(UNSUPPORTED, format!("the server {}", self.0)))
    }

    async fn commands(&self) -> Result<Option<u64>, Failure> {
        Ok(None)
    }

    async fn facts(&self) -> Result<BTreeMap<String, String>, Failure> {
        Ok(BTreeMap::from([("server".to_owned(), self.0.to_owned())]))
    }
}
