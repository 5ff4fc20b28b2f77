use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A blocking connection to a Redis server that does nothing by itself.
#[derive(Debug)]
pub struct RespClient {
    stream: Box<dyn RespStream>,
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

    fn on(stream: impl RespStream + 'static) -> Self {
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

trait RespStream: Debug + Read + Send + Sync + Write {}

impl<T: Debug + Read + Send + Sync + Write> RespStream for T {}

/// An answer of a Redis server, RESP2 or RESP3, of the types that its commands and scripts have here.
#[expect(clippy::exhaustive_enums, reason = "tests match on them")]
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// An array.
    Array(Vec<Self>),
    /// A bulk or verbatim string.
    Bulk(Vec<u8>),
    /// An error; the first word is its code.
    Error(String),
    /// An integer.
    Integer(i64),
    /// A map.
    Map(Vec<(Self, Self)>),
    /// A null of any kind.
    Nil,
    /// An unsolicited message.
    Push(Vec<Self>),
    /// A set.
    Set(Vec<Self>),
    /// A simple string.
    Simple(String),
}

impl Reply {
    /// Parses the first reply of the bytes and tells its length; none if it is incomplete.
    ///
    /// # Errors
    ///
    /// If the bytes are no reply.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, &'static str> {
        let mut reader = Reader { bytes, at: 0 };
        match reader.reply(0) {
            Ok(reply) => Ok(Some((reply, reader.at))),
            Err(ParseError::Incomplete) => Ok(None),
            Err(ParseError::Bad(what)) => Err(what),
        }
    }

    /// The text of a line, an error or bytes, and the digits of an integer.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Error(text) | Self::Simple(text) => Some(text.clone()),
            Self::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            Self::Integer(number) => Some(number.to_string()),
            Self::Array(_) | Self::Map(_) | Self::Nil | Self::Push(_) | Self::Set(_) => None,
        }
    }

    /// An integer, also one in decimal digits.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            other => other.text()?.parse().ok(),
        }
    }

    /// The items of an array, a push message or a set.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) | Self::Push(items) | Self::Set(items) => items,
            _ => &[],
        }
    }

    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

enum ParseError {
    Bad(&'static str),
    Incomplete,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn reply(&mut self, depth: usize) -> Result<Reply, ParseError> {
        if depth > DEEPEST {
            return Err(ParseError::Bad("nested too deep"));
        }
        let line = self.line()?;
        let (kind, rest) = line.split_first().ok_or(ParseError::Bad("an empty line"))?;
        let text = || String::from_utf8_lossy(rest).into_owned();
        Ok(match kind {
            b'+' => Reply::Simple(text()),
            b'-' => Reply::Error(text()),
            b':' => Reply::Integer(number(rest)?),
            b'_' => Reply::Nil,
            b'$' | b'=' => match length(rest)? {
                None => Reply::Nil,
                Some(length) => Reply::Bulk(self.blob(*kind, length)?),
            },
            b'*' => match length(rest)? {
                None => Reply::Nil,
                Some(length) => Reply::Array(self.several(length, depth)?),
            },
            b'>' => Reply::Push(self.several(known(rest)?, depth)?),
            b'~' => Reply::Set(self.several(known(rest)?, depth)?),
            b'%' => Reply::Map(self.pairs(known(rest)?, depth)?),
            _ => return Err(ParseError::Bad("an unknown type")),
        })
    }

    fn several(&mut self, count: usize, depth: usize) -> Result<Vec<Reply>, ParseError> {
        (0..count).map(|_| self.reply(depth + 1)).collect()
    }

    fn pairs(&mut self, count: usize, depth: usize) -> Result<Vec<(Reply, Reply)>, ParseError> {
        (0..count)
            .map(|_| Ok((self.reply(depth + 1)?, self.reply(depth + 1)?)))
            .collect()
    }

    fn blob(&mut self, kind: u8, length: usize) -> Result<Vec<u8>, ParseError> {
        let rest = &self.bytes[self.at..];
        let end = length
            .checked_add(2)
            .ok_or(ParseError::Bad("a length out of range"))?;
        let blob = rest.get(..end).ok_or(ParseError::Incomplete)?;
        let bytes = blob
            .strip_suffix(b"\r\n")
            .ok_or(ParseError::Bad("bytes without an end"))?;
        self.at += end;
        // Verbatim text begins with its format: `txt:`.
        let format = if kind == b'=' { 4 } else { 0 };
        Ok(bytes.get(format..).unwrap_or_default().to_vec())
    }

    fn line(&mut self) -> Result<&'a [u8], ParseError> {
        let rest = &self.bytes[self.at..];
        let end = rest
            .windows(2)
            .position(|pair| pair == b"\r\n")
            .ok_or(ParseError::Incomplete)?;
        self.at += end + 2;
        Ok(&rest[..end])
    }
}

fn number(digits: &[u8]) -> Result<i64, ParseError> {
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse().ok())
        .ok_or(ParseError::Bad("no integer"))
}

/// None for the null of RESP2.
fn length(digits: &[u8]) -> Result<Option<usize>, ParseError> {
    match number(digits)? {
        -1 => Ok(None),
        length => usize::try_from(length)
            .map(Some)
            .map_err(|_| ParseError::Bad("a length out of range")),
    }
}

fn known(digits: &[u8]) -> Result<usize, ParseError> {
    length(digits)?.ok_or(ParseError::Bad("a length out of range"))
}

const DEEPEST: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_parsed() {
        let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        let simple = |text: &str| Reply::Simple(text.to_owned());
        let one = Reply::Integer(1);
        let nested = vec![one.clone(), Reply::Array(vec![bulk("x")])];
        let cases = [
            ("+OK\r\n", simple("OK")),
            ("-ERR no\r\n", Reply::Error("ERR no".to_owned())),
            (":-7\r\n", Reply::Integer(-7)),
            ("$3\r\na\r\n\r\n", bulk("a\r\n")),
            ("$-1\r\n", Reply::Nil),
            ("*-1\r\n", Reply::Nil),
            ("_\r\n", Reply::Nil),
            ("=7\r\ntxt:abc\r\n", bulk("abc")),
            ("*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", Reply::Array(nested)),
            ("~1\r\n:1\r\n", Reply::Set(vec![one.clone()])),
            (">1\r\n+m\r\n", Reply::Push(vec![simple("m")])),
            ("%1\r\n+a\r\n:1\r\n", Reply::Map(vec![(simple("a"), one)])),
        ];
        for (bytes, reply) in cases {
            let parsed = Reply::parse(format!("{bytes}+NEXT\r\n").as_bytes());
            assert_eq!(parsed, Ok(Some((reply, bytes.len()))), "{bytes:?}");
            for cut in 0..bytes.len() {
                assert_eq!(
                    Reply::parse(&bytes.as_bytes()[..cut]),
                    Ok(None),
                    "{bytes:?} {cut}"
                );
            }
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [
            "x\r\n",
            ":a\r\n",
            "$-2\r\n",
            "$1\r\nabc\r\n",
            "\r\n",
            ">-1\r\n",
            "$?\r\n",
        ] {
            assert!(Reply::parse(bytes.as_bytes()).is_err(), "{bytes:?}");
        }
        assert!(Reply::parse("*1\r\n".repeat(99).as_bytes()).is_err());
    }
}
