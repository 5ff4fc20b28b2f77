use std::ffi::OsString;
use std::net::Ipv4Addr;

use crate::network::Host;

/// The address that a server listens on: that of its host.
pub(super) fn address(host: Option<&Host>) -> Ipv4Addr {
    host.map_or(Ipv4Addr::LOCALHOST, Host::address)
}

/// Does the work where the server is, past the faults of the network.
pub(super) fn near<T: Send>(host: Option<&Host>, work: impl FnOnce() -> T + Send) -> T {
    match host {
        Some(host) => host.enter(work),
        None => work(),
    }
}

/// Words that a program and its arguments follow to run on a host.
pub(super) fn prefix(host: Option<&Host>) -> Vec<OsString> {
    let command = host.map(|host| host.command("env"));
    command.map_or_else(Vec::new, |command| {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(OsString::from).collect()
    })
}
