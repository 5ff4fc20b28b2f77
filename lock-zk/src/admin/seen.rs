use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use lock_core::admin::{HolderInfo, LockInfo};
use lock_core::{FencingToken, Label, LockKey};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use zookeeper_client::{Client as Connection, Error as ClientError, Stat};

use crate::downgrade::noted_token;
use crate::error::Failure;
use crate::recipe::directory::Directory;
use crate::recipe::names::Contender;
use crate::recipe::queue_position::{contenders_in_order, holders};
use crate::recipe::sequence::order_by_creation;
use crate::recipe::tokens::token;

/// A held lock, as its directory shows it.
#[derive(Debug)]
pub(super) struct Seen {
    holders: Vec<Entry>,
    /// `None` if they were not read.
    waiters: Option<Vec<Entry>>,
}

/// Whose nodes are looked at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Depth {
    Holders,
    /// Those of all waiters as well.
    Line,
}

/// A contender and its node.
#[derive(Debug)]
pub(super) struct Entry {
    contender: Contender,
    data: Vec<u8>,
    stat: Stat,
    /// Whether nothing has changed in the directory since it came.
    is_latest: bool,
}

impl Seen {
    /// Reads a directory; `None` if the lock is free.
    pub(super) async fn look(
        connection: &Connection,
        directory: &Directory,
        depth: Depth,
    ) -> Result<Option<Self>, Failure> {
        let (names, stat) = match connection.get_children(directory.path()).await {
            Ok(listed) => listed,
            Err(ClientError::NoNode) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut line = contenders_in_order(names.iter().map(String::as_str), None);
        order_by_creation(&mut line, connection, directory).await?;
        let mut look = Look {
            connection,
            directory,
            nodes: HashMap::new(),
        };
        let (holders, waiters) = look.at(line, depth).await?;
        let mut entries = |line: Vec<Contender>| -> Vec<_> {
            let entry = |own| look.entry(own, stat.pzxid);
            line.into_iter().filter_map(entry).collect()
        };
        let holders = entries(holders);
        let waiters = (depth == Depth::Line).then(|| entries(waiters));
        Ok((!holders.is_empty()).then_some(Self { holders, waiters }))
    }

    pub(super) fn holders(&self) -> &[Entry] {
        &self.holders
    }

    pub(super) fn info(&self, key: LockKey) -> LockInfo {
        let mode = self.holders.first().map(|entry| entry.contender.mode);
        let holders = self.holders.iter().map(Entry::holder).collect();
        let info = LockInfo::new(key, mode.unwrap_or_default(), holders);
        match &self.waiters {
            Some(waiters) => info.with_waiters(waiters.iter().map(Entry::label).collect()),
            None => info,
        }
    }
}

/// A look into a directory.
struct Look<'a> {
    connection: &'a Connection,
    directory: &'a Directory,
    /// Data and stat of those that were read.
    nodes: HashMap<String, (Vec<u8>, Stat)>,
}

impl Look<'_> {
    /// Reads the nodes, and splits the contenders into holders and waiters. If a node is gone by
    /// then, others may have acquired the lock.
    async fn at(
        &mut self,
        mut line: Vec<Contender>,
        depth: Depth,
    ) -> Result<(Vec<Contender>, Vec<Contender>), Failure> {
        loop {
            let holding = holders(&line);
            let read = match depth {
                Depth::Holders => holding,
                Depth::Line => line.len(),
            };
            let is_new = |own: &&Contender| !self.nodes.contains_key(&own.name);
            let new: Vec<_> = line[..read].iter().filter(is_new).cloned().collect();
            if new.is_empty() {
                let waiting = line.split_off(holding);
                return Ok((line, waiting));
            }
            self.read(&new).await?;
            let mut at = 0;
            line.retain(|own| {
                at += 1;
                at > read || self.nodes.contains_key(&own.name)
            });
        }
    }

    async fn read(&mut self, contenders: &[Contender]) -> Result<(), Failure> {
        let (connection, directory) = (self.connection, self.directory);
        let nodes = contenders.iter().map(|contender| {
            let path = directory.child(&contender.name);
            async move { node(connection, &path).await }
        });
        let nodes = join_all(nodes).await;
        for (contender, node) in contenders.iter().zip(nodes) {
            if let Some(node) = node? {
                self.nodes.insert(contender.name.clone(), node);
            }
        }
        Ok(())
    }

    fn entry(&mut self, contender: Contender, pzxid: i64) -> Option<Entry> {
        let (data, stat) = self.nodes.remove(&contender.name)?;
        let is_latest = stat.czxid == pzxid;
        Some(Entry {
            contender,
            data,
            stat,
            is_latest,
        })
    }
}

/// Data and stat of a node; no data if this client may not read it, `None` if the node is gone.
async fn node(connection: &Connection, path: &str) -> Result<Option<(Vec<u8>, Stat)>, Failure> {
    match connection.get_data(path).await {
        Ok(node) => Ok(Some(node)),
        Err(ClientError::NoNode) => Ok(None),
        Err(ClientError::NoAuth) => {
            let stat = connection.check_stat(path).await?;
            Ok(stat.map(|stat| (Vec::new(), stat)))
        }
        Err(error) => Err(error.into()),
    }
}

impl Entry {
    pub(super) fn name(&self) -> &str {
        &self.contender.name
    }

    /// What is another one for each holder that the ensemble knows of.
    pub(super) fn version(&self) -> i64 {
        self.stat.mzxid
    }

    fn holder(&self) -> HolderInfo {
        let mut holder = HolderInfo::new(self.label());
        (holder.token, holder.since) = self.token_and_since();
        holder
    }

    /// The token and the time of the grant, where the ensemble has them: the list that showed a
    /// former waiter as the first is not recorded.
    fn token_and_since(&self) -> (Option<FencingToken>, Option<SystemTime>) {
        let Stat {
            czxid,
            mzxid,
            ctime,
            mtime,
            ..
        } = self.stat;
        if let Some(noted) = noted_token(&self.data) {
            (Some(noted), None)
        } else if mzxid > czxid {
            (token(mzxid), at(mtime))
        } else if self.is_latest {
            (token(czxid), at(ctime))
        } else {
            (None, None)
        }
    }

    fn label(&self) -> Label {
        let text = String::from_utf8_lossy(&self.data);
        if text.contains('=') {
            return Label::decode(&text);
        }
        // Kazoo writes a text of the user's, Curator an address or nothing.
        let escaped = utf8_percent_encode(&text, NON_ALPHANUMERIC);
        Label::decode(&format!("note={escaped}"))
    }
}

fn at(millis: i64) -> Option<SystemTime> {
    let millis = u64::try_from(millis).ok()?;
    Some(UNIX_EPOCH + Duration::from_millis(millis))
}
