//! The requests that a lock in ZooKeeper takes at least, on the same client: a node is created and the
//! directory listed in one round trip, and the node is deleted in another.

use std::sync::mpsc;
use std::thread;

use lock_testkit::servers::ZooKeeperServer;
use zookeeper_client::{Acls, Client, CreateMode};

#[derive(Clone)]
pub(crate) struct Bare {
    client: Client,
}

impl Bare {
    /// The session has a thread of its own, as that of the locks has.
    pub(crate) fn connect(server: &ZooKeeperServer) -> Self {
        let (tell, told) = mpsc::channel();
        let address = server.address();
        thread::spawn(move || {
            crate::runtime().block_on(async move {
                let client = Client::connector()
                    .with_session_timeout(std::time::Duration::from_secs(20))
                    .connect(&address)
                    .await
                    .unwrap();
                tell.send(client).unwrap();
                std::future::pending::<()>().await;
            });
        });
        let client = told.recv().unwrap();
        Self { client }
    }

    pub(crate) async fn directory(&self, path: &str) {
        let options = CreateMode::Container.with_acls(Acls::anyone_all());
        self.client.mkdir(path, &options).await.unwrap();
    }

    /// Acquires and releases.
    pub(crate) async fn pair(&self, directory: &str) {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let stem = format!("{directory}/_c_01234567-89ab-cdef-0123-456789abcdef-lock-");
        let created = self.client.create(&stem, DATA, &options);
        let listed = self.client.get_children(directory);
        let (created, listed) = futures_util::join!(created, listed);
        let (_, number) = created.unwrap();
        assert_eq!(listed.unwrap().0.len(), 1);
        let path = format!("{stem}{number}");
        self.client.delete(&path, None).await.unwrap();
    }

    /// What a hand-over between two processes takes at least: one ends, the other looks.
    pub(crate) async fn delete_and_list(&self, directory: &str) -> std::time::Duration {
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        let path = format!("{directory}/node");
        self.client.create(&path, DATA, &options).await.unwrap();
        // As long as a lock is held: what sleeps takes its time to wake up.
        tokio::time::sleep(crate::handoff::HOLD).await;
        let began = std::time::Instant::now();
        self.client.delete(&path, None).await.unwrap();
        self.client.get_children(directory).await.unwrap();
        began.elapsed()
    }
}

/// As long as a label.
const DATA: &[u8] = b"host=etl-7c9&pid=4121&user=deploy&program=zookeeper";
