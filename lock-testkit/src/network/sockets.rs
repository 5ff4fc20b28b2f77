use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

/// A TCP socket as the kernel tells of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Connection {
    pub(super) local: SocketAddrV4,
    pub(super) peer: SocketAddrV4,
    pub(super) state: State,
}

/// What a forged packet can do to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// Both sides know of it, and it is not over.
    Established,
    Listens,
    /// It is about to be, or is over.
    Other,
}

/// The TCP sockets of the calling thread's network with addresses of version 4, those inside of
/// version 6 included.
pub(super) fn connections() -> io::Result<Vec<Connection>> {
    let mut found = Vec::new();
    for file in ["tcp", "tcp6"] {
        match fs::read_to_string(format!("/proc/thread-self/net/{file}")) {
            Ok(table) => found.extend(table.lines().filter_map(parse)),
            // A kernel without version 6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// A line as proc(5) describes it.
fn parse(line: &str) -> Option<Connection> {
    let mut fields = line.split_whitespace().skip(1);
    let (local, peer) = (address(fields.next()?)?, address(fields.next()?)?);
    let state = match fields.next()? {
        // ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING
        "01" | "04" | "05" | "08" | "09" | "0B" => State::Established,
        "0A" => State::Listens,
        // SYN_SENT, SYN_RECV, TIME_WAIT, CLOSE
        _ => State::Other,
    };
    Some(Connection { local, peer, state })
}

/// An address and a port in hexadecimal digits, the address in words of the machine's order.
fn address(field: &str) -> Option<SocketAddrV4> {
    let (address, port) = field.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for word in address.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let address = match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(bytes) => Ipv4Addr::from(bytes),
        Err(_) => match Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[..]).ok()?).to_canonical() {
            IpAddr::V4(address) => address,
            IpAddr::V6(address) if address.is_unspecified() => Ipv4Addr::UNSPECIFIED,
            IpAddr::V6(_) => return None,
        },
    };
    Some(SocketAddrV4::new(address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn tells_connections_of_both_versions() {
        for (line, expected) in [
            (
                "   0: 0A0312C6:1F90 0B0312C6:C350 01 00000000:00000000 00:00000000 00000000",
                Some(("198.18.3.10:8080", "198.18.3.11:50000", State::Established)),
            ),
            (
                "   1: 0000000000000000FFFF00000A0312C6:1F90 \
                 0000000000000000FFFF00000B0312C6:C350 08 00000000:00000000",
                Some(("198.18.3.10:8080", "198.18.3.11:50000", State::Established)),
            ),
            (
                "   2: 00000000000000000000000000000000:1F90 \
                 00000000000000000000000000000000:0000 0A 00000000:00000000",
                Some(("0.0.0.0:8080", "0.0.0.0:0", State::Listens)),
            ),
            (
                "   3: 0A0312C6:1F90 0B0312C6:C350 06 00000000:00000000",
                Some(("198.18.3.10:8080", "198.18.3.11:50000", State::Other)),
            ),
            (
                "  sl  local_address rem_address   st tx_queue rx_queue",
                None,
            ),
        ] {
            let expected = expected.map(|(local, peer, state)| Connection {
                local: local.parse().unwrap(),
                peer: peer.parse().unwrap(),
                state,
            });
            assert_eq!(parse(line), expected, "{line}");
        }
    }
}
