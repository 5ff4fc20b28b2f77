//! Records that holders store beside a lock: nodes that outlive the lock's directory, and are never
//! removed.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::join;
use polylock_core::LockKey;
use polylock_core::admin::Record;
use tokio::time::sleep;
use zookeeper_client::{CreateMode, Error as ClientError};

use crate::error::{RETRY_BACKOFF, ZkFailure};
use crate::lock::ZkClient;
use crate::recipe::directory::Directory;
use crate::session::ZkSession;
use crate::session::connect::make_root;

impl ZkClient {
    /// Reads a record, after a `sync`, because the server of this client may lag. A leader that was replaced
    /// answers `sync` and reads alone for up to `syncLimit` ticks, so the record may still be an older one.
    pub(crate) async fn read_record(&self, key: &LockKey) -> Result<Option<Record>, ZkFailure> {
        let (session, path) = (self.session().await?, path(key));
        // Both are sent here, in this order.
        let (synced, read) = join!(session.client.sync(&path), session.client.get_data(&path));
        synced?;
        match read {
            Ok((data, _)) => decode(&path, &data).map(Some),
            Err(ClientError::NoNode) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a record until there is a definite answer; `is_in_doubt` says that it may be written by then.
    pub(crate) async fn put_record(
        &self,
        key: &LockKey,
        record: &Record,
        is_in_doubt: &AtomicBool,
    ) -> Result<bool, ZkFailure> {
        loop {
            let session = self.session().await?;
            let written = self.try_write(&session, key, record, is_in_doubt).await;
            match written {
                Ok(Some(is_written)) => return Ok(is_written),
                Ok(None) => {}
                Err(failure) if failure.is_over() => session.end(),
                Err(failure) if failure.is_ambiguous() => sleep(RETRY_BACKOFF).await,
                Err(failure) => return Err(failure),
            }
        }
    }

    /// `None` if another client has written meanwhile, or the root was missing.
    async fn try_write(
        &self,
        session: &ZkSession,
        key: &LockKey,
        record: &Record,
        is_in_doubt: &AtomicBool,
    ) -> Result<Option<bool>, ZkFailure> {
        let (client, path, data) = (&session.client, path(key), record.encode());
        // A stale read from a lagging server cannot replace a newer record: the version is compared.
        let written = match client.get_data(&path).await {
            Ok((stored, _)) if decode(&path, &stored)?.token > record.token => {
                return Ok(Some(false));
            }
            Ok((_, stat)) => client
                .set_data(&path, &data, Some(stat.version))
                .await
                .map(drop),
            Err(ClientError::NoNode) => {
                let options = CreateMode::Persistent.with_acls(self.sessions.config.acls());
                client.create(&path, &data, &options).await.map(drop)
            }
            Err(error) => return Err(error.into()),
        };
        match written {
            Ok(()) => Ok(Some(true)),
            Err(ClientError::BadVersion | ClientError::NodeExists) => Ok(None),
            Err(ClientError::NoNode) => {
                make_root(client, &self.sessions.config).await?;
                Ok(None)
            }
            Err(error) => {
                let failure = ZkFailure::from(error);
                // This node outlives its session.
                if failure.is_ambiguous() || failure.is_over() {
                    is_in_doubt.store(true, Ordering::Relaxed);
                }
                Err(failure)
            }
        }
    }
}

/// A path outside the directories of keys, which would never be removed with a record in them. It is
/// directly under the root: a directory of records would belong to the identity that stored the first one.
fn path(key: &LockKey) -> String {
    format!("/={}", &Directory::of(key).path()[1..])
}

fn decode(path: &str, data: &[u8]) -> Result<Record, ZkFailure> {
    Record::decode(data).ok_or_else(|| ZkFailure::Foreign(path.to_owned()))
}
