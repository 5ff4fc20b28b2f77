//! Reads and writes the socket of a connection.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite};
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

/// Connects. Tasks that share the `life` of the socket send their requests in one write.
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
    let info = client.get_connection_info().redis_settings();
    let made = MultiplexedConnection::new_with_config(info, stream, settings).await;
    let (connection, driver) = made?;
    // The task does not count as a user of the socket: it would keep itself alive.
    let users = Arc::downgrade(life);
    let is_shared = move || {
        let users = users.upgrade();
        users.is_some_and(|users| users.under_way.load(Ordering::Relaxed) > 1)
    };
    let mut driver = Box::pin(driver);
    let mut has_yielded = false;
    let mut task = JoinSet::new();
    task.spawn(poll_fn(move |context| {
        // Yields to the tasks that are ready, so that their requests leave in the same write. tokio
        // polls a task woken by another before all others, which would cause one write for each request.
        has_yielded = !has_yielded && is_shared();
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
