use std::time::Duration;

use tokio::task::block_in_place;
use tokio::time::sleep;

use lock_testkit::servers::{RedisOptions, RedisServer, RespClient};

use super::{Address, Result, look};

/// A master with an asynchronous replica, and the address under which clients find the master.
#[derive(Debug)]
pub(crate) struct Pair {
    master: RedisServer,
    replica: RedisServer,
    /// Between the two.
    wire: Address,
    address: Address,
}

impl Pair {
    /// Starts both and waits until the replica has what the master has.
    pub(crate) async fn start() -> Result<Self> {
        // By default a master waits 5 s for more replicas.
        let options = RedisOptions::new().with_config("repl-diskless-sync-delay", "0");
        let master = block_in_place(|| RedisServer::start(options));
        let wire = Address::of(master.port()).await?;
        let replicaof = format!("127.0.0.1 {}", wire.port());
        let options = RedisOptions::new().with_config("replicaof", &replicaof);
        let replica = block_in_place(|| RedisServer::start(options));
        while !look(&replica, &["INFO", "replication"])?.contains("master_link_status:up") {
            sleep(PAUSE).await;
        }
        while !is_replicated(&master)? {
            sleep(PAUSE).await;
        }
        let address = Address::of(master.port()).await?;
        Ok(Self {
            master,
            replica,
            wire,
            address,
        })
    }

    /// Where clients find the master.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// From here on nothing that the master says reaches the replica.
    pub(crate) fn part(&self) {
        self.wire.cut();
    }

    /// The master dies, the replica becomes master.
    pub(crate) fn fail_over(&self) -> Result<()> {
        block_in_place(|| self.master.kill());
        look(&self.replica, &["REPLICAOF", "NO", "ONE"])?;
        self.address.point_at(self.replica.port());
        Ok(())
    }
}

/// Whether the replica confirms a write.
fn is_replicated(master: &RedisServer) -> Result<bool> {
    block_in_place(|| {
        let mut client = RespClient::connect(master.port(), Duration::from_secs(5))?;
        client.command(&["SET", "probe", "1"])?;
        Ok(client.command(&["WAIT", "1", "100"])?.integer() == Some(1))
    })
}

const PAUSE: Duration = Duration::from_millis(10);
