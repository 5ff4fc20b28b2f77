//! One acquisition, from its first request to its grant.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Event, EventType, KeyValue, WatchFilterType, WatchOptions};
use polylock_core::engine::{
    Blocker, QueuePosition, REPLY_GRACE, TimeBudget, before, queue_position, renewal_interval,
};
use polylock_core::{AcquireRequest, Grant, LeaseState, Mode};
use tokio::time::{Instant, sleep};

use crate::connection::SERVER_TIMEOUT;
use crate::error::{EtcdFailure, RETRY_BACKOFF};
use crate::lease::EtcdLease;
use crate::server_lease::ServerLease;
use crate::store::{ContenderList, EtcdStore, list, revision as revision_of};

pub(crate) struct EtcdAttempt<'a> {
    pub(crate) store: &'a EtcdStore,
    pub(crate) request: &'a AcquireRequest,
    pub(crate) budget: &'a TimeBudget,
    pub(crate) lease: &'a Arc<EtcdLease>,
}

/// Why an attempt is not granted the lock.
pub(crate) enum EtcdAttemptError {
    Failed(EtcdFailure),
    /// The key is gone, or the lease of etcd that it was to be attached to: the next attempt goes to the end
    /// of the queue.
    Gone,
    /// No answer in time.
    Late,
    /// The lock is held.
    Refused,
}

/// Grace for late replies of a renewal, which needs up to three in sequence: to the opening of the stream, to the
/// keep-alive, and to the read.
const RENEWAL_GRACE: Duration = Duration::from_secs(2);

/// Bounds work that needs a reply. Without one in the time of a server, an outage may hide that the lock is free
/// by now.
pub(crate) async fn replied<T>(
    request: &AcquireRequest,
    budget: &TimeBudget,
    until: Instant,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let due = until.min(Instant::now() + SERVER_TIMEOUT);
    let done = before(due, work.as_mut()).await;
    if done.is_some() {
        return done;
    }
    mark_unresponsive(request, budget);
    before(until, work).await
}

/// The servers do not answer, so that the lock may be free by now. The next list shows whether it is.
fn mark_unresponsive(request: &AcquireRequest, budget: &TimeBudget) {
    budget.mark_free();
    request.mark_unresponsive();
}

/// No lock is granted for the time being: a server has said why, or none has answered.
pub(crate) fn mark_failed(request: &AcquireRequest, budget: &TimeBudget, failure: &EtcdFailure) {
    if failure.is_retryable() && !failure.is_out_of_reach() {
        budget.mark_free();
        request.mark_unavailable(&failure.to_string());
    } else {
        mark_unresponsive(request, budget);
    }
}

