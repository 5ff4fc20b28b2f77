use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryFutureExt as _;
use polylock_core::engine::Moment;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, PushKind, RedisError, Value, from_redis_value};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::sentinel::Master;
use super::sentinel_reports::{MasterState, SentinelReport};
use crate::config::Endpoint;
use crate::error::{RedisFailure, Refusal};

/// Listens to one Sentinel while the topology exists, so that an idle client notices a failover. Queries
/// its view of the master on request.
pub(super) async fn follow(master: Arc<Master>, sentinel: Endpoint) {
    let mut end = master.end.clone();
    let is_discovered = !master.sentinels.contains(&sentinel);
    let following = async {
        let mut failures = 0;
        loop {
            match listen(&master, &sentinel, is_discovered).await {
                Ok(Ended::Twice) => return master.followed().remove(&sentinel),
                Ok(Ended::Closed) => failures = 0,
                Err(failure) => {
                    failures += 1;
                    tracing::debug!(sentinel = %sentinel, ?failure, "no news of failovers from here");
                    master.followed().lose(&sentinel);
                }
            }
            if is_discovered && failures >= MAX_FAILURES {
                // One that returns, or that others still name, is discovered again.
                return master.followed().remove(&sentinel);
            }
            sleep(master.shared.engine.jitter(MAX_BACKOFF / 2, MAX_BACKOFF)).await;
        }
    };
    tokio::select! {
        () = following => {}
        _ = end.changed() => {}
    }
}

/// Between two attempts to reach a Sentinel, about as long as it takes to detect a dead master.
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// Min time between two `SENTINEL SENTINELS` requests to one Sentinel. Requests repeat while it reports
/// more Sentinels than are followed; some of these may be gone for good.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(10);

/// Max consecutive failures of a Sentinel that the configuration does not name.
const MAX_FAILURES: u32 = 30;

/// How listening to a Sentinel ended.
enum Ended {
    /// The connection or the client is closed.
    Closed,
    /// The same Sentinel is already followed at another address.
    Twice,
}

async fn listen(
    master: &Arc<Master>,
    sentinel: &Endpoint,
    is_discovered: bool,
) -> Result<Ended, RedisFailure> {
    let connector = master.to_sentinels.to(sentinel)?;
    let mut wanted = master.wanted.subscribe();
    let (sender, mut pushes) = mpsc::unbounded_channel::<PushInfo>();
    let within = master.shared.connect_timeout;
    let opened = connector
        .in_time(within, connector.open(sender, None))
        .await;
    let (mut connection, hears) = opened?;
    let broken = |error| RedisFailure::unconnected(&connector.server, error);
    if hears {
        let subscribed = connection.subscribe("+switch-master").map_err(broken);
        connector.in_time(within, subscribed).await?;
    }
    let identity = identity(&mut connection).map_err(broken);
    let identity = connector.in_time(within, identity).await?;
    // Without an identity, one Sentinel could count for two under two names.
    if identity.is_none() && is_discovered {
        return Err(RedisFailure::silent(&connector.server, within, false));
    }
    if let Some(identity) = &identity
        && master.followed().identify(sentinel, identity)
        && is_discovered
    {
        return Ok(Ended::Twice);
    }
    let own = identity
        .clone()
        .unwrap_or_else(|| Arc::clone(&connector.server));

    let mut asked: Option<Moment> = None;
    let mut discovered: Option<Moment> = None;
    loop {
        let since = *wanted.borrow_and_update();
        if asked.is_none_or(|asked| asked < since) {
            let now = master.shared.engine.now();
            asked = Some(now);
            let said = ask(&mut connection, &master.name, now).map_err(broken);
            let Some((endpoint, said)) = connector.in_time(within, said).await? else {
                continue;
            };
            let is_due = discovered.is_none_or(|last| now.since(last) >= DISCOVERY_INTERVAL);
            let has_more = is_due && said.sentinels > master.followed().count();
            let reports = &master.reports;
            reports.send_modify(|reports| reports.add(Arc::clone(&own), said));
            notice(master, &endpoint).await;
            if has_more && identity.is_some() {
                discovered = Some(now);
                let known = others_of(&mut connection, &master.name).map_err(broken);
                for (other, identity) in connector.in_time(within, known).await? {
                    master.discover(other, &identity);
                }
            }
            continue;
        }
        let push = tokio::select! {
            push = pushes.recv(), if hears => push,
            changed = wanted.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return Ok(Ended::Closed),
            },
        };
        let Some(push) = push else {
            return Ok(Ended::Closed);
        };
        match (push.kind, push.data.get(1)) {
            (PushKind::Disconnection, _) => return Ok(Ended::Closed),
            (PushKind::Message, Some(Value::BulkString(news))) => {
                if let Some(endpoint) = switched(news, &master.name) {
                    notice(master, &endpoint).await;
                }
            }
            _ => {}
        }
    }
}

