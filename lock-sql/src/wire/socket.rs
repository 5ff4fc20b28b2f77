//! Detects that a server has closed an idle connection.
//!
//! The client reads from its socket only while it waits for a reply, and gives no access to the socket.
//! So the socket is found among those of this process by its two ends, as the server sees them, and
//! duplicated. If that fails, the next request detects the close. It fails on systems other than Linux
//! 5.6 or later, in containers whose seccomp profile refuses `pidfd_getfd`, behind proxies and NAT that
//! rewrite addresses or ports, and if MySQL or MariaDB knows the client by a name of another address.

use std::net::IpAddr;

#[cfg(not(target_os = "linux"))]
pub(crate) use self::elsewhere::{Duplicate, SocketWatch, find};
#[cfg(target_os = "linux")]
pub(crate) use self::linux::{Duplicate, SocketWatch, find};

/// The ends of a connection, as its server sees them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ends {
    /// A name or an address.
    pub(crate) client: String,
    pub(crate) client_port: u16,
    /// `None` if the server does not tell.
    pub(crate) server: Option<IpAddr>,
    pub(crate) server_port: u16,
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::future::pending;
    use std::io;
    use std::net::{self, IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
    use std::os::fd::RawFd;

    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    use tokio::io::Interest;
    use tokio::net::TcpStream;

    use super::Ends;

    /// Another descriptor of a socket; the socket stays open until it is dropped.
    pub(crate) struct Duplicate(net::TcpStream);

    /// The socket of this process with these two ends. Reads files of the kernel, and may resolve a host
    /// name.
    ///
    /// The connection may close meanwhile: then there is no socket, or a closed one.
    pub(crate) fn find(ends: &Ends) -> Option<Duplicate> {
        let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
        let entries: Vec<_> = tables
            .iter()
            .filter_map(|table| fs::read_to_string(table).ok())
            .flat_map(|table| entries(&table))
            .collect();
        let client = (ends.client.as_str(), ends.client_port);
        let clients: Vec<_> = client.to_socket_addrs().ok()?.map(canonical).collect();
        let entry = select(&entries, &clients, ends)?;
        duplicate(entry)
    }

    fn duplicate(entry: &SocketEntry) -> Option<Duplicate> {
        let descriptor = descriptor(&format!("socket:[{}]", entry.inode))?;
        let this = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
        let socket = pidfd_getfd(this, descriptor, PidfdGetfdFlags::empty()).ok()?;
        let socket = net::TcpStream::from(socket);
        // The number of a descriptor that was closed meanwhile may be that of another one.
        let ends = (socket.local_addr().ok()?, socket.peer_addr().ok()?);
        let is_it = (canonical(ends.0), canonical(ends.1)) == (entry.local, entry.remote);
        is_it.then_some(Duplicate(socket))
    }

    /// A connection in a table of the kernel.
    #[derive(Clone, Debug, Eq, PartialEq)]
    pub(super) struct SocketEntry {
        pub(super) local: SocketAddr,
        pub(super) remote: SocketAddr,
        pub(super) inode: u64,
    }

    /// The connection with these ends; `None` if it is ambiguous.
    pub(super) fn select<'a>(
        entries: &'a [SocketEntry],
        clients: &[SocketAddr],
        ends: &Ends,
    ) -> Option<&'a SocketEntry> {
        let is_server = |entry: &&SocketEntry| match ends.server {
            Some(server) => entry.remote.ip() == server.to_canonical(),
            None => true,
        };
        let ours = |entry: &&SocketEntry| clients.contains(&entry.local);
        let mut found = entries.iter().filter(ours).filter(is_server);
        // Where the server does not tell its address, connections from one port to several servers are
        // alike.
        match (found.next(), found.next()) {
            (Some(only), None) => Some(only).filter(|e| e.remote.port() == ends.server_port),
            _ => None,
        }
    }

    /// The connections of a table that are established.
    pub(super) fn entries(table: &str) -> Vec<SocketEntry> {
        let entry = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let is_established = *words.get(3)? == ESTABLISHED;
            is_established.then_some(SocketEntry {
                local: address(words.get(1)?)?,
                remote: address(words.get(2)?)?,
                inode: words.get(9)?.parse().ok()?,
            })
        };
        table.lines().skip(1).filter_map(entry).collect()
    }

    /// An address as the kernel writes it: words of the machine, and the port.
    fn address(text: &str) -> Option<SocketAddr> {
        let (address, port) = text.split_once(':')?;
        let mut bytes = Vec::new();
        for at in (0..address.len()).step_by(8) {
            let word = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
            bytes.extend(word.to_ne_bytes());
        }
        let port = u16::from_str_radix(port, 16).ok()?;
        let address = match <[u8; 4]>::try_from(bytes.as_slice()) {
            Ok(four) => IpAddr::from(four),
            Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical(),
        };
        Some((address, port).into())
    }

    /// Without what one side may leave out.
    fn canonical(address: SocketAddr) -> SocketAddr {
        (address.ip().to_canonical(), address.port()).into()
    }

    fn descriptor(name: &str) -> Option<RawFd> {
        let mut entries = fs::read_dir("/proc/self/fd").ok()?;
        let entry = entries.find_map(|entry| {
            let entry = entry.ok()?;
            let target = fs::read_link(entry.path()).ok()?;
            (target.to_str() == Some(name)).then_some(entry)
        })?;
        entry.file_name().to_str()?.parse().ok()
    }

    /// Waits until a socket is closed. It keeps the socket open, and is dropped with its connection.
    pub(crate) struct SocketWatch(TcpStream);

    impl SocketWatch {
        /// `None` if the runtime cannot watch it.
        pub(crate) fn of(socket: &Duplicate) -> Option<Self> {
            // It is as non-blocking as the client has made it.
            let socket = socket.0.try_clone().ok()?;
            TcpStream::from_std(socket).ok().map(Self)
        }

        /// Returns when the server has closed the connection.
        ///
        /// # Cancel safety
        ///
        /// Nothing is lost: the end stays.
        pub(crate) async fn ended(&self) {
            while let Ok(ready) = self.0.ready(Interest::READABLE).await {
                if ready.is_read_closed() {
                    return;
                }
                // Data for the client: waits until more arrives.
                let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                drop(self.0.try_io(Interest::READABLE, nothing));
            }
            pending::<()>().await;
        }
    }

    /// As the kernel writes that state.
    const ESTABLISHED: &str = "01";
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    pub(crate) fn find(_: &super::Ends) -> Option<Duplicate> {
        None
    }

    /// There is none.
    pub(crate) enum Duplicate {}

    /// There is none.
    pub(crate) enum SocketWatch {}

    impl SocketWatch {
        pub(crate) fn of(_: &Duplicate) -> Option<Self> {
            None
        }

        pub(crate) async fn ended(&self) {
            std::future::pending().await
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    fn ends(client: &str, client_port: u16, server: Option<&str>, server_port: u16) -> Ends {
        Ends {
            client: client.to_owned(),
            client_port,
            server: server.map(|server| server.parse().expect("an address")),
            server_port,
        }
    }

    #[test]
    fn a_table_of_the_kernel_tells_the_socket() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000   101        0 7 1
   1: 0100007F:C350 0100007F:1538 01 00000000:00000000 00:00000000 00000000     0        0 42 1
   2: 0100007F:1538 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 43 1
   3: 0100007F:C351 0100007F:1538 06 00000000:00000000 00:00000000 00000000     0        0 0 3
   4: 0500007F:C350 0600007F:1538 01 00000000:00000000 00:00000000 00000000     0        0 44 1
   5: 0500007F:C352 0600007F:1538 01 00000000:00000000 00:00000000 00000000     0        0 45 1
   6: 0500007F:C352 0700007F:1538 01 00000000:00000000 00:00000000 00000000     0        0 46 1
";
        let table6 = "  sl  local_address rem_address st
   0: 0000000000000000FFFF00000100007F:C353 0000000000000000FFFF00000100007F:1538 01 0:0 0:0 0 0 0 47 1
   1: 00000000000000000000000001000000:C353 00000000000000000000000001000000:1538 01 0:0 0:0 0 0 0 48 1
";
        let mut entries = linux::entries(table);
        entries.extend(linux::entries(table6));
        let (near, far) = ("127.0.0.1", "127.0.0.6");
        let cases = [
            (ends(near, 50_000, Some(near), 5432), Some(42)),
            (ends(near, 50_000, None, 5432), Some(42)),
            // Another address at one of the ends, or another port.
            (ends(near, 50_000, Some(far), 5432), None),
            (ends(far, 50_000, Some(near), 5432), None),
            (ends(near, 50_000, None, 5433), None),
            // It is not open any more.
            (ends(near, 50_001, Some(near), 5432), None),
            (ends("127.0.0.5", 50_000, Some(far), 5432), Some(44)),
            (ends("127.0.0.5", 50_002, Some(far), 5432), Some(45)),
            // Two connections from one port.
            (ends("127.0.0.5", 50_002, None, 5432), None),
            (ends(near, 50_003, Some(near), 5432), Some(47)),
            (ends("::1", 50_003, Some("::1"), 5432), Some(48)),
        ];
        for (ends, inode) in cases {
            let client: SocketAddr =
                (ends.client.parse::<IpAddr>().unwrap(), ends.client_port).into();
            let found = linux::select(&entries, &[client], &ends).map(|entry| entry.inode);
            assert_eq!(found, inode, "{ends:?}");
        }
    }

    #[tokio::test]
    async fn the_end_of_a_connection_is_noticed_and_its_data_are_left_alone() {
        use std::io::{Read as _, Write as _};

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = listener.local_addr().unwrap().port();
        let mut client = TcpStream::connect(("127.0.0.1", remote)).unwrap();
        client.set_nonblocking(true).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let local = client.local_addr().unwrap().port();
        let told = ends("127.0.0.1", local, Some("127.0.0.1"), remote);
        let socket = find(&told).expect("it is there");
        assert!(find(&ends("localhost", local, None, remote)).is_some());
        assert!(find(&ends("127.0.0.1", local, None, remote.wrapping_add(1))).is_none());
        assert!(find(&ends("127.0.0.2", local, None, remote)).is_none());
        let watch = SocketWatch::of(&socket).expect("it can be watched");
        server.write_all(b"data").unwrap();
        let quiet = tokio::time::timeout(Duration::from_millis(100), watch.ended());
        quiet.await.expect_err("it is open");
        drop(server);
        let ended = tokio::time::timeout(Duration::from_secs(5), watch.ended());
        ended.await.expect("it is noticed");
        let mut data = String::new();
        client.read_to_string(&mut data).unwrap();
        assert_eq!(data, "data");
        drop((watch, socket));
    }
}
