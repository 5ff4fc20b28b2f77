use std::mem::forget;
use std::sync::Arc;
use std::time::Duration;

use polylock::LockUrl;
use polylock_bench::subject::{Failure, Subject};
use polylock_bench::target::Opened;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix, OwnedLockClient};

use super::failed;

pub(crate) async fn open(url: String) -> Result<Opened, Failure> {
    let parsed = LockUrl::parse(&url)?;
    let hosts = parsed.expect_hosts()?.iter();
    let hosts: Vec<_> = hosts
        .map(|h| format!("{}:{}", h.name, h.port_or(2181)))
        .collect();
    let client = Client::connect(&hosts.join(",")).await.map_err(failed)?;
    let library = "zookeeper-client 0.11.2, Client::lock";
    Ok(Opened::peer(library, Locks(client)))
}

#[derive(Clone)]
struct Locks(Client);

impl Subject for Locks {
    type Key = Arc<str>;
    type Held = OwnedLockClient;

    fn key(&self, name: &str, _: Duration) -> Result<Arc<str>, Failure> {
        Ok(format!("/zookeeper-client/{name}").into())
    }

    async fn acquire(
        &self,
        directory: &Arc<str>,
        wait: Duration,
    ) -> Result<Option<Self::Held>, Failure> {
        // The pattern of Curator: the only one for several tasks of one session.
        let prefix = LockPrefix::new_curator(directory, "lock-").map_err(failed)?;
        let container = CreateMode::Container.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(container);
        let lock = self.0.lock(prefix, b"", options.map_err(failed)?);
        // It has no attempt that does not wait.
        match timeout(wait.max(MIN_WAIT), lock).await {
            Ok(lock) => Ok(Some(lock.map_err(failed)?.into_owned())),
            Err(_) => Ok(None),
        }
    }

    async fn release(&self, held: OwnedLockClient) -> Result<(), Failure> {
        // What a drop would do in the background, where nothing could await it.
        let deleted = held.client().delete(held.lock_path(), None).await;
        deleted.map_err(failed)?;
        forget(held);
        Ok(())
    }
}

const MIN_WAIT: Duration = Duration::from_millis(100);
