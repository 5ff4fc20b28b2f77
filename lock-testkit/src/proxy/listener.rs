use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::connection::{Cut, serve};
use super::jute::Jute;
use super::lane::Flows;
use super::mysql::MySql;
use super::plan::Plans;
use super::postgres::Postgres;
use super::protocol::{Bytes, Protocol, Wire};
use super::relay::Relay;
use super::resp::Resp;

/// The thread of a proxy; ends with the value.
pub(super) struct ProxyListener {
    port: u16,
    accepted: Arc<AtomicUsize>,
    orders: Option<UnboundedSender<(ProxyOrder, mpsc::Sender<()>)>>,
    thread: Option<JoinHandle<()>>,
}

/// What a proxy does at once.
#[derive(Clone, Copy)]
pub(super) enum ProxyOrder {
    Accept,
    Cut,
    HalfOpen,
    Refuse,
}

impl ProxyListener {
    pub(super) fn start(
        address: Ipv4Addr,
        target: SocketAddrV4,
        wire: Wire,
        plans: &Arc<Plans>,
        flows: &Arc<Flows>,
    ) -> io::Result<Self> {
        // A runtime of its own serves clients on any runtime, also one whose clock stands still.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        // Entered and not blocked on, which is refused where the caller is on a runtime.
        let door = {
            let _entered = runtime.enter();
            ProxyPort::open(address)?
        };
        let (port, accepted) = (door.address.port(), Arc::<AtomicUsize>::default());
        let (orders, received) = unbounded_channel();
        let clients = ProxyClients {
            target,
            wire,
            plans: Arc::clone(plans),
            flows: Arc::clone(flows),
            accepted: Arc::clone(&accepted),
            cut: watch::Sender::new(Cut::Both),
            serving: JoinSet::new(),
        };
        let thread = thread::Builder::new()
            .name("fault proxy".to_owned())
            .spawn(move || runtime.block_on(run(door, clients, received)))?;
        Ok(Self {
            port,
            accepted,
            orders: Some(orders),
            thread: Some(thread),
        })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Returns when it is done.
    pub(super) fn order(&self, order: ProxyOrder) {
        let (done, is_done) = mpsc::channel();
        if let Some(orders) = &self.orders {
            drop(orders.send((order, done)));
        }
        is_done.recv().expect("the proxy is gone");
    }
}

impl Drop for ProxyListener {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

async fn run(
    mut door: ProxyPort,
    mut clients: ProxyClients,
    mut orders: UnboundedReceiver<(ProxyOrder, mpsc::Sender<()>)>,
) {
    loop {
        tokio::select! {
            biased;
            order = orders.recv() => {
                let Some((order, done)) = order else { return };
                match order {
                    ProxyOrder::Accept => door.open_again(),
                    ProxyOrder::Cut => clients.cut().await,
                    ProxyOrder::HalfOpen => drop(clients.cut.send_replace(Cut::Client)),
                    ProxyOrder::Refuse => door.listener = None,
                }
                // The sender of the order waits for this, or has panicked.
                done.send(()).ok();
            }
            client = door.next() => clients.serve(client),
            Some(_) = clients.serving.join_next() => {}
        }
    }
}

struct ProxyClients {
    target: SocketAddrV4,
    wire: Wire,
    plans: Arc<Plans>,
    flows: Arc<Flows>,
    accepted: Arc<AtomicUsize>,
    cut: watch::Sender<Cut>,
    serving: JoinSet<io::Result<()>>,
}

impl ProxyClients {
    fn serve(&mut self, client: TcpStream) {
        let connection = self.accepted.fetch_add(1, Ordering::SeqCst);
        let (plans, flows) = (Arc::clone(&self.plans), Arc::clone(&self.flows));
        let (target, wire, mut cut) = (self.target, self.wire, self.cut.subscribe());
        self.serving.spawn(async move {
            let Ok(server) = TcpStream::connect(target).await else {
                return client.set_zero_linger();
            };
            let cut = async move {
                // The sender goes with this task.
                drop(cut.changed().await);
                *cut.borrow()
            };
            let relay = Relay {
                plans: &plans,
                connection,
                protocol: protocol(wire),
            };
            serve(client, server, &relay, &flows, cut).await
        });
    }

    async fn cut(&mut self) {
        self.cut.send_replace(Cut::Both);
        while self.serving.join_next().await.is_some() {}
    }
}

fn protocol(wire: Wire) -> Box<dyn Protocol> {
    match wire {
        Wire::Bytes => Box::new(Bytes),
        Wire::MySql => Box::<MySql>::default(),
        Wire::Postgres => Box::<Postgres>::default(),
        Wire::Resp => Box::<Resp>::default(),
        Wire::ZooKeeper => Box::<Jute>::default(),
    }
}

/// Holds the port, listening or not.
struct ProxyPort {
    address: SocketAddrV4,
    /// Bound and never listening: reserves the port while `listener` is closed.
    _reserved: TcpSocket,
    /// The system refuses connections without it.
    listener: Option<TcpListener>,
}

impl ProxyPort {
    fn open(address: Ipv4Addr) -> io::Result<Self> {
        let reserved = bind(SocketAddrV4::new(address, 0))?;
        let SocketAddr::V4(address) = reserved.local_addr()? else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        Ok(Self {
            address,
            _reserved: reserved,
            listener: Some(listen(address)?),
        })
    }

    fn open_again(&mut self) {
        let listen = || listen(self.address).expect("its own port");
        self.listener.get_or_insert_with(listen);
    }

    async fn next(&mut self) -> TcpStream {
        if let Some(listener) = &self.listener {
            // A connection that ended before it was accepted does not count.
            loop {
                if let Ok((client, _)) = listener.accept().await {
                    return client;
                }
            }
        }
        pending().await
    }
}

fn listen(address: SocketAddrV4) -> io::Result<TcpListener> {
    bind(address)?.listen(1024)
}

fn bind(address: SocketAddrV4) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address.into())?;
    Ok(socket)
}
