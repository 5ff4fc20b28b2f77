use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A proxy that rewrites ports, in front of one server or another.
///
/// For each of its connections this process has a bystander: another connection, between other
/// addresses, whose ports are the one that the server sees and the one that the client connects to.
#[derive(Debug)]
pub(crate) struct Forwarder {
    port: u16,
    target: Arc<AtomicU16>,
    /// A new value ends all connections.
    cut: watch::Sender<()>,
    bystanders: Arc<Mutex<Vec<Bystander>>>,
    serving: JoinHandle<()>,
}

/// Both ends of a connection that has nothing to do with a database.
#[derive(Debug)]
pub(crate) struct Bystander {
    pub(crate) near: TcpStream,
    pub(crate) far: TcpStream,
}

impl Forwarder {
    pub(crate) async fn start(target: u16) -> Self {
        let (listener, strangers) = listeners().await;
        let port = listener.local_addr().expect("it is bound").port();
        let target = Arc::new(AtomicU16::new(target));
        let (cut, was_cut) = watch::channel(());
        let bystanders = Arc::<Mutex<Vec<Bystander>>>::default();
        let (now, made) = (Arc::clone(&target), Arc::clone(&bystanders));
        let serving = tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.expect("a connection");
                let server = SocketAddr::from((Ipv4Addr::LOCALHOST, now.load(Ordering::Relaxed)));
                let (bystander, mut upstream) = connect(server, &strangers).await;
                made.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(bystander);
                let mut was_cut = was_cut.clone();
                was_cut.mark_unchanged();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut upstream) => {}
                        _ = was_cut.changed() => {}
                    }
                });
            }
        });
        Self {
            port,
            target,
            cut,
            bystanders,
            serving,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends all connections, and leads the next ones to another server.
    pub(crate) fn lead_to(&self, target: u16) {
        self.target.store(target, Ordering::Relaxed);
        self.cut.send_replace(());
    }

    /// Those of all connections so far.
    pub(crate) fn take_bystanders(&self) -> Vec<Bystander> {
        let mut bystanders = self
            .bystanders
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut bystanders)
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// For clients of the database and for bystanders, on one port.
async fn listeners() -> (TcpListener, TcpListener) {
    loop {
        let clients = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let clients = clients.expect("a port is free");
        let port = clients.local_addr().expect("it is bound").port();
        if let Ok(strangers) = TcpListener::bind((FAR, port)).await {
            return (clients, strangers);
        }
    }
}

/// A connection to the server, and a bystander whose near port is that of the connection.
async fn connect(server: SocketAddr, strangers: &TcpListener) -> (Bystander, TcpStream) {
    loop {
        let near = TcpSocket::new_v4().expect("a socket");
        near.bind((NEAR, 0).into()).expect("a port is free");
        let port = near.local_addr().expect("it is bound").port();
        let there = strangers.local_addr().expect("it is bound");
        let near = near.connect(there).await.expect("the forwarder listens");
        let (far, _) = strangers.accept().await.expect("a connection");
        let upstream = TcpSocket::new_v4().expect("a socket");
        let bound = upstream.bind((Ipv4Addr::LOCALHOST, port).into());
        if bound.is_ok()
            && let Ok(upstream) = upstream.connect(server).await
        {
            return (Bystander { near, far }, upstream);
        }
    }
}

const NEAR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 5);
const FAR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
