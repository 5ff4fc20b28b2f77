use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use super::host::address;
use super::options::SOCKET;
use super::port::free_port;
use super::server_process::started;
use super::{RedisOptions, Reply, RespClient, ServerProcess};
use crate::network::Host;

/// One `redis-server`, killed when the value is dropped.
///
/// # Examples
///
/// ```no_run
/// use lock_testkit::servers::{RedisOptions, RedisServer};
///
/// let server = RedisServer::start(RedisOptions::new());
/// server.command(&["SET", "lock:a", "somebody"]);
/// assert_eq!(server.command(&["DEL", "lock:a"]).integer(), Some(1));
/// ```
#[derive(Debug)]
pub struct RedisServer {
    process: ServerProcess,
    options: RedisOptions,
}

impl RedisServer {
    /// Starts one and waits until it answers.
    ///
    /// # Panics
    ///
    /// If `redis-server` is not installed or refuses the options.
    #[must_use]
    pub fn start(options: RedisOptions) -> Self {
        started("redis-server", || {
            Self::start_at(free_port()?, options.clone())
        })
    }

    /// Starts one at this port, unless somebody has taken it in the meantime.
    pub(super) fn start_at(port: u16, options: RedisOptions) -> io::Result<Self> {
        let process = ServerProcess::start_at(port, options.clone())?;
        Ok(Self { process, options })
    }

    /// `redis://127.0.0.1:PORT`, or `rediss:` where it takes TLS.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.options.is_tls() {
            "rediss"
        } else {
            "redis"
        };
        format!("{scheme}://{}", self.address())
    }

    /// `redis+unix:///PATH/TO/ITS/SOCKET`.
    #[must_use]
    pub fn socket_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Its socket of the file system.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir().join(SOCKET)
    }

    /// Asks the server past the client under test, with all rights, on a connection of its own.
    ///
    /// # Panics
    ///
    /// If it does not answer within 5 s. An answer that is an error is returned.
    pub fn command(&self, args: &[impl AsRef<[u8]>]) -> Reply {
        self.try_command(args).expect("the server answers")
    }

    /// The same of a server that may be stopped or killed.
    ///
    /// # Errors
    ///
    /// If it does not answer within 5 s.
    pub fn try_command(&self, args: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.options.connect(self.dir())?.command(args)
    }

    /// A connection past the client under test, with all rights, for commands that belong together
    /// such as a write and `WAIT`.
    ///
    /// # Panics
    ///
    /// If the server does not answer within 5 s.
    #[must_use]
    pub fn connect(&self) -> RespClient {
        let client = self.options.connect(self.dir());
        client.expect("the server answers")
    }

    /// A connection by TCP from a host, as a client there has it: without a password. Whatever takes
    /// longer than `patience` fails.
    ///
    /// # Errors
    ///
    /// Those of connect(2).
    pub fn connect_from(&self, host: &Host, patience: Duration) -> io::Result<RespClient> {
        let address = (address(self.host()), self.port()).into();
        RespClient::connect_from(host, address, patience)
    }
}

impl Deref for RedisServer {
    type Target = ServerProcess;

    fn deref(&self) -> &ServerProcess {
        &self.process
    }
}
