use std::sync::Weak;
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::sentinel::Master;
use crate::config::Endpoint;
use crate::error::Failure;

/// Listens to one Sentinel for as long as the link lives, so that a fail-over is noticed by a client
/// that sends nothing.
pub(super) async fn follow(master: Weak<Master>, sentinel: Endpoint, mut end: watch::Receiver<()>) {
    let following = async {
        loop {
            if let Err(failure) = listen(&master, &sentinel).await {
                tracing::debug!(sentinel = %sentinel, ?failure, "no news of fail-overs from here");
            }
            let Some(master) = master.upgrade() else {
                return;
            };
            let pause = master.shared.engine.jitter(PAUSE / 2, PAUSE);
            drop(master);
            sleep(pause).await;
        }
    };
    tokio::select! {
        () = following => {}
        _ = end.changed() => {}
    }
}

/// Between two attempts to hear a Sentinel, about as long as it takes to find a master dead.
const PAUSE: Duration = Duration::from_secs(2);

async fn listen(master: &Weak<Master>, sentinel: &Endpoint) -> Result<(), Failure> {
    let Some(strong) = master.upgrade() else {
        return Ok(());
    };
    let dial = strong.to_sentinels.to(sentinel)?;
    let within = strong.shared.connect_timeout;
    drop(strong);
    let (sender, mut pushes) = mpsc::unbounded_channel::<PushInfo>();
    let silent = || Failure::silent(&dial.server, within, false);
    let opened = timeout(within, dial.open(sender)).await;
    let (mut connection, _) = opened.map_err(|_| silent())??;
    let subscribed = timeout(within, connection.subscribe("+switch-master")).await;
    let subscribed = subscribed.map_err(|_| silent())?;
    subscribed.map_err(|error| Failure::unconnected(&dial.server, error))?;

    // A change that came before the subscription.
    let strong = master.upgrade();
    if let Some(strong) = strong {
        let says = timeout(within, strong.ask_one(sentinel)).await;
        if let Ok(Ok(Some(endpoint))) = says {
            notice(&strong, &endpoint).await;
        }
    }
    while let Some(push) = pushes.recv().await {
        match push.kind {
            PushKind::Disconnection => break,
            PushKind::Message => {}
            _ => continue,
        }
        let (Some(strong), Some(Value::BulkString(news))) = (master.upgrade(), push.data.get(1))
        else {
            continue;
        };
        if let Some(endpoint) = switched(news, strong.name()) {
            notice(&strong, &endpoint).await;
        }
    }
    Ok(())
}

async fn notice(master: &std::sync::Arc<Master>, endpoint: &Endpoint) {
    let known = master.address();
    if known.is_some_and(|known| known != *endpoint) {
        master.switch().await;
    }
}

/// Reads `name old-host old-port host port`.
fn switched(news: &[u8], name: &str) -> Option<Endpoint> {
    let news = std::str::from_utf8(news).ok()?;
    let mut words = news.rsplitn(5, ' ');
    let port = words.next()?.parse().ok()?;
    let host = words.next()?;
    let (_port, _host) = (words.next()?, words.next()?);
    (words.next()? == name).then(|| Endpoint::tcp(host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_sentinel_announces() {
        let news = b"main 10.0.0.1 6379 10.0.0.2 6380";
        let new = Endpoint::tcp("10.0.0.2", 6380);
        assert_eq!(switched(news, "main"), Some(new.clone()));
        assert_eq!(switched(news, "other"), None);
        assert_eq!(
            switched(b"my main 10.0.0.1 6379 10.0.0.2 6380", "my main"),
            Some(new)
        );
        for junk in [
            &b""[..],
            b"main",
            b"main a 1 b",
            b"main a 1 b x",
            b"\xff a 1 b 2",
        ] {
            assert_eq!(switched(junk, "main"), None);
        }
    }
}
