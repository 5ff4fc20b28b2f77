use std::fmt;
use std::net::Ipv6Addr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::percent::decode;
use crate::error::{Error, Result};

/// One of the hosts of a [`LockUrl`](crate::LockUrl).
#[non_exhaustive]
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Host {
    /// Name or address, percent-decoded; an IPv6 address without its brackets.
    pub name: String,
    /// The port, if one is written.
    pub port: Option<u16>,
}

impl Host {
    /// The port, or the default one of the service.
    #[must_use]
    pub fn port_or(&self, default: u16) -> u16 {
        self.port.unwrap_or(default)
    }
}

/// As in a URL: `cache:6379`, `[::1]:6379`.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(
                f,
                "[{}]",
                utf8_percent_encode(&self.name, ESCAPED_IN_BRACKETS)
            )?;
        } else {
            write!(f, "{}", utf8_percent_encode(&self.name, ESCAPED))?;
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

/// Characters that a host may be written with as they are, besides letters and digits.
const PLAIN: &str = "-._~";
const ESCAPED_IN_BRACKETS: &AsciiSet = &ESCAPED.remove(b':');
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Reads `host:port,host`; an empty text is an empty list.
///
/// Errors count the hosts and do not quote them: a password whose `@` is missing looks like a port.
pub(super) fn parse_list(text: &str, scheme: &str) -> Result<Vec<Host>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let hosts = text.split(',').enumerate();
    hosts
        .map(|(at, host)| parse(host, at + 1, scheme))
        .collect()
}

fn parse(text: &str, nth: usize, scheme: &str) -> Result<Host> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let open = || Error::config(format!("the bracket of host {nth} is not closed"));
            let (address, after) = rest.split_once(']').ok_or_else(open)?;
            (address_in_brackets(address, nth)?, after)
        }
        None => {
            let end = text.find(':').unwrap_or(text.len());
            (plain_name(&text[..end], nth, scheme)?, &text[end..])
        }
    };
    Ok(Host {
        name,
        port: parse_port(port, nth, scheme)?,
    })
}

fn address_in_brackets(text: &str, nth: usize) -> Result<String> {
    let address = decode(text)?;
    let (ip, _zone) = address.split_once('%').unwrap_or((&address, ""));
    if ip.parse::<Ipv6Addr>().is_err() {
        let message = format!("host {nth} is no IPv6 address but stands in brackets");
        return Err(Error::config(message));
    }
    Ok(address)
}

fn plain_name(text: &str, nth: usize, scheme: &str) -> Result<String> {
    if text.is_empty() {
        let message = format!("host {nth} is empty, write {scheme}://HOST:PORT,HOST:PORT");
        return Err(Error::config(message));
    }
    let is_plain = |c: char| c.is_alphanumeric() || c == '%' || PLAIN.contains(c);
    if !text.chars().all(is_plain) {
        return Err(Error::config(format!(
            "host {nth} contains a character that no host has, write {scheme}://HOST:PORT"
        )));
    }
    let name = decode(text)?;
    if name.contains(|c: char| c == ':' || c.is_control()) {
        return Err(Error::config(format!(
            "host {nth} contains an escaped colon or control character"
        )));
    }
    Ok(name)
}

/// Reads nothing or `:` and a port.
fn parse_port(text: &str, nth: usize, scheme: &str) -> Result<Option<u16>> {
    let is_number = |port: &str| port.bytes().all(|b| b.is_ascii_digit());
    let wrong = match text.strip_prefix(':') {
        None if text.is_empty() => return Ok(None),
        None => format!("host {nth} is followed by something that is no port"),
        Some("") => format!("the port of host {nth} is missing after the colon"),
        Some(port) if port.contains(':') => {
            format!("host {nth} has two colons: an IPv6 address stands in brackets")
        }
        Some(port) if !is_number(port) => format!(
            "the port of host {nth} is not a number; if it belongs to a password, that has an \
             unescaped / or ? (%2F, %3F) or no @HOST after it"
        ),
        Some(port) => match port.parse() {
            Ok(port @ 1..) => return Ok(Some(port)),
            _ => format!("the port of host {nth} is not between 1 and 65535"),
        },
    };
    let message = format!("{wrong}, write {scheme}://HOST:PORT");
    Err(Error::config(message))
}
