use etcd_client::{Client, GetOptions, KeyValue, SortOrder, SortTarget};
use lock_testkit::harness::Look;

/// The keys below a prefix, past the client under test.
#[derive(Clone)]
pub(crate) struct Tree {
    client: Client,
    prefix: String,
}

impl Tree {
    pub(crate) async fn open(ports: &[u16], prefix: &str) -> Self {
        let hosts: Vec<_> = ports
            .iter()
            .map(|port| format!("http://127.0.0.1:{port}"))
            .collect();
        Self {
            client: Client::connect(hosts, None).await.expect("it connects"),
            prefix: prefix.to_owned(),
        }
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// What the keys of the contenders of a lock begin with; the names of the tests need no escapes but
    /// for slashes.
    pub(crate) fn directory(&self, name: &str) -> String {
        format!("{}/{}/", self.prefix, name.replace('/', "%2F"))
    }

    /// The values of the contenders of a lock, in the order of the queue.
    pub(crate) async fn line(&self, name: &str) -> Vec<String> {
        let value = |stored: &KeyValue| String::from_utf8_lossy(stored.value()).into_owned();
        self.stored(name).await.iter().map(value).collect()
    }

    /// The leases of etcd of the contenders of a lock, in the order of the queue.
    pub(crate) async fn leases(&self, name: &str) -> Vec<i64> {
        self.stored(name)
            .await
            .iter()
            .map(KeyValue::lease)
            .collect()
    }

    /// How many seconds the lease of the first contender has left.
    pub(crate) async fn time_left(&self, name: &str) -> i64 {
        let lease = self.leases(name).await[0];
        let left = self.client().lease_time_to_live(lease, None).await;
        left.expect("it answers").ttl()
    }

    /// The keys of the contenders of a lock, in the order of the queue.
    pub(crate) async fn paths(&self, name: &str) -> Vec<Vec<u8>> {
        let path = |stored: &KeyValue| stored.key().to_vec();
        self.stored(name).await.iter().map(path).collect()
    }

    /// Deletes the key of the contender at this place in the queue.
    pub(crate) async fn delete(&self, name: &str, at: usize) {
        let path = self.paths(name).await.remove(at);
        let deleted = self.client().delete(path, None).await;
        assert_eq!(deleted.expect("it answers").deleted(), 1);
    }

    async fn stored(&self, name: &str) -> Vec<KeyValue> {
        let options = GetOptions::new()
            .with_prefix()
            .with_sort(SortTarget::Create, SortOrder::Ascend);
        let found = self.client().get(self.directory(name), Some(options)).await;
        found.expect("it answers").take_kvs()
    }

    /// The holders and the waiters of a lock.
    pub(crate) async fn look(&self, name: &str) -> Look {
        let line = self.line(name).await;
        let mode = |value: &String| {
            let (_, mode) = value.split_once("&mode=")?;
            Some(mode.split_once('&')?.0.to_owned())
        };
        let modes: Vec<_> = line
            .iter()
            .map(|value| mode(value).unwrap_or_default())
            .collect();
        let kind = |mode: &String| match mode.parse::<usize>() {
            Ok(_) => "permit",
            Err(_) if mode == "shared" => "shared",
            Err(_) => "exclusive",
        };
        let holds = |(at, mode): &(usize, &String)| {
            let limit = match mode.as_str() {
                "shared" => usize::MAX,
                mode => mode.parse().unwrap_or(1),
            };
            *at < limit && kind(mode) == kind(&modes[0])
        };
        let holders = modes.iter().enumerate().take_while(holds).count();
        Look::new(holders, line.len() - holders)
    }

    /// Takes a lock from its holders, as etcd does when their leases end.
    pub(crate) async fn end(&self, name: &str) {
        let holders = self.look(name).await.holders;
        for lease in &self.leases(name).await[..holders] {
            let revoked = self.client().lease_revoke(*lease).await;
            revoked.expect("it is revoked");
        }
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
