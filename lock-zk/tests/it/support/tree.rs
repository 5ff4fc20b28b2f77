use lock_testkit::harness::Look;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Error, Permission, Stat};

use super::SOON;

/// The data of the ensemble, read and changed past the clients under test.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    client: Client,
    root: String,
}

impl Tree {
    /// Sees the directory of all locks at these servers.
    pub(crate) async fn open(servers: &str, root: &str) -> Self {
        // As long as the servers allow: one of them may take its time to start again.
        let client = Client::connector().with_session_timeout(SOON * 12);
        let client = client.connect(servers).await.expect("it connects");
        let directory = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let made = client.mkdir(root, &directory).await;
        made.expect("a directory is made");
        let root = root.to_owned();
        Self { client, root }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The path of the directory of a key. Those of the tests have slashes, and nothing else that is escaped.
    pub(crate) fn directory(&self, name: &str) -> String {
        format!("{}/{}", self.root, name.replace('/', "%2F"))
    }

    /// Sets what all clients may do with the root or a directory.
    pub(crate) async fn set_access(&self, path: &str, left: Permission) {
        let acl = [Acl::new(left, AuthId::anyone())];
        let set = self.client.set_acl(path, &acl, None).await;
        set.expect("it is set");
    }

    /// What the server says of the node at this place in line.
    pub(crate) async fn stat(&self, name: &str, at: usize) -> Stat {
        let node = self.nodes(name).await.remove(at);
        let path = format!("{}/{node}", self.directory(name));
        let stat = self.client.check_stat(&path).await;
        stat.expect("it answers").expect("the node is there")
    }

    /// The session that the node at this place in line belongs to.
    pub(crate) async fn session(&self, name: &str, at: usize) -> i64 {
        self.stat(name, at).await.ephemeral_owner
    }

    /// Whether a lock has a directory.
    pub(crate) async fn exists(&self, name: &str) -> bool {
        let stat = self.client.check_stat(&self.directory(name)).await;
        stat.expect("it answers").is_some()
    }

    /// The names of the nodes of a lock, by their numbers; none if it has no directory.
    pub(crate) async fn nodes(&self, name: &str) -> Vec<String> {
        // The server of this client must have all that the others have acknowledged.
        let directory = self.directory(name);
        self.client.sync(&self.root).await.expect("it answers");
        let mut names = match self.client.list_children(&directory).await {
            Ok(names) => names,
            Err(Error::NoNode) => Vec::new(),
            Err(error) => panic!("{directory}: {error}"),
        };
        names.sort_by_key(|name| number(name));
        names
    }

    /// Deletes a node of a lock, as an operator does.
    pub(crate) async fn delete(&self, name: &str, node: &str) {
        let path = format!("{}/{node}", self.directory(name));
        match self.client.delete(&path, None).await {
            Ok(()) | Err(Error::NoNode) => {}
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// The holders and the waiters, by the names alone.
    pub(crate) async fn look(&self, name: &str) -> Look {
        let nodes = self.nodes(name).await;
        let holders = holders(&nodes);
        Look::new(holders, nodes.len() - holders)
    }

    /// Deletes the nodes of all holders.
    pub(crate) async fn end(&self, name: &str) {
        let nodes = self.nodes(name).await;
        for node in &nodes[..holders(&nodes)] {
            self.delete(name, node).await;
        }
    }
}

fn number(node: &str) -> Option<u32> {
    node.get(node.len().checked_sub(10)?..)?.parse().ok()
}

/// How many of these nodes, in their order, hold the lock.
fn holders(nodes: &[String]) -> usize {
    let limit = |node: &String| -> Option<usize> {
        let (_, rest) = node.split_once("__PERM__")?;
        rest.split_once('-')?.0.parse().ok()
    };
    let is_shared = |node: &&String| node.contains("__READ__");
    let Some(first) = nodes.first() else {
        return 0;
    };
    match limit(first) {
        Some(most) => {
            let permits = nodes.iter().take_while(|node| limit(node).is_some());
            permits.count().min(most)
        }
        None => nodes.iter().take_while(is_shared).count().max(1),
    }
}
