use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::Reply;

/// A blocking connection to a Redis server that does nothing by itself.
#[derive(Debug)]
pub struct RespClient {
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
}

impl RespClient {
    /// Connects to this port of 127.0.0.1. Whatever takes longer than `patience` fails.
    ///
    /// # Errors
    ///
    /// Those of connect(2).
    pub fn connect(port: u16, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self::on(stream))
    }

    /// Connects to a socket of the file system.
    pub(super) fn connect_to(socket: &Path, patience: Duration) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self::on(stream))
    }

    /// Sends a command and returns what arrives next. An error of the server is a reply.
    ///
    /// # Errors
    ///
    /// If the connection breaks, nothing arrives in time, or what arrives is no reply.
    pub fn command(&mut self, args: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.send(args)?;
        self.receive()
    }

    /// Sends a command.
    ///
    /// # Errors
    ///
    /// If the connection breaks.
    pub fn send(&mut self, args: &[impl AsRef<[u8]>]) -> io::Result<()> {
        self.stream.write_all(&encode(args))
    }

    /// Waits for a reply or a push message.
    ///
    /// # Errors
    ///
    /// If the connection breaks, nothing arrives in time, or what arrives is no reply.
    pub fn receive(&mut self) -> io::Result<Reply> {
        loop {
            let parsed = Reply::parse(&self.unread)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if let Some((reply, length)) = parsed {
                self.unread.drain(..length);
                return Ok(reply);
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => self.unread.extend_from_slice(&chunk[..length]),
            }
        }
    }

    fn on(stream: impl Stream + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            unread: Vec::new(),
        }
    }
}

/// A command as clients send it.
fn encode(args: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

trait Stream: Debug + Read + Send + Sync + Write {}

impl<T: Debug + Read + Send + Sync + Write> Stream for T {}
