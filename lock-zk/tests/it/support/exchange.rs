use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Leads to a server, and takes the id of the session out of the first frame of every connection but
/// the first: the server opens another session.
#[derive(Debug)]
pub(crate) struct Exchange {
    port: u16,
    cuts: watch::Sender<()>,
}

impl Exchange {
    pub(crate) async fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let cuts = watch::Sender::new(());
        let exchange = Self {
            port,
            cuts: cuts.clone(),
        };
        tokio::spawn(async move {
            let mut is_exchanged = false;
            while let Ok((client, _)) = listener.accept().await {
                let mut cut = cuts.subscribe();
                tokio::spawn(async move {
                    tokio::select! {
                        led = lead(client, server, is_exchanged) => drop(led),
                        _ = cut.changed() => {}
                    }
                });
                is_exchanged = true;
            }
        });
        exchange
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.cuts.send_replace(());
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
