use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Client, LockOptions};
use polylock::LockUrl;
use polylock_bench::subject::{Failure, Subject};
use polylock_bench::target::Opened;
use tokio::time::timeout;

use super::failed;

pub(crate) async fn open(url: String) -> Result<Opened, Failure> {
    let parsed = LockUrl::parse(&url)?;
    let hosts = parsed.expect_hosts()?.iter();
    let hosts: Vec<_> = hosts
        .map(|h| format!("{}:{}", h.name, h.port_or(2379)))
        .collect();
    let subject = Locks {
        client: Client::connect(hosts, None).await.map_err(failed)?,
        leases: Arc::default(),
    };
    let first = subject.grant().await?;
    subject.leases().push(first);
    let library = "etcd-client 0.21, the lock service of etcd";
    Ok(Opened::peer(library, subject))
}

/// A week, in seconds. Longer than a run takes: nothing renews it.
const LEASE: i64 = 7 * 24 * 3600;

#[derive(Clone)]
struct Locks {
    client: Client,
    /// Those that nobody uses: two tasks with one lease would have one lock between them.
    leases: Arc<Mutex<Vec<i64>>>,
}

impl Locks {
    fn leases(&self) -> MutexGuard<'_, Vec<i64>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn grant(&self) -> Result<i64, Failure> {
        let granted = self.client.clone().lease_grant(LEASE, None).await;
        granted.map(|granted| granted.id()).map_err(failed)
    }
}

struct Held {
    key: Vec<u8>,
    lease: i64,
}

impl Subject for Locks {
    type Key = Arc<str>;
    type Held = Held;

    fn key(&self, name: &str, _: Duration) -> Result<Arc<str>, Failure> {
        Ok(name.into())
    }

    async fn acquire(&self, key: &Arc<str>, wait: Duration) -> Result<Option<Held>, Failure> {
        let mut client = self.client.clone();
        let free = self.leases().pop();
        let lease = match free {
            Some(lease) => lease,
            None => self.grant().await?,
        };
        let options = LockOptions::new().with_lease(lease);
        match timeout(wait, client.lock(&**key, Some(options))).await {
            Ok(Ok(taken)) => Ok(Some(Held {
                key: taken.key().to_vec(),
                lease,
            })),
            Ok(Err(error)) => {
                let _ends_by_itself = client.lease_revoke(lease).await;
                Err(failed(error))
            }
            // The key that the server has written for it goes with its lease.
            Err(_) => client
                .lease_revoke(lease)
                .await
                .map(|_| None)
                .map_err(failed),
        }
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        // Another task with this lease would have the lock while the key is there.
        self.client.clone().unlock(held.key).await.map_err(failed)?;
        self.leases().push(held.lease);
        Ok(())
    }
}
