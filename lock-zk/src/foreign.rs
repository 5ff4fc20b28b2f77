//! What is stored where the directory of a lock would be, and is none.

use lock_core::engine::before;
use lock_core::{Error, ErrorKind, LockKey};
use tokio::time::Instant;

use crate::diagnose_connect::address;
use crate::lock::Client;
use crate::recipe::directory::Directory;

impl Client {
    /// Says what is in place of the directory of a key, and how to remove it.
    pub(crate) async fn explained(&self, key: &LockKey, error: Error) -> Error {
        let config = &self.sessions.config;
        let path = Directory::of(key);
        let asked = async {
            let session = self
                .sessions
                .get(Instant::now() + config.timeout)
                .await
                .ok()?;
            session.client.check_stat(path.path()).await.ok()?
        };
        let Some(Some(stat)) = before(Instant::now() + config.timeout, asked).await else {
            return error;
        };
        let root = config.root.trim_end_matches('/');
        let server = config
            .hosts
            .first()
            .map(|(host, port)| address(host, *port));
        let message = format!(
            "{root}{path} is an ephemeral node with {} bytes of data, which session 0x{:x} has created, \
             and no directory of a lock; it is left as it is and goes with its session. If nobody needs \
             it, remove it: zkCli.sh -server {} delete {root}{path}",
            stat.data_length,
            stat.ephemeral_owner,
            server.unwrap_or_default()
        );
        Error::new(ErrorKind::Foreign, message)
    }
}
