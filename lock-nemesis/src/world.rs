//! The servers, clients and network of a run.

use lock_testkit::history::{HistoryEvent, Recorder};
use lock_testkit::network::Network;
use lock_testkit::proxy::Proxy;
use polylock_core::LockKey;

use crate::backend::BackendKind;
use crate::clients::Clients;
use crate::fleet::Fleet;

/// What faults strike: the servers of a backend, the clients that compete for its locks, and the
/// network between their hosts.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) backend: BackendKind,
    pub(crate) clients: Clients,
    /// How far the wall clocks of the servers have been put forward, in seconds.
    pub(crate) clock_offset: i64,
    pub(crate) fleet: Fleet,
    pub(crate) keys: Vec<LockKey>,
    pub(crate) network: Network,
    /// Between some of the clients and the servers.
    pub(crate) proxies: Vec<Proxy>,
    /// Notes what the registers take and refuse.
    pub(crate) recorder: Recorder,
}

impl World {
    /// Ends all processes, and returns what happened.
    pub(crate) fn finish(self) -> Vec<HistoryEvent> {
        let mut events = self.clients.finish();
        events.extend(self.recorder.events());
        events
    }
}
