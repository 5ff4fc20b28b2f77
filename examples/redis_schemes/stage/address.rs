use std::io;
use std::net::Ipv4Addr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// An address that can be pointed at one server after the other, as the virtual address or the name
/// of a fail-over pair; pointed at none, it is a broken network.
#[derive(Debug)]
pub(crate) struct Address {
    port: u16,
    target: watch::Sender<Option<u16>>,
    listening: JoinHandle<()>,
}

impl Address {
    pub(crate) async fn of(target: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (sender, receiver) = watch::channel(Some(target));
        Ok(Self {
            port,
            target: sender,
            listening: tokio::spawn(listen(listener, receiver)),
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Breaks all connections; later ones end at this server.
    pub(crate) fn point_at(&self, target: u16) {
        self.target.send_replace(Some(target));
    }

    /// Breaks all connections; later ones lead nowhere.
    pub(crate) fn cut(&self) {
        self.target.send_replace(None);
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn listen(listener: TcpListener, target: watch::Receiver<Option<u16>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(forward(stream, target.clone()));
    }
}

async fn forward(mut from: TcpStream, mut target: watch::Receiver<Option<u16>>) {
    let Some(port) = *target.borrow_and_update() else {
        return;
    };
    let Ok(mut to) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
        return;
    };
    tokio::select! {
        _ = copy_bidirectional(&mut from, &mut to) => {}
        _ = target.changed() => {}
    }
}