impl EtcdAttempt<'_> {
    /// Queues and waits until no predecessor excludes it.
    pub(crate) async fn run(&self) -> Result<Grant, EtcdAttemptError> {
        let name = self.lease.name();
        let mut listing = self.enter().await?;
        // If a retry has listed, another waiter may have seen this one wait.
        let mut has_waited = !listing.is_creation_of(&name);
        let mut is_fresh = true;
        // Until when renewals for the grant are repeated, once one was sent.
        let mut renewals_until: Option<Instant> = None;
        loop {
            if self.lease.is_replaced(&listing.contenders) {
                return Err(EtcdAttemptError::Gone);
            }
            let blocker = match queue_position(&listing.contenders, &name) {
                QueuePosition::Gone => return Err(EtcdAttemptError::Gone),
                QueuePosition::Holds => {
                    self.budget.mark_free();
                    // A holder renews it by hand within a whole ttl, or the engine within half of one.
                    let is_due =
                        !(is_fresh || self.lease.is_shared) || self.is_older_than(|ttl| ttl / 2);
                    // At a slow cluster every renewal takes that long. What is left of the last one counts then.
                    let is_over = renewals_until.is_some_and(|until| until <= Instant::now());
                    if is_due && !is_over {
                        renewals_until = renewals_until.or_else(|| Some(self.budget.step()));
                        listing = self.list(true).await?;
                        is_fresh = true;
                        continue;
                    }
                    return self.grant(has_waited).await;
                }
                QueuePosition::Behind(blocker) => blocker,
            };
            self.budget.mark_held();
            if !self.budget.waits() {
                return Err(EtcdAttemptError::Refused);
            }
            self.request.mark_contended();
            let next = self.store.without(&listing, &blocker, &name);
            let has_ended = self.wait(&blocker, &listing).await;
            (has_waited, is_fresh, renewals_until) = (true, false, None);
            listing = match next.filter(|_| has_ended) {
                Some(next) => next,
                None => self.list(false).await?,
            };
        }
    }

    /// Creates the key, and lists the directory in the same transaction.
    async fn enter(&self) -> Result<ContenderList, EtcdAttemptError> {
        let until = self.budget.step();
        loop {
            match self.until(until, self.lease.create()).await? {
                Ok(Ok(listing)) => return Ok(listing),
                Ok(Err(failure)) => self.pause(until, failure).await?,
                // The task of the request has panicked.
                Err(_) => return Err(EtcdAttemptError::Late),
            }
        }
    }

    async fn grant(&self, has_waited: bool) -> Result<Grant, EtcdAttemptError> {
        let Some(lease) = self.lease.server_lease() else {
            return Err(EtcdAttemptError::Gone);
        };
        if has_waited && matches!(self.request.mode(), Mode::Permit { .. }) {
            self.tell_next_permit(&lease).await?;
        }
        let token = self.lease.token().map_err(EtcdAttemptError::Failed)?;
        Ok(Grant::new(lease.proven(), Some(token)))
    }

    /// Notifies the next permit waiter, which watches the key of this one.
    async fn tell_next_permit(&self, lease: &Arc<ServerLease>) -> Result<(), EtcdAttemptError> {
        let until = self.reply_deadline(REPLY_GRACE);
        loop {
            match self.until(until, self.lease.write(lease)).await? {
                Ok(LeaseState::Held) => return Ok(()),
                Ok(_) => return Err(EtcdAttemptError::Gone),
                Err(failure) => self.pause(until, failure).await?,
            }
        }
    }

    /// Whether this part of the ttl of the lease of etcd is over, or it is not to be renewed.
    fn is_older_than(&self, part: fn(Duration) -> Duration) -> bool {
        let lease = self.lease.server_lease();
        lease.is_none_or(|lease| lease.is_retired() || lease.age() >= part(lease.ttl))
    }

    /// Until when a contender in the queue waits for replies. Those that come soon after the end of its wait still
    /// count: they tell contention from an outage, and a grant needs them.
    fn reply_deadline(&self, grace: Duration) -> Instant {
        let now = Instant::now();
        let until = now + self.store.config.timeout;
        let deadline = self.budget.deadline();
        deadline.map_or(until, |end| until.min(end.clamp(now, until) + grace))
    }

    /// Lists the directory, and renews the lease of etcd, if that is due at least.
    async fn list(&self, renews: bool) -> Result<ContenderList, EtcdAttemptError> {
        let directory = self.lease.directory.as_str();
        let renews = renews || self.is_older_than(renewal_interval);
        let until = self.reply_deadline(match renews {
            true => RENEWAL_GRACE,
            false => REPLY_GRACE,
        });
        if renews {
            // It looks at all locks of this client: too much for the other listings of many waiters.
            self.store.retire_ended();
        }
        loop {
            let lease = self.lease.server_lease();
            let lease = lease.filter(|lease| !lease.is_retired());
            let is_renewed = renews && lease.is_some();
            let listed = self.until(until, async {
                match lease {
                    Some(_) if !renews => self.store.list(directory, until).await,
                    Some(lease) => {
                        let read = self.store.renewed(&lease, |client| list(client, directory));
                        read.await
                    }
                    None => self.list_elsewhere(until).await,
                }
            });
            match listed.await? {
                Ok(listing) => return Ok(listing),
                // A leader that was just elected may not know the lease yet. The key is there if it has not ended.
                Err(EtcdFailure::LeaseGone) if is_renewed => {}
                // Without its lease there is no key.
                Err(EtcdFailure::LeaseGone) => return Err(EtcdAttemptError::Gone),
                Err(failure) => self.pause(until, failure).await?,
            }
        }
    }

    /// Moves the key to another lease of etcd before it lists: its own is about to end.
    async fn list_elsewhere(&self, until: Instant) -> Result<ContenderList, EtcdFailure> {
        let lease = self.store.lease_for(self.request).await?;
        match self.lease.write(&lease).await? {
            LeaseState::Held => self.store.list(&self.lease.directory, until).await,
            _ => Err(EtcdFailure::LeaseGone),
        }
    }

    /// Waits until a new listing is worthwhile: something has changed, or a renewal is due. True if the
    /// blocker has ended.
    async fn wait(&self, blocker: &Blocker, listing: &ContenderList) -> bool {
        let lease = self.lease.server_lease();
        let left = lease.map(|lease| renewal_interval(lease.ttl).saturating_sub(lease.age()));
        let renewal = Instant::now() + left.unwrap_or_default();
        let until = self
            .budget
            .deadline()
            .map_or(renewal, |end| end.min(renewal));
        // At the end of the wait the directory is listed once more, so that what has changed by then counts.
        let changed = before(until, Box::pin(self.changed(blocker, listing.revision)));
        changed.await.unwrap_or_default()
    }

    /// Watches the blocker from the known revision on. True if it has ended, and the own key exists.
    async fn changed(&self, blocker: &Blocker, revision: i64) -> bool {
        let directory = &self.lease.directory;
        let options = WatchOptions::new().with_start_revision(revision + 1);
        let ends = options.clone().with_filters([WatchFilterType::NoPut]);
        let (key, options) = match blocker {
            Blocker::Directory => (directory.clone(), ends.clone().with_prefix()),
            // A downgrade lets readers in.
            Blocker::End(name) if self.request.mode() == Mode::Shared => {
                (format!("{directory}{name}"), options)
            }
            Blocker::End(name) => (format!("{directory}{name}"), ends.clone()),
            Blocker::EndOrPermit(name) => (format!("{directory}{name}"), options),
        };
        let own = format!("{directory}{}", self.lease.name());
        let watched = self.store.connection.send(|mut client| {
            let (key, own) = (key.clone(), own.clone());
            async move {
                let mut watch = client.watch(own, Some(ends)).await?;
                watch.watch(key, Some(options)).await?;
                Ok(watch)
            }
        });
        if let Ok(mut watch) = watched.await {
            // etcd reports events from before a watch in any order, and later events in their order. It reads the
            // revision that it reports before it begins the watch, so that of the second watch says whether the first
            // one has begun in time.
            let mut is_ordered = false;
            loop {
                match watch.message().await {
                    Ok(Some(said)) if said.canceled() => break,
                    Ok(Some(said)) if said.events().is_empty() => {
                        is_ordered = revision_of(said.header()) == revision;
                    }
                    Ok(Some(said)) => {
                        let is_end = |event: &Event| {
                            let stored = event.kv().map(KeyValue::key);
                            event.event_type() == EventType::Delete
                                && stored == Some(key.as_bytes())
                        };
                        return is_ordered && said.events().iter().all(is_end);
                    }
                    // Without a leader, or the connection has ended.
                    _ => {
                        self.mark_unresponsive();
                        break;
                    }
                }
            }
        } else {
            self.mark_unresponsive();
        }
        sleep(self.store.engine.jitter(RETRY_BACKOFF, RETRY_BACKOFF * 5)).await;
        false
    }

    /// Bounds one step.
    async fn until<T>(
        &self,
        until: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T, EtcdAttemptError> {
        let done = replied(self.request, self.budget, until, work).await;
        done.ok_or(EtcdAttemptError::Late)
    }

    fn mark_unresponsive(&self) {
        mark_unresponsive(self.request, self.budget);
    }

    /// Pauses before a retry; returns failures that a retry cannot fix.
    async fn pause(&self, until: Instant, failure: EtcdFailure) -> Result<(), EtcdAttemptError> {
        if matches!(failure, EtcdFailure::LeaseGone) {
            return Err(EtcdAttemptError::Gone);
        }
        mark_failed(self.request, self.budget, &failure);
        let paused = self.store.connection.pause(until, failure).await;
        paused.map_err(|failure| {
            // A full database has answered.
            let is_late = failure.is_retryable() && !matches!(failure, EtcdFailure::Full(_));
            match is_late {
                true => EtcdAttemptError::Late,
                false => EtcdAttemptError::Failed(failure),
            }
        })
    }
}
