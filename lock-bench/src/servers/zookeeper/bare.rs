use std::sync::Arc;
use std::time::Duration;

use polylock::LockUrl;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::super::unique::unique;
use super::{failure, identity};
use crate::subject::{Failure, Subject};

/// What a lock in ZooKeeper takes at least: a node behind those of others, and a watch of the one
/// before it.
#[derive(Clone, Debug)]
pub(super) struct Least {
    client: Client,
    /// What stands before the directories.
    root: Arc<str>,
    acls: Acls<'static>,
}

/// A node, which goes when this goes, whether or not the answer to its creation came.
pub(super) struct Contender {
    client: Client,
    directory: Arc<str>,
    /// What no other node begins with.
    stem: String,
    /// As it stands behind the stem.
    number: String,
    token: u64,
    is_over: bool,
}

impl Least {
    pub(super) fn new(client: Client, url: &LockUrl) -> Self {
        let root = match url.path().trim_end_matches('/') {
            "" => "/locks",
            path => path,
        };
        Self {
            client,
            root: format!("{root}-bare").into(),
            acls: match identity(url) {
                Some(_) => Acls::creator_all(),
                None => Acls::anyone_all(),
            },
        }
    }

    /// Makes a node and looks at all of them.
    async fn enter(&self, directory: &Arc<str>) -> Result<(Contender, Vec<String>), Failure> {
        let mut contender = Contender {
            client: self.client.clone(),
            directory: Arc::clone(directory),
            stem: format!("{}-", unique()),
            number: String::new(),
            token: 0,
            is_over: false,
        };
        let all = match self.join(&mut contender).await {
            Err(Error::NoNode) => {
                let container = CreateMode::Container.with_acls(self.acls);
                self.client
                    .mkdir(directory, &container)
                    .await
                    .map_err(failure)?;
                self.join(&mut contender).await
            }
            joined => joined,
        };
        Ok((contender, all.map_err(failure)?))
    }

    /// The same in one round trip, where there is a directory.
    async fn join(&self, contender: &mut Contender) -> Result<Vec<String>, Error> {
        let options = CreateMode::EphemeralSequential.with_acls(self.acls);
        let stem = format!("{}/{}", contender.directory, contender.stem);
        // Requests leave when they are made, and are answered in their order.
        let created = self.client.create(&stem, &[], &options);
        let listed = self.client.list_children(&contender.directory);
        let (stat, number) = created.await?;
        let all = listed.await?;
        contender.number = number.to_string();
        contender.token = u64::try_from(stat.czxid).unwrap_or_default();
        Ok(all)
    }
}

impl Subject for Least {
    type Key = Arc<str>;
    type Held = Contender;

    fn key(&self, name: &str) -> Result<Arc<str>, Failure> {
        let name = name.replace('%', "%25").replace('/', "%2F");
        Ok(format!("{}/{name}", self.root).into())
    }

    async fn acquire(
        &self,
        directory: &Arc<str>,
        _: Duration,
        wait: Option<Duration>,
    ) -> Result<Option<Contender>, Failure> {
        let deadline = wait.and_then(|wait| Instant::now().checked_add(wait));
        let (contender, mut all) = self.enter(directory).await?;
        while let Some(before) = before(&contender.number, &all) {
            let path = format!("{directory}/{before}");
            let is_gone = self.gone(&path);
            let is_gone = match deadline {
                Some(deadline) => timeout_at(deadline, is_gone).await,
                None => Ok(is_gone.await),
            };
            match is_gone {
                Ok(is_gone) => is_gone?,
                Err(_) => {
                    contender.leave().await?;
                    return Ok(None);
                }
            }
            // It may have been one who waited, and somebody before it be there.
            all = self
                .client
                .list_children(directory)
                .await
                .map_err(failure)?;
        }
        Ok(Some(contender))
    }

    fn token(held: &Contender) -> Option<u64> {
        Some(held.token)
    }

    async fn release(&self, held: Contender) -> Result<(), Failure> {
        held.leave().await
    }
}

impl Least {
    /// Waits until a node is changed or gone.
    async fn gone(&self, path: &str) -> Result<(), Failure> {
        match self.client.get_and_watch_data(path).await {
            Ok((_, _, watcher)) => {
                watcher.changed().await;
                Ok(())
            }
            Err(Error::NoNode) => Ok(()),
            Err(error) => Err(failure(error)),
        }
    }
}

impl Contender {
    async fn leave(mut self) -> Result<(), Failure> {
        let path = format!("{}/{}{}", self.directory, self.stem, self.number);
        let deleted = self.client.delete(&path, None);
        self.is_over = true;
        deleted.await.map_err(failure)
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // Without a runtime the session is over as well, and the node with it.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let client = self.client.clone();
        let (directory, stem) = (Arc::clone(&self.directory), std::mem::take(&mut self.stem));
        runtime.spawn(async move {
            // What was asked for before is created by now; its number need not be known.
            for node in client.list_children(&directory).await.unwrap_or_default() {
                if node.starts_with(&stem) {
                    let _gone = client.delete(&format!("{directory}/{node}"), None).await;
                }
            }
        });
    }
}

/// The nearest node that came before the one with this number.
fn before<'a>(sequence: &str, all: &'a [String]) -> Option<&'a str> {
    let number = |node: &'a str| node.rsplit('-').next().unwrap_or_default();
    let earlier = all.iter().map(String::as_str);
    let earlier = earlier.filter(|node| number(node) < sequence);
    earlier.max_by_key(|node| number(node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_came_last_before_is_watched() {
        let all = ["b-0000000007", "a-0000000012", "c-0000000003"].map(str::to_owned);
        assert_eq!(before("0000000003", &all), None);
        assert_eq!(before("0000000007", &all), Some("c-0000000003"));
        assert_eq!(before("0000000012", &all), Some("b-0000000007"));
    }
}
