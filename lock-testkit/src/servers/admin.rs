use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::Reply;

/// A connection past the client under test, by the server's socket in its own directory: nobody
/// else answers there, and neither TLS nor a proxy is in between.
#[derive(Debug)]
pub(super) struct Admin {
    stream: UnixStream,
    unread: Vec<u8>,
}

impl Admin {
    pub(super) fn connect(socket: &Path, patience: Duration) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self {
            stream,
            unread: Vec::new(),
        })
    }

    pub(super) fn command(&mut self, args: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.stream.write_all(&encode(args))?;
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
}

/// A command as clients send it.
pub(super) fn encode(args: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
