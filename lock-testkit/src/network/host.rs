use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use super::NetworkInner;
use super::namespace::{NetworkNamespace, command_in, move_thread, tool};
use crate::wait;

/// A host of a [`Network`](super::Network), with an address and a loopback of its own. It is there
/// until the network and all values of its hosts are gone.
#[derive(Clone, Debug)]
pub struct NetworkHost {
    /// Lives as long as this.
    _network: Arc<NetworkInner>,
    parts: Arc<Parts>,
}

impl NetworkHost {
    pub(super) fn new(network: Arc<NetworkInner>, parts: Arc<Parts>) -> Self {
        Self {
            _network: network,
            parts,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// Its address, in 198.18.0.0/15.
    pub fn address(&self) -> Ipv4Addr {
        self.parts.address
    }

    /// A program that runs on the host. The process that is started becomes the program. It is
    /// killed when the network goes or the test process ends, whichever is first.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        command_in(&self.parts.namespace.path(), program)
    }

    /// The words that a program and its arguments follow to run on the host, such as those of
    /// [`Taker::with_prefix`](crate::taker::Taker::with_prefix).
    pub fn prefix(&self) -> Vec<OsString> {
        let command = self.command("env");
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(OsString::from).collect()
    }

    /// Does the work on a thread of its own on the host, and waits for it. The sockets that it makes
    /// are the host's for good, whichever thread uses them later.
    ///
    /// Threads that the work starts are on the host too. One that is shared by the whole process,
    /// such as that of polylock-core's scheduler, is where it was started first: clients of several hosts
    /// want processes of their own, see [`prefix`](Self::prefix).
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = self.parts.namespace.open();
        let namespace = namespace.expect("the host has a namespace");
        thread::scope(|scope| {
            let working = scope.spawn(move || {
                move_thread(&namespace).expect("root may enter a namespace");
                work()
            });
            let done = working.join();
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Kills its processes and makes it forget its connections.
    pub(super) fn kill_all(&self) {
        self.parts.namespace.kill_all();
        self.end_connections(&[]);
    }

    /// Ends its TCP connections that `ss` finds by these words, and returns when they are gone. What
    /// the kernel sends about it meets the rules of the network.
    pub(super) fn end_connections(&self, filter: &[&str]) {
        let ss = |option: &[&str]| {
            let words = [&["ss"], option, &CONNECTIONS, filter].concat();
            tool(Some(&self.parts.namespace), &words, "").expect("ss lists connections")
        };
        wait("the connections of a host end", || {
            ss(&["-K"]);
            ss(&[]).is_empty()
        });
    }
}

/// What a host consists of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) address: Ipv4Addr,
    pub(super) namespace: NetworkNamespace,
}

/// What `ss` is asked for: TCP connections that the peer has answered, by number and without a header.
const CONNECTIONS: [&str; 3] = ["-Htn", "state", "synchronized"];
