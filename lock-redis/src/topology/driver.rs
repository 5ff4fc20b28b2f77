//! Reads and writes the socket of a connection.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
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
    // Neither the socket nor its task counts as a user: they would keep themselves alive.
    let users = Arc::downgrade(life);
    let stream = InParts {
        socket: stream,
        users: Weak::clone(&users),
    };
    let info = client.get_connection_info().redis_settings();
    let made = MultiplexedConnection::new_with_config(info, stream, settings).await;
    let (connection, driver) = made?;
    let mut driver = Box::pin(driver);
    let mut has_yielded = false;
    let mut task = JoinSet::new();
    task.spawn(poll_fn(move |context| {
        // Yields to the tasks that are ready, so that their requests leave together. tokio polls a task
        // woken by another before all others, which would cause one write for each request.
        has_yielded = !has_yielded && are_many(&users);
        if has_yielded {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        driver.as_mut().poll(context)
    }));
    let set = life.task.set(task);
    debug_assert!(set.is_ok(), "a connection has one task");
    Ok(connection)
}

/// Whether the requests of many tasks are under way.
fn are_many(users: &Weak<SocketState>) -> bool {
    let users = users.upgrade();
    users.is_some_and(|users| users.under_way.load(Ordering::Relaxed) > FEW_REQUESTS)
}

/// Up to so many requests are written one by one, so that the server begins with the first while other tasks send
/// theirs.
const FEW_REQUESTS: usize = 8;

/// A socket that takes the requests of many tasks in parts.
///
/// A server replies at once to all requests that it reads together, and their tasks then send their next requests
/// together: the server is idle while they run, and they wait while it works. With parts, both work.
struct InParts<S> {
    socket: S,
    users: Weak<SocketState>,
}

/// The smallest part in bytes: one or two requests.
const MIN_PART: usize = 256;

/// A part is what is left, divided by this.
const PARTS: usize = 4;

impl<S: AsyncRead + Unpin> AsyncRead for InParts<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for InParts<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut part = bytes.len();
        if part > MIN_PART && are_many(&self.users) {
            part = part.div_ceil(PARTS).max(MIN_PART);
        }
        Pin::new(&mut self.socket).poll_write(context, &bytes[..part])
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
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Keeps what is written to it.
    #[derive(Default)]
    struct Written(Vec<Vec<u8>>);

    impl AsyncWrite for Written {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.0.push(bytes.to_vec());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn the_requests_of_many_tasks_arrive_in_parts_and_in_order() {
        for (under_way, length, parts) in [
            (FEW_REQUESTS, 2048, &[2048][..]),
            (FEW_REQUESTS + 1, 1, &[1]),
            (FEW_REQUESTS + 1, 256, &[256]),
            (FEW_REQUESTS + 1, 300, &[256, 44]),
            (FEW_REQUESTS + 1, 2048, &[512, 384, 288, 256, 256, 256, 96]),
        ] {
            let users = Arc::new(SocketState::default());
            users.under_way.store(under_way, Ordering::Relaxed);
            let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
            let mut socket = InParts {
                socket: Written::default(),
                users: Arc::downgrade(&users),
            };
            socket.write_all(&bytes).await.unwrap();
            let written = socket.socket.0;
            let sizes: Vec<_> = written.iter().map(Vec::len).collect();
            assert_eq!(sizes, parts, "{length} bytes");
            assert_eq!(written.concat(), bytes, "{length} bytes");
        }
    }
}
