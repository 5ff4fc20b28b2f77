use std::future::pending;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::Then;
use super::lane::{ConnectionEnd, FlowGate, Flows, Item, Lane, lane};
use super::protocol::{Parsed, Unread};
use super::relay::Relay;

/// Which ends of a connection a cut reaches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Cut {
    Both,
    /// The server keeps an open connection on which nothing arrives.
    Client,
}

/// Serves one connection of a client until it ends or `cut` does.
pub(super) async fn serve(
    mut client: TcpStream,
    mut server: TcpStream,
    relay: &Relay<'_>,
    flows: &Flows,
    cut: impl Future<Output = Cut>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let end = tokio::select! {
        end = relayed(&mut client, &mut server, relay, flows) => end,
        cut = cut => {
            if cut == Cut::Client {
                client.set_zero_linger()?;
                drop(client);
                closed(&mut server).await;
                return Ok(());
            }
            ConnectionEnd::Planned(Then::Cut)
        }
    };
    if matches!(end, ConnectionEnd::Closed) {
        return client.shutdown().await;
    }
    // For the client a reset, as of a network or a host that fails. For the server an orderly end,
    // because it drops what it has not read when a reset comes.
    client.set_zero_linger()
}

async fn relayed(
    client: &mut TcpStream,
    server: &mut TcpStream,
    relay: &Relay<'_>,
    flows: &Flows,
) -> ConnectionEnd {
    let end = {
        let sent = |request: &[u8], fate| relay.protocol.sent(request, fate);
        let (mut from_client, to_client) = client.split();
        let (mut from_server, to_server) = server.split();
        let (requests, requests_exit) = lane();
        let (replies, replies_exit) = lane();
        let read_requests = read(
            &mut from_client,
            &flows.requests,
            &requests,
            |bytes, due| relay.request(bytes, due, &requests),
        );
        let read_replies = read(&mut from_server, &flows.replies, &replies, |bytes, due| {
            relay.reply(bytes, due, &replies)
        });
        tokio::select! {
            end = requests_exit.deliver(to_server, &flows.requests, sent) => end,
            end = replies_exit.deliver(to_client, &flows.replies, |_, _| {}) => end,
            () = read_requests => ConnectionEnd::Closed,
            () = read_replies => ConnectionEnd::Closed,
        }
    };
    match end {
        ConnectionEnd::Planned(Then::CutAfter(silence)) => {
            tokio::select! {
                () = sleep(silence) => ConnectionEnd::Planned(Then::Cut),
                () = closed(client) => ConnectionEnd::Closed,
            }
        }
        ConnectionEnd::PartlySent => {
            // It closes its side when it has read all.
            server.shutdown().await.ok();
            drop(timeout(READ_WITHIN, closed(server)).await);
            ConnectionEnd::Planned(Then::Cut)
        }
        ConnectionEnd::Planned(Then::Silent) => {
            closed(client).await;
            ConnectionEnd::Closed
        }
        ConnectionEnd::Closed | ConnectionEnd::Planned(Then::Cut) => end,
    }
}

/// Reads and hands on what is complete. The end of the stream ends the connection by the lane, after
/// all that was read before it.
async fn read(
    from: &mut (impl AsyncRead + Unpin),
    gate: &FlowGate,
    lane: &Lane,
    take: impl Fn(&[u8], Instant) -> Parsed<()>,
) {
    let mut unread = Vec::new();
    let mut understood = true;
    // The deliverer ends the connection when all is read.
    while let Ok(1..) = from.read_buf(&mut unread).await {
        let due = Instant::now() + gate.flow().latency;
        while understood && !unread.is_empty() {
            match take(&unread, due) {
                Ok(((), length)) => drop(unread.drain(..length)),
                Err(Unread::Foreign) => understood = false,
                Err(Unread::Incomplete) => break,
            }
        }
        if !understood {
            lane.push(Item::bytes(due, std::mem::take(&mut unread)));
        }
    }
    let due = Instant::now() + gate.flow().latency;
    lane.push(Item::end(due, unread, ConnectionEnd::Closed));
    pending::<()>().await;
}

/// A server that executes a request may close later.
const READ_WITHIN: Duration = Duration::from_millis(100);

/// Waits until the peer closes the connection, and answers nothing.
async fn closed(peer: &mut TcpStream) {
    let mut unread = [0; 1024];
    while let Ok(1..) = peer.read(&mut unread).await {}
}
