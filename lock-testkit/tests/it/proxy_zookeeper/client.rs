use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lock_testkit::proxy::Proxy;

/// A client of a few frames: it sends what it is told to and returns what comes.
pub(crate) struct Client {
    stream: TcpStream,
    xid: i32,
    pub(crate) session: (i64, Vec<u8>),
}

/// A frame of the server.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame {
    /// Its type and the path of the node.
    Event(i32, String),
    /// The number of the request, that of the error, and the rest.
    Reply(i32, i32, Vec<u8>),
}

impl Client {
    /// Opens a session of 4 s.
    pub(crate) fn open(port: u16) -> io::Result<Self> {
        Self::resume(port, (0, vec![0; 16]))
    }

    pub(crate) fn resume(port: u16, session: (i64, Vec<u8>)) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let xid = 0;
        let mut client = Self {
            stream,
            xid,
            session,
        };
        let (id, password) = client.session.clone();
        let parts: [&[u8]; 6] = [
            &[0; 12],
            &4_000_i32.to_be_bytes(),
            &id.to_be_bytes(),
            &ustring(&password),
            &[0],
            &[],
        ];
        client.write(&parts.concat())?;
        let answer = client.read()?;
        let id = answer[8..16].try_into().expect("8 bytes");
        client.session = (i64::from_be_bytes(id), answer[20..36].to_vec());
        Ok(client)
    }

    /// Sends a request and returns its number.
    pub(crate) fn send(&mut self, operation: i32, body: &[u8]) -> io::Result<i32> {
        self.xid += 1;
        self.send_as(self.xid, operation, body)
    }

    pub(crate) fn send_as(&mut self, xid: i32, operation: i32, body: &[u8]) -> io::Result<i32> {
        self.write(&[&xid.to_be_bytes()[..], &operation.to_be_bytes(), body].concat())?;
        Ok(xid)
    }

    pub(crate) fn receive(&mut self) -> io::Result<Frame> {
        let frame = self.read()?;
        let int = |at: usize| i32::from_be_bytes(frame[at..at + 4].try_into().expect("4 bytes"));
        Ok(match int(0) {
            -1 => Frame::Event(int(16), String::from_utf8_lossy(&frame[28..]).into_owned()),
            xid => Frame::Reply(xid, int(12), frame[16..].to_vec()),
        })
    }

    /// The error of the answer to a request, 0 if there is none.
    pub(crate) fn ask(&mut self, operation: i32, body: &[u8]) -> io::Result<i32> {
        let sent = self.send(operation, body)?;
        match self.receive()? {
            Frame::Reply(xid, error, _) if xid == sent => Ok(error),
            other => panic!("{other:?} answers {sent}"),
        }
    }

    pub(crate) fn set_patience(&self, patience: Duration) {
        let set = self.stream.set_read_timeout(Some(patience));
        set.expect("it is above zero");
    }

    fn write(&mut self, body: &[u8]) -> io::Result<()> {
        self.stream.write_all(&ustring(body))
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).expect("a length");
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        Ok(frame)
    }
}

/// A session through a proxy.
pub(crate) fn client(proxy: &Proxy) -> Client {
    Client::open(proxy.port()).expect("the proxy accepts and the server answers")
}

/// The body of a `CREATE` for everybody.
pub(crate) fn create(path: &str, flags: i32) -> Vec<u8> {
    let (count, all) = (1_i32.to_be_bytes(), 31_i32.to_be_bytes());
    let parts: [&[u8]; 7] = [
        &ustring(path),
        &ustring("data"),
        &count,
        &all,
        &ustring("world"),
        &ustring("anyone"),
        &flags.to_be_bytes(),
    ];
    parts.concat()
}

/// The body of a `DELETE`, of any version.
pub(crate) fn delete(path: &str) -> Vec<u8> {
    [ustring(path), (-1_i32).to_be_bytes().to_vec()].concat()
}

/// The body of what reads a node.
pub(crate) fn look(path: &str, watch: Watched) -> Vec<u8> {
    [ustring(path), vec![u8::from(watch == Watched::On)]].concat()
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Watched {
    Off,
    On,
}

/// Bytes with their length before them.
pub(crate) fn ustring(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    let length = i32::try_from(bytes.len()).expect("it is short");
    [&length.to_be_bytes()[..], bytes].concat()
}

pub(crate) const CREATE: i32 = 1;
pub(crate) const DELETE: i32 = 2;
pub(crate) const EXISTS: i32 = 3;
pub(crate) const GET_CHILDREN: i32 = 8;
pub(crate) const PING: i32 = 11;

/// The number of each ping.
pub(crate) const PING_XID: i32 = -2;
pub(crate) const NO_NODE: i32 = -101;
pub(crate) const DELETED: i32 = 2;

pub(crate) const EPHEMERAL: i32 = 1;
pub(crate) const PERSISTENT: i32 = 0;

pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
