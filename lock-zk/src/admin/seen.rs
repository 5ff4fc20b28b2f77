use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use lock_core::admin::{HolderInfo, LockInfo};
use lock_core::{FencingToken, Label, LockKey};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use zookeeper_client::{Client as Connection, Error as ClientError, Stat};

use crate::directory::Directory;
use crate::error::Failure;
use crate::downgrade::noted_token;
use crate::names::Contender;
use crate::standing::{by_creation, holders, in_line, is_out_of_numbers};
use crate::tokens::token;

/// A lock that somebody holds, as its directory shows it.
#[derive(Debug)]
pub(super) struct Seen {
    line: Vec<Entry>,
    holding: usize,
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
    /// Looks into a directory; `None` if nobody holds the lock.
    pub(super) async fn look(
        connection: &Connection,
        directory: &Directory,
    ) -> Result<Option<Self>, Failure> {
        let (names, stat) = match connection.get_children(directory.path()).await {
            Ok(listed) => listed,
            Err(ClientError::NoNode) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let line = in_line(names.iter().map(String::as_str), None);
        let nodes = line.iter().map(|contender| {
            let path = directory.child(&contender.name);
            async move { node(connection, &path).await }
        });
        let mut nodes_by_name = HashMap::new();
        for (contender, node) in line.iter().zip(join_all(nodes).await) {
            if let Some(node) = node? {
                nodes_by_name.insert(contender.name.clone(), node);
            }
        }
        Ok(Self::of(line, nodes_by_name, stat.pzxid))
    }

    fn of(
        mut line: Vec<Contender>,
        mut nodes: HashMap<String, (Vec<u8>, Stat)>,
        pzxid: i64,
    ) -> Option<Self> {
        line.retain(|contender| nodes.contains_key(&contender.name));
        if is_out_of_numbers(&line) {
            let created = nodes
                .iter()
                .map(|(name, (_, stat))| (name.clone(), stat.czxid));
            by_creation(&mut line, &created.collect());
        }
        let holding = holders(&line);
        let entries = line.into_iter().filter_map(|contender| {
            let (data, stat) = nodes.remove(&contender.name)?;
            let is_latest = stat.czxid == pzxid;
            Some(Entry {
                contender,
                data,
                stat,
                is_latest,
            })
        });
        let line: Vec<_> = entries.collect();
        (holding > 0).then_some(Self { line, holding })
    }

    pub(super) fn holders(&self) -> &[Entry] {
        &self.line[..self.holding]
    }

    pub(super) fn info(&self, key: LockKey) -> LockInfo {
        let (holding, waiting) = self.line.split_at(self.holding);
        let mode = holding.first().map(|entry| entry.contender.mode);
        let holders = holding.iter().map(Entry::holder).collect();
        let waiters = waiting.iter().map(Entry::label).collect();
        LockInfo::new(key, mode.unwrap_or_default(), holders).with_waiters(waiters)
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

    /// The token and the time of the grant, where the ensemble has them: it is not told which list
    /// showed a contender that had waited to be the first.
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
