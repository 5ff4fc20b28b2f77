//! Reads and writes the socket of a connection.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;

/// State shared by all users of one socket. The last of them closes the socket.
#[derive(Debug, Default)]
pub(super) struct SocketState {
    /// Set where the socket is read, at its end.
    pub(super) is_over: AtomicBool,
    /// How many requests have been answered.
    pub(super) answers: AtomicU64,
    /// How many requests wait for their answers.
    pub(super) under_way: AtomicUsize,
    /// The task that drives the socket, which ends with it.
    task: OnceLock<JoinSet<()>>,
}

/// Connects. Many tasks that share the `life` of the socket send their requests in few writes.
///
/// The client drives TLS connections and those without a life, and writes each request separately.
pub(super) async fn connect(
    client: &Client,
    settings: AsyncConnectionConfig,
    timeout: Duration,
    life: Option<&Arc<SocketState>>,
) -> RedisResult<MultiplexedConnection> {
    match (client.get_connection_info().addr(), life) {
        (ConnectionAddr::Tcp(host, port), Some(life)) => {
            let stream = connect_tcp(host, *port).await?;
            set_options(&stream, timeout)?;
            drive(client, stream, settings, life).await
        }
        #[cfg(unix)]
        (ConnectionAddr::Unix(path), Some(life)) => {
            let stream = UnixStream::connect(path).await?;
            drive(client, stream, settings, life).await
        }
        _ => {
            let made = client.get_multiplexed_async_connection_with_config(&settings);
            made.await
        }
    }
}

/// Connects to the first of the host's addresses that replies.
async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses: Vec<_> = lookup_host((host, port)).await?.collect();
    if addresses.is_empty() {
        let message = format!("{host} has no address");
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    let attempts = addresses.into_iter().map(TcpStream::connect).map(Box::pin);
    Ok(select_ok(attempts).await?.0)
}

async fn drive(
    client: &Client,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    settings: AsyncConnectionConfig,
    life: &Arc<SocketState>,
) -> RedisResult<MultiplexedConnection> {
    let stream = Coalesced {
        socket: stream,
        // Neither the socket nor its task counts as a user: they would keep themselves alive.
        users: Arc::downgrade(life),
        awaits_reply: false,
    };
    let info = client.get_connection_info().redis_settings();
    let made = MultiplexedConnection::new_with_config(info, stream, settings).await;
    let (connection, driver) = made?;
    let mut task = JoinSet::new();
    task.spawn(driver);
    let set = life.task.set(task);
    debug_assert!(set.is_ok(), "a connection has one task");
    Ok(connection)
}

/// A socket that gathers the requests of many tasks into few writes.
///
/// While a reply is awaited, requests wait until they are enough, or the next reply arrives. So the server works on
/// one write while the client fills another.
struct Coalesced<S> {
    socket: S,
    users: Weak<SocketState>,
    /// Whether nothing was read since the last write, which was complete: then a reply will come.
    awaits_reply: bool,
}

/// Up to so many requests are written one by one, so that the server begins with the first while other tasks send
/// theirs.
const FEW_REQUESTS: usize = 8;

/// Requests are enough for a write if they have so many bytes for each request under way: about a fifth of all.
const BYTES_PER_REQUEST: usize = 40;

/// So many bytes are enough for a write in any case.
const FULL_WRITE: usize = 4096;

impl<S> Coalesced<S> {
    /// Whether requests of this length wait for others.
    fn waits(&self, length: usize) -> bool {
        // A reply under way ends the wait: reading it wakes the task that writes.
        self.awaits_reply && length < FULL_WRITE && {
            let users = self.users.upgrade();
            let under_way = users.map_or(0, |users| users.under_way.load(Ordering::Relaxed));
            under_way > FEW_REQUESTS && length < under_way * BYTES_PER_REQUEST
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Coalesced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.socket).poll_read(context, buffer);
        self.awaits_reply &= read.is_pending();
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Coalesced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.waits(bytes.len()) {
            return Poll::Pending;
        }
        let written = ready!(Pin::new(&mut self.socket).poll_write(context, bytes))?;
        // Half a request has no reply.
        self.awaits_reply = written == bytes.len();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// For a connection that is driven by the client. On Linux, data that is not acknowledged for twice the
/// timeout shows a dead peer.
pub(super) fn tcp_settings(timeout: Duration) -> TcpSettings {
    let settings = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive());
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(2 * timeout);
    settings
}

/// As [`tcp_settings`] does.
fn set_options(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&keepalive())?;
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(Some(2 * timeout))?;
    Ok(())
}

/// Detects a dead peer on an idle connection after 25 s.
fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3)
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    /// A socket with so many requests under way, and its other end, which takes so many bytes at once.
    fn coalesced(
        under_way: usize,
        capacity: usize,
    ) -> (Coalesced<DuplexStream>, DuplexStream, Arc<SocketState>) {
        let users = Arc::new(SocketState::default());
        users.under_way.store(under_way, Ordering::Relaxed);
        let (socket, server) = duplex(capacity);
        let socket = Coalesced {
            socket,
            users: Arc::downgrade(&users),
            awaits_reply: false,
        };
        (socket, server, users)
    }

    /// How many of so many bytes are written at once; `None` if they wait.
    fn written(socket: &mut Coalesced<DuplexStream>, length: usize) -> Option<usize> {
        let context = &mut Context::from_waker(Waker::noop());
        match Pin::new(socket).poll_write(context, &vec![b'.'; length]) {
            Poll::Ready(written) => Some(written.unwrap()),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn requests_wait_for_others_while_a_reply_is_awaited() {
        let (mut socket, mut server, users) = coalesced(20, 1 << 16);
        assert_eq!(written(&mut socket, 200), Some(200), "nothing is awaited");
        assert_eq!(written(&mut socket, 200), None);
        assert_eq!(written(&mut socket, 799), None);
        assert_eq!(written(&mut socket, 800), Some(800), "enough for 20 tasks");
        assert_eq!(written(&mut socket, 400), None);

        server.write_all(b"+OK").await.unwrap();
        socket.read_exact(&mut [0; 3]).await.unwrap();
        assert_eq!(written(&mut socket, 400), Some(400), "a reply was read");
        assert_eq!(written(&mut socket, 400), None);

        users.under_way.store(FEW_REQUESTS, Ordering::Relaxed);
        assert_eq!(written(&mut socket, 1), Some(1), "of few tasks");
        users.under_way.store(1_000, Ordering::Relaxed);
        assert_eq!(written(&mut socket, FULL_WRITE - 1), None);
        assert_eq!(written(&mut socket, FULL_WRITE), Some(FULL_WRITE));
        drop(users);
        assert_eq!(written(&mut socket, 1), Some(1), "of the last user");
    }

    #[tokio::test]
    async fn the_rest_of_a_request_does_not_wait_for_a_reply() {
        let (mut socket, mut server, _users) = coalesced(20, 300);
        assert_eq!(written(&mut socket, 500), Some(300));
        server.read_exact(&mut [0; 300]).await.unwrap();
        assert_eq!(written(&mut socket, 200), Some(200));
        assert_eq!(written(&mut socket, 200), None);
    }
}
