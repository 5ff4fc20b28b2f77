use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Leads to a server, and takes the id of the session out of the first frame of every connection but
/// the first: the server opens another session.
#[derive(Debug)]
pub(crate) struct Exchange {
    port: u16,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Exchange {
    pub(crate) async fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let exchange = Self {
            port,
            connections: Arc::default(),
        };
        let connections = Arc::clone(&exchange.connections);
        tokio::spawn(async move {
            let mut is_exchanged = false;
            while let Ok((client, _)) = listener.accept().await {
                let led = lead(client, server, is_exchanged);
                let connection = tokio::spawn(async move { drop(led.await) });
                let mut all = connections.lock().unwrap_or_else(PoisonError::into_inner);
                all.push(connection);
                is_exchanged = true;
            }
        });
        exchange
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends all connections; nothing is forwarded any more when it returns.
    pub(crate) async fn cut(&self) {
        let all = std::mem::take(
            &mut *self
                .connections
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for connection in all {
            connection.abort();
            drop(connection.await);
        }
    }
}

/// The first frame has 49 bytes: its length, version, last transaction, time-out, session, the length
/// of the password, and it, and whether to read only.
async fn lead(mut client: TcpStream, server: u16, is_exchanged: bool) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", server)).await?;
    let mut hello = [0; 49];
    client.read_exact(&mut hello).await?;
    if is_exchanged {
        hello[20..28].fill(0);
        hello[32..48].fill(0);
    }
    server.write_all(&hello).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
