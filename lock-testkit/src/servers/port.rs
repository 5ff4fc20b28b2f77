use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

/// A free port of 127.0.0.1 whose cluster bus port is free as well.
///
/// No other test gets it while this process runs: otherwise a client could reach another test's server
/// in place of a stopped one. Other programs may bind it before the server does; then the caller starts
/// the server at another port.
pub(super) fn free_port() -> io::Result<u16> {
    static RESERVED: Mutex<Vec<File>> = Mutex::new(Vec::new());
    for _ in 0..PORTS {
        let port = next();
        if is_free(port) && is_free(port + BUS) {
            let user = rustix::process::getuid().as_raw();
            if let Some(file) = reserve(&format!("polylock-ports-{user}"), port)? {
                let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
                reserved.push(file);
                return Ok(port);
            }
        }
    }
    Err(io::Error::other("no port of 127.0.0.1 is free"))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Keeps a number from the other processes that use the same directory of the temporary one, by a lock
/// on a file of its name that ends with the file or with this process. None if another has it.
pub(crate) fn reserve(directory: &str, number: u16) -> io::Result<Option<File>> {
    let directory = std::env::temp_dir().join(directory);
    fs::create_dir_all(&directory)?;
    let file = File::create(directory.join(number.to_string()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Walks through the ports from a place of this process's own, so that the processes of a test run
/// seldom meet.
fn next() -> u16 {
    static START: OnceLock<u16> = OnceLock::new();
    static STEP: AtomicU16 = AtomicU16::new(0);
    let start = START.get_or_init(|| {
        let nanos = SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(0, |elapsed| elapsed.subsec_nanos());
        let mixed = nanos.wrapping_add(process::id().wrapping_mul(2_654_435_761));
        u16::try_from(mixed % u32::from(PORTS)).unwrap_or_default()
    });
    let step = STEP.fetch_add(1, Ordering::Relaxed) % PORTS;
    FIRST + (start + step) % PORTS
}

// Ports and bus ports lie below those that Linux gives to outgoing connections (32768 and up): one
// of these would otherwise take the port of a server that is down between kill and restart.
const FIRST: u16 = 11_000;
const PORTS: u16 = 10_000;

/// Redis Cluster adds this to the port for the bus between its nodes.
pub(super) const BUS: u16 = 10_000;