async fn notice(master: &Arc<Master>, endpoint: &Endpoint) {
    let known = master.address();
    if known.is_some_and(|known| known != *endpoint) {
        master.switch().await;
    }
}

/// The report of a Sentinel that was queried at this moment about the master at this address.
fn report(
    asked: Moment,
    master: Endpoint,
    state: MasterState,
    sentinels: usize,
) -> (Endpoint, SentinelReport) {
    let report = SentinelReport {
        asked,
        master: master.to_string().into(),
        state,
        sentinels,
    };
    (master, report)
}

/// Asks for the master; `None` if the Sentinel does not know it.
async fn ask(
    connection: &mut MultiplexedConnection,
    name: &str,
    asked: Moment,
) -> Result<Option<(Endpoint, SentinelReport)>, RedisError> {
    match connection
        .send_packed_command(&command("MASTER", name))
        .await?
    {
        // This user may query only the address of the master, which a failover changes.
        Value::ServerError(error) if Refusal::of(&error) == Refusal::NoPerm => {}
        Value::ServerError(_) => return Ok(None),
        fields => return Ok(read(&from_redis_value(fields)?, asked)),
    }
    let address = command("GET-MASTER-ADDR-BY-NAME", name);
    match connection.send_packed_command(&address).await? {
        Value::ServerError(error) => Err(error.into()),
        address => {
            let address = from_redis_value::<Option<(String, u16)>>(address)?;
            let master = address.map(|(host, port)| Endpoint::tcp(host, port));
            Ok(master.map(|master| report(asked, master, MasterState::Hidden, 0)))
        }
    }
}

fn read(fields: &HashMap<String, String>, asked: Moment) -> Option<(Endpoint, SentinelReport)> {
    let number = |name: &str| fields.get(name)?.parse::<u32>().ok();
    let mut flags = fields.get("flags")?.split(',');
    let others = number("num-other-sentinels")?;
    let master = Endpoint::tcp(fields.get("ip")?.clone(), fields.get("port")?.parse().ok()?);
    let state = match flags.any(|flag| DOUBTS.contains(&flag)) {
        true => MasterState::Doubted,
        false => MasterState::Up,
    };
    Some(report(asked, master, state, others as usize + 1))
}

/// Flags with which a Sentinel does not vouch for a master: it considers it down, or replaces it.
const DOUBTS: [&str; 3] = ["s_down", "o_down", "failover_in_progress"];

/// The id by which Sentinels know each other; `None` if this one does not report it (before 6.2).
async fn identity(connection: &mut MultiplexedConnection) -> Result<Option<Arc<str>>, RedisError> {
    let mut request = redis::cmd("SENTINEL");
    request.arg("MYID");
    match connection.send_packed_command(&request).await? {
        Value::ServerError(_) => Ok(None),
        id => Ok(Some(from_redis_value::<String>(id)?.into())),
    }
}

/// The addresses and identities of other Sentinels; empty if this one does not report them.
async fn others_of(
    connection: &mut MultiplexedConnection,
    name: &str,
) -> Result<Vec<(Endpoint, Arc<str>)>, RedisError> {
    let request = command("SENTINELS", name);
    let others = match connection.send_packed_command(&request).await? {
        Value::ServerError(_) => return Ok(Vec::new()),
        others => from_redis_value::<Vec<HashMap<String, String>>>(others)?,
    };
    let other = |fields: HashMap<String, String>| {
        let endpoint = Endpoint::tcp(fields.get("ip")?.clone(), fields.get("port")?.parse().ok()?);
        Some((endpoint, fields.get("runid")?.as_str().into()))
    };
    Ok(others.into_iter().filter_map(other).collect())
}

fn command(what: &str, name: &str) -> Cmd {
    let mut request = redis::cmd("SENTINEL");
    request.arg(what).arg(name);
    request
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

    #[test]
    fn reads_whether_a_sentinel_vouches_for_the_master() {
        let asked = Moment::from_nanos(7);
        let fields = |flags: &str| {
            let fields = [
                ("ip", "10.0.0.1"),
                ("port", "6379"),
                ("flags", flags),
                ("num-other-sentinels", "4"),
            ];
            let own = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
            HashMap::from(own)
        };
        for (flags, state) in [
            ("master", MasterState::Up),
            ("master,disconnected", MasterState::Up),
            ("s_down,master", MasterState::Doubted),
            ("s_down,o_down,master,disconnected", MasterState::Doubted),
            (
                "master,failover_in_progress,force_failover",
                MasterState::Doubted,
            ),
        ] {
            let said = report(asked, Endpoint::tcp("10.0.0.1", 6379), state, 5);
            assert_eq!(read(&fields(flags), asked), Some(said), "{flags}");
        }
        let mut without = fields("master");
        without.remove("num-other-sentinels");
        assert_eq!(read(&without, asked), None);
    }
}
