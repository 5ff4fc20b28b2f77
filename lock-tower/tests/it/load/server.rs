use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A router behind a port of 127.0.0.1, in this process.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    pub(crate) async fn start(router: Router) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            axum::serve(listener, router)
                .with_graceful_shutdown(async move { drop(stopped.await) })
                .await
        });
        Self {
            address,
            stop,
            task,
        }
    }

    /// Stops to listen, and waits until what it has begun is done.
    pub(crate) async fn shut_down(self, within: Duration) {
        drop(self.stop);
        let ended = tokio::time::timeout(within, self.task).await;
        let ended = ended.expect("it ends in time").expect("it does not panic");
        ended.expect("it served");
    }
}
