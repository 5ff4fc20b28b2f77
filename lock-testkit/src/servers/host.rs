use std::net::Ipv4Addr;

use crate::network::NetworkHost;

/// The address that a server listens on: that of its host.
pub(super) fn address(host: Option<&NetworkHost>) -> Ipv4Addr {
    host.map_or(Ipv4Addr::LOCALHOST, NetworkHost::address)
}

/// Does the work on the server's host, where network faults have no effect.
pub(super) fn near<T: Send>(host: Option<&NetworkHost>, work: impl FnOnce() -> T + Send) -> T {
    match host {
        Some(host) => host.enter(work),
        None => work(),
    }
}
