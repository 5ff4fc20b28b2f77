mod bare;
mod probe;
#[cfg(test)]
mod tests;
mod words;

use std::sync::Arc;
use std::time::Duration;

use polylock::{Host, LockUrl};
use zookeeper_client::{Client, Error};

use self::bare::Least;
use self::probe::Asker;
use crate::subject::Failure;
use crate::target::{Bare, Probe, runner};

pub(super) async fn probe(url: &LockUrl) -> Result<Arc<dyn Probe>, Failure> {
    let hosts = url.expect_hosts()?;
    let asker = Asker::new(connect(url).await?, hosts.to_vec());
    Ok(Arc::new(asker))
}

pub(super) async fn bare(url: &LockUrl) -> Result<Bare, Failure> {
    let least = Least::new(connect(url).await?, url);
    let bare = Bare::new(
        "create and getChildren in one round trip, getData with a watch of the predecessor, delete",
        runner(least),
    );
    Ok(bare.waiting())
}

/// Opens a session like that of the locks.
async fn connect(url: &LockUrl) -> Result<Client, Failure> {
    let timeout = url.params().duration("session-timeout")?;
    let mut connector = Client::connector()
        .with_session_timeout(timeout.unwrap_or(Duration::from_secs(20)))
        .with_fail_eagerly();
    if let Some(identity) = identity(url) {
        connector = connector.with_auth("digest", identity.as_bytes());
    }
    let hosts = url.expect_hosts()?.iter().map(address);
    let hosts = hosts.collect::<Vec<_>>().join(",");
    connector.connect(&hosts).await.map_err(failure)
}

fn identity(url: &LockUrl) -> Option<String> {
    Some(format!("{}:{}", url.username()?, url.password()?))
}

fn address(host: &Host) -> String {
    match (host.name.contains(':'), host.port_or(2181)) {
        (true, port) => format!("[{}]:{port}", host.name),
        (false, port) => format!("{}:{port}", host.name),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failure(error: Error) -> Failure {
    let kind = match error {
        Error::NoAuth | Error::AuthFailed => "denied",
        Error::NoNode => "lost",
        _ => "unavailable",
    };
    Failure::of(kind, &error)
}
