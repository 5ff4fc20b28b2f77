//! etcd: the minimal requests that exclude, and what the servers say of themselves.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, PutOptions, SortOrder,
    SortTarget, Txn, TxnOp, TxnOpResponse, WatchOptions,
};
use polylock::LockUrl;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::Code;

use super::names::{addresses, segment, unique};
use super::try_out;
use crate::connection::Opened;
use crate::probe::{self, Probe, TargetFacts};
use crate::subject::{Failure, REFUSED, Subject};

pub(super) async fn probe(url: &LockUrl) -> Result<Arc<dyn Probe>, Failure> {
    let client = connect(url).await?;
    Ok(Arc::new(EtcdProbe { client }))
}

pub(super) async fn bare(url: &LockUrl, of: &str) -> Result<Opened, Failure> {
    let commands = "a transaction that creates a key and lists, a watch of the predecessor, delete";
    let client = connect(url).await?;
    let (lease, renewals) = granted(&client, LEASE).await?;
    let path = url.path().trim_matches('/');
    let root = if path.is_empty() { "locks" } else { path };
    let lock = BareEtcdLock {
        client,
        root: format!("{root}-bare").into(),
        lease,
        _renewals: renewals,
    };
    try_out(&lock).await?;
    Ok(Opened::bare(of, commands, lock))
}

/// In seconds. Longer than a server is away during a run: all bare locks end with their lease.
const LEASE: i64 = 600;

/// Grants a lease of so many seconds, and renews it ten times as often until the tasks are dropped.
async fn granted(client: &Client, seconds: i64) -> Result<(i64, Arc<JoinSet<()>>), Failure> {
    let mut client = client.clone();
    let granted = client.lease_grant(seconds, None).await;
    let lease = granted.map_err(failure)?.id();
    let pause = Duration::from_secs(seconds.unsigned_abs()) / 10;
    let mut renewals = JoinSet::new();
    renewals.spawn(async move {
        loop {
            sleep(pause).await;
            // One that fails is repeated before the lease ends.
            let _renewed = timeout(pause, client.lease_keep_alive(lease)).await;
        }
    });
    Ok((lease, Arc::new(renewals)))
}

