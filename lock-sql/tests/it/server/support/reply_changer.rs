use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;

/// A proxy of bytes in front of a server that changes one reply.
#[derive(Debug)]
pub(crate) struct ReplyChanger {
    port: u16,
    change: Arc<Mutex<Option<Change>>>,
    serving: JoinHandle<()>,
}

type Change = fn(&mut Vec<u8>);

impl ReplyChanger {
    pub(crate) async fn start(target: u16) -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST, target).await
    }

    /// One whose connections come from this address.
    pub(crate) async fn start_at(address: Ipv4Addr, target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let change = Arc::<Mutex<Option<Change>>>::default();
        let planned = Arc::clone(&change);
        let serving = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.expect("a connection");
                let server = connect(address, target).await;
                tokio::spawn(relay(client, server, Arc::clone(&planned)));
            }
        });
        Self {
            port,
            change,
            serving,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Changes what the server sends next, on whichever connection.
    pub(crate) fn change_next(&self, change: Change) {
        *self.change.lock().unwrap_or_else(PoisonError::into_inner) = Some(change);
    }

    /// Whether the reply that was to be changed has come.
    pub(crate) fn has_changed(&self) -> bool {
        let change = self.change.lock();
        change.unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

impl Drop for ReplyChanger {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A connection from this address to a server.
pub(crate) async fn connect(from: Ipv4Addr, target: u16) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((from, 0).into()).expect("a port is free");
    let server = socket.connect((Ipv4Addr::LOCALHOST, target).into()).await;
    server.expect("the server listens")
}

async fn relay(client: TcpStream, server: TcpStream, change: Arc<Mutex<Option<Change>>>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let replies = async {
        let mut reply = Vec::new();
        while let Ok(1..) = from_server.read_buf(&mut reply).await {
            let planned = change.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(change) = planned {
                change(&mut reply);
            }
            if to_client.write_all(&reply).await.is_err() {
                return;
            }
            reply.clear();
        }
    };
    tokio::select! {
        () = replies => {}
        _ = copy(&mut from_client, &mut to_server) => {}
    }
}
