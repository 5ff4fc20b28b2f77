//! Noticing that a server has closed a connection on which nothing is asked.
//!
//! The client reads from its socket only while it waits for an answer, and gives nobody else access to
//! it. So the socket is found among those of this process by its ports, and duplicated. Where that
//! fails, the next question to the server tells: on other systems than Linux 5.6, in containers whose
//! seccomp profile refuses `pidfd_getfd`, and where something rewrites addresses on the way.

#[cfg(not(target_os = "linux"))]
pub(crate) use self::elsewhere::{Duplicate, Watch, find};
#[cfg(target_os = "linux")]
pub(crate) use self::linux::{Duplicate, Watch, find};

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::future::pending;
    use std::io;
    use std::net;
    use std::os::fd::RawFd;

    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    use tokio::io::Interest;
    use tokio::net::TcpStream;

    /// Another descriptor of a socket, which stays open as long as this is there.
    #[derive(Debug)]
    pub(crate) struct Duplicate(net::TcpStream);

    /// The socket with these ports at its two ends. It belongs to a connection that stays open until
    /// this returns. Reads files of the kernel.
    pub(crate) fn find(local: u16, remote: u16) -> Option<Duplicate> {
        let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
        let mut sockets = tables
            .iter()
            .filter_map(|table| fs::read_to_string(table).ok())
            .flat_map(|table| inodes(&table, local, remote));
        let (first, second) = (sockets.next()?, sockets.next());
        // Which of two it is nobody can tell.
        match second {
            None => duplicate(descriptor(&format!("socket:[{first}]"))?),
            Some(_) => None,
        }
    }

    fn duplicate(socket: RawFd) -> Option<Duplicate> {
        let this = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
        let duplicate = pidfd_getfd(this, socket, PidfdGetfdFlags::empty());
        duplicate.ok().map(|socket| Duplicate(socket.into()))
    }

    /// The connections of a table that have these ports.
    pub(super) fn inodes(table: &str, local: u16, remote: u16) -> Vec<u64> {
        let ports = (format!(":{local:04X}"), format!(":{remote:04X}"));
        let inode = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let fits = words.get(1)?.ends_with(&ports.0)
                && words.get(2)?.ends_with(&ports.1)
                && *words.get(3)? == ESTABLISHED;
            fits.then(|| words.get(9)?.parse().ok())?
        };
        table.lines().skip(1).filter_map(inode).collect()
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

    /// Waits for the end of a socket. It keeps the socket open, and goes with its connection.
    #[derive(Debug)]
    pub(crate) struct Watch(TcpStream);

    impl Watch {
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
                // Something that the client reads: there is nothing to do here until there is more.
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
    pub(crate) fn find(_: u16, _: u16) -> Option<Duplicate> {
        None
    }

    /// There is none.
    #[derive(Debug)]
    pub(crate) enum Duplicate {}

    /// There is none.
    #[derive(Debug)]
    pub(crate) enum Watch {}

    impl Watch {
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
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_table_of_the_kernel_tells_the_socket() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000   101        0 7 1
   1: 0100007F:C350 0100007F:1538 01 00000000:00000000 00:00000000 00000000     0        0 42 1
   2: 0100007F:1538 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 43 1
   3: 0100007F:C351 0100007F:1538 06 00000000:00000000 00:00000000 00000000     0        0 0 3
";
        assert_eq!(linux::inodes(table, 50_000, 5432), [42]);
        assert_eq!(linux::inodes(table, 50_001, 5432), [0_u64; 0]);
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
        let socket = find(local, remote).expect("it is there");
        assert!(find(local, remote.wrapping_add(1)).is_none());
        let watch = Watch::of(&socket).expect("it can be watched");
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
