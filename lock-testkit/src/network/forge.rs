use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};

use super::host::Host;
use super::rules::NFT;
use super::sockets::{Connection, State, connections};
use super::tools::tool;
use super::wait;

/// Resets the connections of a host with a peer, of which the peer must not hear.
///
/// A socket believes a reset with the one right number only, and the kernel does not tell which that
/// is. So each connection gets a SYN that seems to come from the peer. It answers that with its right
/// number, and the answer meets a rule that rejects it with a reset.
pub(super) fn reset(at: &Host, peer: Ipv4Addr) -> io::Result<()> {
    let namespace = at.namespace()?;
    let reject = format!(
        "table ip forge {{\n\
             chain output {{\n\
                 type filter hook output priority 0; policy accept;\n\
                 ip daddr {peer} meta l4proto tcp reject with tcp reset\n\
             }}\n\
         }}\n"
    );
    tool(Some(namespace), &NFT, &reject)?;
    let outcome = at.enter(|| provoke(peer));
    tool(Some(namespace), &NFT, "delete table ip forge\n")?;
    outcome
}

fn provoke(peer: Ipv4Addr) -> io::Result<()> {
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW))?;
    let mut again = Instant::now();
    wait("a connection does not end", || {
        let is_open =
            |open: &Connection| *open.peer.ip() == peer && open.state == State::Established;
        let open: Vec<_> = connections()?.into_iter().filter(is_open).collect();
        if Instant::now() >= again {
            again = Instant::now() + ANSWERS_EVERY;
            for connection in &open {
                let local = SocketAddr::V4(connection.local);
                let packet = syn(connection.peer, connection.local);
                sendto(&raw, &packet, SendFlags::empty(), &local)?;
            }
        }
        Ok(open.is_empty())
    })
}

/// A packet that opens a connection. The kernel adds the length and the checksum of the first header.
fn syn(from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    const LENGTH: u8 = 20;
    const TCP: u8 = 6;
    let (source, target) = (from.ip().octets(), to.ip().octets());
    let mut segment = Vec::new();
    segment.extend(from.port().to_be_bytes());
    segment.extend(to.port().to_be_bytes());
    // Its number and that of what it acknowledges.
    segment.extend([0; 8]);
    let (words, syn) = ((LENGTH / 4) << 4, 2);
    segment.extend([words, syn]);
    // The window, the checksum and the urgent pointer.
    segment.extend([4, 0, 0, 0, 0, 0]);
    let mut summed = Vec::new();
    summed.extend(source);
    summed.extend(target);
    summed.extend([0, TCP, 0, LENGTH]);
    summed.extend(&segment);
    segment[16..18].copy_from_slice(&checksum(&summed).to_be_bytes());

    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, TCP, 0, 0];
    packet.extend(source);
    packet.extend(target);
    packet.extend(segment);
    packet
}

/// The sum of RFC 1071 over an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).unwrap_or(u16::MAX)
}

/// A socket answers such a packet twice in a second.
const ANSWERS_EVERY: Duration = Duration::from_millis(550);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_a_packet_with_its_checksum_is_zero() {
        let (from, to) = ("198.18.0.10:40000", "198.18.0.11:2181");
        let packet = syn(from.parse().unwrap(), to.parse().unwrap());
        assert_eq!(packet.len(), 40);
        let mut summed = packet[12..20].to_vec();
        summed.extend([0, 6, 0, 20]);
        summed.extend(&packet[20..]);
        assert_eq!(checksum(&summed), 0);
        assert_ne!(packet[36..38], [0, 0]);
    }
}
