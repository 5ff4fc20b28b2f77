//! What this user may do, found out by doing it in a directory that no lock has.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::engine::Engine;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error as ClientError, Stat};

use crate::acl::acls;
use crate::config::ZooKeeperConfig;
use crate::error::Failure;

/// What happened when each was tried.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Tried {
    pub(super) root: Root,
    /// The first step that was denied.
    pub(super) denied: Option<Step>,
    pub(super) clock: Option<Offset>,
}

/// Whether the directory of all locks is there.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Root {
    Denied,
    Made,
    #[default]
    There,
}

/// What a lock does, in its order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// In the root.
    Create,
    /// Of the root.
    List,
    /// The nodes of contenders, in the directory of a lock.
    Contend,
    /// Out of the root.
    Delete,
}

/// How far the clock of the leader is off, in whichever direction: between these.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Offset {
    pub(super) least: Duration,
    pub(super) most: Duration,
}

/// Does what a lock does, and takes it back.
///
/// If this is dropped, the session takes the node with it, and ZooKeeper the directory some time after.
pub(super) async fn tried(
    client: &Client,
    config: &ZooKeeperConfig,
    engine: &Engine,
) -> Result<Tried, Failure> {
    let mut tried = Tried::default();
    let acls = acls(config.access());
    if client.check_stat(&config.root).await?.is_none() {
        let directory = CreateMode::Persistent.with_acls(acls);
        tried.root = match client.mkdir(&config.root, &directory).await {
            Ok(()) => Root::Made,
            Err(error) if is_denied(&error) => Root::Denied,
            Err(error) => return Err(error.into()),
        };
    }
    if tried.root == Root::Denied {
        return Ok(tried);
    }
    let parent = config.root.trim_end_matches('/');
    let path = format!("{parent}/polylock-doctor-{}", engine.lease_id().to_hex());
    let asked = SystemTime::now();
    let stat = match create(client, &path, &acls).await {
        Ok(made) => made,
        Err(error) if is_denied(&error) => {
            tried.denied = Some(Step::Create);
            return Ok(tried);
        }
        Err(error) => return Err(error.into()),
    };
    tried.clock = offset(&stat, asked, asked.elapsed().unwrap_or_default());
    tried.denied = contend(client, &path, &CreateMode::Ephemeral.with_acls(acls)).await?;
    if let Err(error) = client.list_children(&config.root).await {
        let step = denied(error, Step::List)?;
        tried.denied = tried.denied.or(Some(step));
    }
    match client.delete(&path, None).await {
        Ok(()) | Err(ClientError::NoNode) => {}
        Err(error) => {
            let step = denied(error, Step::Delete)?;
            tried.denied = tried.denied.or(Some(step));
        }
    }
    Ok(tried)
}

/// Creates the directory, as a container if the server knows them.
async fn create(client: &Client, path: &str, acls: &Acls<'static>) -> Result<Stat, ClientError> {
    for mode in [CreateMode::Container, CreateMode::Persistent] {
        let options = mode.with_acls(*acls);
        match client.create(path, &[], &options).await {
            Ok((stat, _)) => return Ok(stat),
            Err(ClientError::Unimplemented) => {}
            Err(error) => return Err(error),
        }
    }
    Err(ClientError::Unimplemented)
}

/// Goes into line, looks at it, and leaves.
async fn contend(
    client: &Client,
    directory: &str,
    options: &CreateOptions<'_>,
) -> Result<Option<Step>, Failure> {
    let node = format!("{directory}/node");
    let step = |error| denied(error, Step::Contend).map(Some);
    if let Err(error) = client.create(&node, &[], options).await {
        return step(error);
    }
    if let Err(error) = client.list_children(directory).await {
        return step(error);
    }
    match client.delete(&node, None).await {
        Ok(()) => Ok(None),
        Err(error) => step(error),
    }
}

fn denied(error: ClientError, step: Step) -> Result<Step, Failure> {
    if is_denied(&error) {
        Ok(step)
    } else {
        Err(error.into())
    }
}

/// Whether the ensemble does not let this user, or does not know who it is.
fn is_denied(error: &ClientError) -> bool {
    matches!(error, ClientError::NoAuth | ClientError::InvalidAcl)
}

/// How far the clock was off that stamped a node; the moment within the round trip is unknown.
fn offset(stat: &Stat, asked: SystemTime, round: Duration) -> Option<Offset> {
    let there = Duration::from_millis(u64::try_from(stat.ctime).ok()?);
    let here = asked.duration_since(UNIX_EPOCH).ok()? + round / 2;
    let off = there.abs_diff(here);
    Some(Offset {
        least: off.saturating_sub(round / 2),
        most: off + round / 2,
    })
}
