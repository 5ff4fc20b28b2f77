//! Leases of etcd, and until when they last for certain.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::{Error as ClientError, LeaseKeepAliveStream, LeaseKeeper};
use polylock_core::engine::{Engine, Moment};
use tokio::sync::Mutex;

use crate::connection::EtcdConnection;
use crate::error::{EtcdFailure, NOT_FOUND};

/// A lease of etcd, with the keys of any number of contenders of this client.
pub(crate) struct ServerLease {
    pub(crate) id: i64,
    /// In whole seconds.
    pub(crate) ttl: Duration,
    /// When the request left that has last renewed it, in nanoseconds.
    proven: AtomicU64,
    is_retired: AtomicBool,
    stream: Mutex<Option<KeepAliveStream>>,
    connection: Arc<EtcdConnection>,
    engine: Engine,
}

/// Keep-alives and their answers, over one connection to one server.
struct KeepAliveStream {
    at: usize,
    /// That of the connection.
    number: u64,
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
    /// The last one that was answered.
    last: Option<KeepAlive>,
}

/// A keep-alive that a server has answered.
///
/// The reply proves nothing by itself: a leader answers without asking the members, even after another
/// leader has replaced it.
#[derive(Clone, Copy)]
pub(crate) struct KeepAlive {
    pub(crate) sent: Moment,
    /// The term of the server before it passed the keep-alive to its leader.
    pub(crate) term: u64,
}

impl ServerLease {
    /// Grants a lease. Its ttl counts from before the request: a grant is a write, and the leader that
    /// applies it, or one that is elected later, gives it the whole ttl from then on.
    pub(crate) async fn grant(
        connection: &Arc<EtcdConnection>,
        engine: &Engine,
        ttl: Duration,
    ) -> Result<Self, EtcdFailure> {
        let seconds = whole_seconds(ttl);
        let sent = engine.now();
        let granted = connection.send(|mut client| async move {
            let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
            client.lease_grant(seconds, None).await
        });
        let granted = granted.await.map_err(|failure| match failure.is_full() {
            // A lease without keys holds no lock, even if it was granted.
            true => failure.without_effect(),
            false => failure,
        });
        Ok(Self {
            id: granted?.id(),
            ttl: Duration::from_secs(seconds),
            proven: AtomicU64::new(sent.as_nanos()),
            is_retired: AtomicBool::new(false),
            stream: Mutex::default(),
            connection: Arc::clone(connection),
            engine: engine.clone(),
        })
    }

    /// Revokes a lease without keys in the background.
    pub(crate) fn revoke(connection: &Arc<EtcdConnection>, engine: &Engine, id: i64) {
        let connection = Arc::clone(connection);
        engine.spawn(async move {
            let revoked =
                connection.send(|mut client| async move { client.lease_revoke(id).await });
            if let Err(failure) = revoked.await {
                // It ends by itself.
                tracing::debug!(%failure, "unused lease not revoked");
            }
        });
    }

    /// The moment from which its ttl counts, for certain.
    pub(crate) fn proven(&self) -> Moment {
        Moment::from_nanos(self.proven.load(Ordering::Acquire))
    }

    /// Until when it lasts, for certain.
    pub(crate) fn lasts_until(&self) -> Moment {
        self.proven() + self.ttl
    }

    pub(crate) fn age(&self) -> Duration {
        self.engine.now().since(self.proven())
    }

    /// Notes that the whole ttl counts from `sent`, at least.
    pub(crate) fn prove(&self, sent: Moment) {
        self.proven.fetch_max(sent.as_nanos(), Ordering::AcqRel);
    }

    /// Lets it expire: one of its keys is to end with it, at once or after its ttl.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Acquire)
    }

    /// Asks for the whole ttl from now on. Tasks that wait for the stream share the next keep-alive: each of them
    /// reads after the answer.
    pub(crate) async fn keep_alive(&self) -> Result<KeepAlive, EtcdFailure> {
        let asked = self.engine.now();
        let mut known = self.stream.lock().await;
        let last = known.as_ref().and_then(|stream| stream.last);
        if let Some(last) = last.filter(|last| last.sent > asked) {
            return Ok(last);
        }
        let at = self.connection.current();
        // A stream of an earlier connection has ended or may hang, which says nothing of the present one.
        let number = self.connection.number(at);
        let is_of_present =
            |stream: &KeepAliveStream| stream.at == at && Some(stream.number) == number;
        // A keep-alive that is dropped leaves its answer in the stream.
        let mut stream = match known.take().filter(is_of_present) {
            Some(stream) => stream,
            None => self.open(at).await?,
        };
        let sent = self.engine.now();
        let term = self.connection.send_on(at, stream.number, async {
            stream.keeper.keep_alive().await?;
            let answer = stream.answers.message().await?;
            let answer = answer.ok_or_else(|| broken("the stream has ended"))?;
            if answer.ttl() <= 0 {
                return Err(broken(NOT_FOUND));
            }
            let header = answer.header();
            Ok(header.map(etcd_client::ResponseHeader::raft_term))
        });
        let term = term
            .await?
            .ok_or(EtcdFailure::Protocol("an answer without a header"))?;
        let kept = KeepAlive { sent, term };
        stream.last = Some(kept);
        *known = Some(stream);
        Ok(kept)
    }

    async fn open(&self, at: usize) -> Result<KeepAliveStream, EtcdFailure> {
        let opened = self.connection.send_to(at, |mut client| async move {
            client.lease_keep_alive(self.id).await
        });
        let (number, (keeper, answers)) = opened.await?;
        Ok(KeepAliveStream {
            at,
            number,
            keeper,
            answers,
            last: None,
        })
    }
}

fn broken(what: &str) -> ClientError {
    ClientError::LeaseKeepAliveError(what.to_owned())
}

/// The ttl of a lease for a ttl of ours: etcd counts whole seconds, up to a max.
pub(crate) fn whole_seconds(ttl: Duration) -> u64 {
    let begun = u64::from(ttl.subsec_nanos() > 0);
    ttl.as_secs().saturating_add(begun).min(MAX_SECONDS)
}

const MAX_SECONDS: u64 = 9_000_000_000;

impl Drop for ServerLease {
    /// Revokes a lease that is not needed.
    fn drop(&mut self) {
        if self.is_retired() || self.age() > self.ttl {
            return;
        }
        Self::revoke(&self.connection, &self.engine, self.id);
    }
}