async fn connect(url: &LockUrl) -> Result<Client, Failure> {
    let mut options = ConnectOptions::new();
    if let (Some(username), Some(password)) = (url.username(), url.password()) {
        options = options.with_user(username, password);
    }
    let connected = Client::connect(addresses(url, 2379)?, Some(options)).await;
    connected.map_err(failure)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failure(error: Error) -> Failure {
    let code = match &error {
        Error::GRpcStatus(status) => Some(status.code()),
        _ => None,
    };
    let kind = match code {
        Some(Code::PermissionDenied | Code::Unauthenticated) => REFUSED,
        _ => "unavailable",
    };
    Failure::of(kind, &error)
}

/// What a lock in etcd takes at least: a key behind those of others, and a watch of the one before it. A
/// future that is dropped leaves its key until the lease ends.
#[derive(Clone)]
struct BareEtcdLock {
    client: Client,
    root: Arc<str>,
    lease: i64,
    _renewals: Arc<JoinSet<()>>,
}

struct HeldEtcdLock {
    path: String,
    token: u64,
}

impl BareEtcdLock {
    /// The key before one in the order of creation, and the revision of the list that shows it.
    async fn before(&self, directory: &str, own: i64) -> Result<Option<(Vec<u8>, i64)>, Error> {
        let options = last().with_max_create_revision(own - 1);
        let found = self.client.clone().get(directory, Some(options)).await?;
        let revision = found.header().map_or(0, |header| header.revision());
        Ok(found
            .kvs()
            .first()
            .map(|stored| (stored.key().to_vec(), revision)))
    }

    async fn wait(&self, directory: &str, own: i64) -> Result<(), Error> {
        while let Some((key, revision)) = self.before(directory, own).await? {
            let options = WatchOptions::new().with_start_revision(revision + 1);
            let mut watch = self.client.clone().watch(key, Some(options)).await?;
            while let Some(said) = watch.message().await? {
                if said.canceled() || !said.events().is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// The key that was created last.
fn last() -> GetOptions {
    GetOptions::new()
        .with_prefix()
        .with_sort(SortTarget::Create, SortOrder::Descend)
        .with_limit(1)
}

impl Subject for BareEtcdLock {
    type Key = Arc<str>;
    type Held = HeldEtcdLock;

    fn key(&self, name: &str, _: Duration) -> Result<Arc<str>, Failure> {
        Ok(format!("{}/{}/", self.root, segment(name)).into())
    }

    async fn acquire(
        &self,
        directory: &Arc<str>,
        wait: Duration,
    ) -> Result<Option<HeldEtcdLock>, Failure> {
        let deadline = Instant::now() + wait;
        let path = format!("{directory}{}", unique());
        let put = PutOptions::new().with_lease(self.lease);
        let absent = Compare::create_revision(path.as_str(), CompareOp::Equal, 0);
        let first = GetOptions::new()
            .with_prefix()
            .with_sort(SortTarget::Create, SortOrder::Ascend)
            .with_limit(1);
        let txn = Txn::new().when([absent]).and_then([
            TxnOp::put(path.as_str(), "", Some(put)),
            TxnOp::get(&**directory, Some(first)),
        ]);
        let created = self.client.clone().txn(txn).await.map_err(failure)?;
        let own = created.header().map_or(0, |header| header.revision());
        let is_own = |response: &TxnOpResponse| match response {
            TxnOpResponse::Get(found) => found.kvs().iter().all(|kv| kv.key() == path.as_bytes()),
            _ => false,
        };
        let is_first = created.op_responses().iter().any(is_own);
        let token = u64::try_from(own).unwrap_or_default();
        let held = HeldEtcdLock { path, token };
        if !is_first {
            let Ok(waited) = timeout_at(deadline, self.wait(directory, own)).await else {
                self.release(held).await?;
                return Ok(None);
            };
            waited.map_err(failure)?;
        }
        Ok(Some(held))
    }

    fn token(held: &HeldEtcdLock) -> Option<u64> {
        Some(held.token)
    }

    async fn release(&self, held: HeldEtcdLock) -> Result<(), Failure> {
        let deleted = self.client.clone().delete(held.path, None).await;
        deleted.map(drop).map_err(failure)
    }
}

struct EtcdProbe {
    client: Client,
}

#[async_trait]
impl Probe for EtcdProbe {
    async fn ping(&self) -> Result<(), Failure> {
        let answer = self.client.clone().get("/", None).await;
        answer.map(drop).map_err(failure)
    }

    async fn facts(&self) -> Result<TargetFacts, Failure> {
        let status = self.client.clone().status().await.map_err(failure)?;
        let mut facts = vec![
            ("version", format!("etcd {}", status.version())),
            (
                "durability",
                "the log is synced, unless --unsafe-no-fsync, which clients are not told"
                    .to_owned(),
            ),
            // Servers count them on their page of metrics alone.
            ("commands", "not counted".to_owned()),
        ];
        if let Ok(members) = self.client.clone().member_list().await {
            facts.push(("servers", members.members().len().to_string()));
        }
        Ok(probe::facts(facts))
    }
}

#[cfg(test)]
mod tests {
    use etcd_client::Permission;
    use lock_testkit::servers::{EtcdOptions, EtcdServer};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_user_without_the_right_to_bare_locks_has_no_limit() {
        let server = EtcdServer::start(EtcdOptions::default());
        let address = server.address();
        let url = |login| LockUrl::parse(&format!("etcd://{login}{address}/locks")).unwrap();
        let mut root = connect(&url("")).await.unwrap();
        root.role_add("locks").await.unwrap();
        let locks = Permission::read_write("locks/").with_prefix();
        root.role_grant_permission("locks", locks).await.unwrap();
        for (user, role) in [("root", "root"), ("orders", "locks")] {
            root.user_add(user, "s3cret", None).await.unwrap();
            root.user_grant_role(user, role).await.unwrap();
        }
        root.auth_enable().await.unwrap();
        let Err(refused) = bare(&url("orders:s3cret@"), "etcd").await else {
            panic!("the right is missing");
        };
        assert_eq!(refused.kind(), REFUSED, "{refused}");
    }

    #[tokio::test]
    async fn the_lease_of_bare_locks_is_renewed() {
        let url = format!("etcd://127.0.0.1:{}", EtcdServer::shared()[0]);
        let mut client = connect(&LockUrl::parse(&url).unwrap()).await.unwrap();
        let (lease, _renewals) = granted(&client, 20).await.unwrap();
        let mut least = i64::MAX;
        loop {
            let answer = client.lease_time_to_live(lease, None).await.unwrap();
            let left = answer.ttl();
            assert!(left > 0, "it ended");
            if left > least {
                break;
            }
            least = left;
            sleep(Duration::from_millis(50)).await;
        }
    }
}
