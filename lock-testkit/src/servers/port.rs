use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::Mutex;

use crate::lock;
use crate::numbers::reserve;

/// A free port of 127.0.0.1 whose cluster bus port is free as well.
///
/// No other test gets it while this process runs: otherwise a client could reach another test's server
/// in place of a stopped one. Other programs may bind it before the server does; then the caller starts
/// the server at another port.
pub(super) fn free_port() -> io::Result<u16> {
    static RESERVED: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let user = rustix::process::getuid().as_raw();
    let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let (port, file) = reserve(&format!("polylock-ports-{user}"), PORTS, |port| {
        Ok(is_free(port) && is_free(port + BUS))
    })?;
    lock(&RESERVED).push(file);
    Ok(port)
}

// Ports and bus ports lie below those that Linux gives to outgoing connections (32768 and up): one
// of these would otherwise take the port of a server that is down between kill and restart.
const PORTS: Range<u16> = 11_000..21_000;

/// Redis Cluster adds this to the port for the bus between its nodes.
pub(super) const BUS: u16 = 10_000;
