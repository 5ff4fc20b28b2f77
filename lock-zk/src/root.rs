use zookeeper_client::{Client, CreateMode};

use crate::acl::acls;
use crate::config::ZooKeeperConfig;
use crate::error::Failure;

/// Recreates the directory of all locks, if it was deleted under a client.
pub(crate) async fn make_root(rooted: &Client, config: &ZooKeeperConfig) -> Result<(), Failure> {
    let whole = rooted.clone().chroot("/");
    let whole = whole.map_err(|_| Failure::protocol("a client without a root"))?;
    let directory = CreateMode::Persistent.with_acls(acls(config.access()));
    Ok(whole.mkdir(&config.root, &directory).await?)
}
