use std::collections::HashMap;
use std::sync::{Arc, Weak};

use async_trait::async_trait;

use super::Memory;
use super::store::MemoryStore;
use crate::engine::Mutex;
use crate::error::{Error, Result};
use crate::lock::DistributedLock;
use crate::registry::Backend;
use crate::url::LockUrl;

/// Opens `memory:` and `memory:NAME`.
///
/// Without a name every connection has a store of its own. All connections of one registry with the
/// same name share a store, which lives for as long as one of them.
///
/// # Examples
///
/// ```
/// use polylock_core::Registry;
/// use polylock_core::memory::MemoryBackend;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let registry = Registry::new().with(MemoryBackend::default())?;
/// let here = registry.connect("memory:shop").await?;
/// let there = registry.connect("memory:shop").await?;
/// let alone = registry.connect("memory:").await?;
///
/// let _guard = here.lock("cleanup").await?;
/// assert!(there.try_lock("cleanup").await?.is_none());
/// assert!(alone.try_lock("cleanup").await?.is_some());
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct MemoryBackend {
    named: Mutex<HashMap<String, Weak<MemoryStore>>>,
}

impl MemoryBackend {
    fn named(&self, name: &str) -> Memory {
        let mut named = self.named.lock();
        named.retain(|_, store| store.strong_count() > 0);
        if let Some(store) = named.get(name).and_then(Weak::upgrade) {
            return Memory::with_store(store);
        }
        let memory = Memory::new();
        named.insert(name.to_owned(), Arc::downgrade(&memory.store));
        memory
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    fn schemes(&self) -> &'static [&'static str] {
        &["memory"]
    }

    fn default_port(&self, _: &str) -> Option<u16> {
        None
    }

    fn default_namespace(&self) -> &'static str {
        ""
    }

    fn check_url(&self, url: &LockUrl) -> Result<()> {
        if !url.hosts().is_empty() {
            return Err(Error::config(
                "a memory store has no host, write memory:NAME",
            ));
        }
        url.params().finish()
    }

    async fn connect(&self, url: &LockUrl) -> Result<Arc<dyn DistributedLock>> {
        self.check_url(url)?;
        Ok(match url.path() {
            "" => Arc::new(Memory::new()),
            name => Arc::new(self.named(name)),
        })
    }
}
