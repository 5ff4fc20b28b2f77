use super::ZooKeeperServer;
use super::launch::{is_own, serves};
use super::words::{Door, four_letter, value};
use crate::servers::shared::join;

/// A server or an ensemble that all tests of a run share, also across processes. Tests must not stop
/// it; it ends within a second after the run.
///
/// A run is that of `cargo nextest`, and else the process.
#[derive(Clone, Debug)]
pub struct SharedZooKeeper {
    ports: Vec<u16>,
}

impl SharedZooKeeper {
    /// `127.0.0.1:PORT`, with a comma between several.
    pub fn address(&self) -> String {
        self.addresses().join(",")
    }

    /// `127.0.0.1:PORT` of each server.
    pub fn addresses(&self) -> Vec<String> {
        let address = |port| format!("127.0.0.1:{port}");
        self.ports.iter().map(address).collect()
    }

    /// `zk://127.0.0.1:PORT`, with a comma between several.
    pub fn url(&self) -> String {
        format!("zk://{}", self.address())
    }

    /// Asks the first server with one of the four-letter words.
    pub fn four_letter(&self, word: &str) -> String {
        four_letter(door(self.ports[0]), word).expect("the server answers")
    }

    /// One value of `mntr`, such as `zk_watch_count`, of the first server.
    pub fn mntr(&self, name: &str) -> Option<i64> {
        value(&self.four_letter("mntr"), name)
    }

    /// Finds the one of this run, or starts it.
    pub(super) fn join(name: &str, start: impl Fn() -> Vec<ZooKeeperServer>) -> Self {
        let members = || start().into_iter().map(ZooKeeperServer::into_member);
        let places = join(
            name,
            || members().collect(),
            |place| is_own(&place.dir, door(place.port)) && serves(door(place.port)),
        );
        let ports = places.into_iter().map(|place| place.port).collect();
        Self { ports }
    }
}

fn door(port: u16) -> Door<'static> {
    Door { host: None, port }
}
