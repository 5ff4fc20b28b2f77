//! What this user may do, found out by doing it in a directory that no lock has.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::engine::Engine;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error as ClientError, Stat};

use crate::config::ZooKeeperConfig;
use crate::error::Failure;
use crate::session::connect::acls;

/// What happened when each was tried.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct PermissionProbe {
    pub(super) root: RootState,
    /// The first step that was denied.
    pub(super) denied: Option<ProbeStep>,
    pub(super) clock: Option<ClockOffset>,
}

/// Whether the directory of all locks is there.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum RootState {
    Denied,
    Created,
    #[default]
    Exists,
}

/// What a lock does, in its order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ProbeStep {
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
pub(super) struct ClockOffset {
    pub(super) min: Duration,
    pub(super) max: Duration,
}

impl PermissionProbe {
    /// Does what a lock does, and takes it back.
    ///
    /// If this is dropped, the session takes the node with it, and ZooKeeper the directory some time
    /// after.
    pub(super) async fn run(
        client: &Client,
        config: &ZooKeeperConfig,
        engine: &Engine,
    ) -> Result<Self, Failure> {
        let mut probe = Self::default();
        let acls = acls(config.access());
        if client.check_stat(&config.root).await?.is_none() {
            let directory = CreateMode::Persistent.with_acls(acls);
            probe.root = match client.mkdir(&config.root, &directory).await {
                Ok(()) => RootState::Created,
                Err(error) if is_denied(&error) => RootState::Denied,
                Err(error) => return Err(error.into()),
            };
        }
        if probe.root == RootState::Denied {
            return Ok(probe);
        }
        let parent = config.root.trim_end_matches('/');
        let path = format!("{parent}/polylock-doctor-{}", engine.lease_id().to_hex());
        let asked = SystemTime::now();
        match create(client, &path, &acls).await {
            Ok(made) => {
                probe.clock = offset(&made, asked, asked.elapsed().unwrap_or_default());
            }
            Err(error) => {
                probe.denied = Some(denied(error, ProbeStep::Create)?);
                return Ok(probe);
            }
        }
        probe.denied = contend(client, &path, &CreateMode::Ephemeral.with_acls(acls)).await?;
        if let Err(error) = client.list_children(&config.root).await {
            let step = denied(error, ProbeStep::List)?;
            probe.denied = probe.denied.or(Some(step));
        }
        match client.delete(&path, None).await {
            Ok(()) | Err(ClientError::NoNode) => {}
            Err(error) => {
                let step = denied(error, ProbeStep::Delete)?;
                probe.denied = probe.denied.or(Some(step));
            }
        }
        Ok(probe)
    }
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
) -> Result<Option<ProbeStep>, Failure> {
    let node = format!("{directory}/node");
    let step = |error| denied(error, ProbeStep::Contend).map(Some);
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

fn denied(error: ClientError, step: ProbeStep) -> Result<ProbeStep, Failure> {
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
fn offset(stat: &Stat, asked: SystemTime, round: Duration) -> Option<ClockOffset> {
    let there = Duration::from_millis(u64::try_from(stat.ctime).ok()?);
    let here = asked.duration_since(UNIX_EPOCH).ok()? + round / 2;
    let off = there.abs_diff(here);
    Some(ClockOffset {
        min: off.saturating_sub(round / 2),
        max: off + round / 2,
    })
}
