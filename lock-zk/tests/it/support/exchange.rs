use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Leads to a server, and takes the id of the session out of the first frame of every connection but
/// the first: the server opens another session.
#[derive(Debug)]
pub(crate) struct Exchange {
    port: u16,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Exchange {
    pub(crate) fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let open = Arc::<Mutex<Vec<TcpStream>>>::default();
        let streams = Arc::clone(&open);
        thread::spawn(move || {
            for (n, client) in listener.incoming().enumerate() {
                let Ok(client) = client else { return };
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else {
                    continue;
                };
                let both = [copy(&client), copy(&server)];
                let mut streams = streams.lock().unwrap_or_else(PoisonError::into_inner);
                streams.extend(both);
                let (back, forth) = (copy(&server), copy(&client));
                thread::spawn(move || lead(client, server, n > 0));
                thread::spawn(move || pump(back, forth));
            }
        });
        Self { port, open }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in open.drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

fn copy(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a handle")
}

/// The first frame has 49 bytes: its length, version, last transaction, time-out, session, the length
/// of the password, and it, and whether to read only.
fn lead(mut client: TcpStream, mut server: TcpStream, is_exchanged: bool) {
    let mut hello = [0; 49];
    if client.read_exact(&mut hello).is_err() {
        return;
    }
    if is_exchanged {
        hello[20..28].fill(0);
        hello[32..48].fill(0);
    }
    drop(server.write_all(&hello));
    pump(client, server);
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    drop(std::io::copy(&mut from, &mut to));
    drop(to.shutdown(Shutdown::Both));
    drop(from.shutdown(Shutdown::Both));
}
