//! A waiter: its place in the queue of the server, its heartbeats, and the published grant.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::{Moment, WaitDeadline, before};
use polylock_core::{AcquireRequest, Error, ErrorKind, Grant, Mode, Result};
use tokio::time::{Instant, sleep, timeout};

use crate::acquire::RedisOutcome;
use crate::error::{RedisFailure, Refusal};
use crate::lease::RedisLease;
use crate::lock::RedisClient;
use crate::notifications::{GrantReceiver, Notification};
use crate::reply::{AcquireReply, PlainReply};
use crate::server::{HEARTBEAT_TIMEOUT, QueueEntry, window};
use crate::topology::{Done, MAX_AGE};

/// An acquisition that was not granted at once.
///
/// All of its requests have the same id, so that each counts as a heartbeat and may be repeated after an
/// unknown outcome. A grant is a reply or a notification.
pub(crate) struct RedisWaiter {
    pub(crate) client: Arc<RedisClient>,
    pub(crate) request: AcquireRequest,
    budget: WaitDeadline,
    pub(crate) lease: Arc<RedisLease>,
    phase: QueuePhase,
    subscription: Subscription,
    beats: Heartbeats,
    poll: Duration,
}

/// The last state that the server reported.
enum QueuePhase {
    /// Nothing yet.
    Asking,
    /// It has joined the queue by a plain command; the state of the lock is unknown.
    Joined,
    /// Another client holds the lock.
    Held {
        by: Done,
        /// When the lock may come free by expiry alone; set for the first waiter in the queue.
        free_in: Option<Duration>,
    },
    /// The server does not reply: since when, and the last failure.
    Silent {
        since: Moment,
        failure: RedisFailure,
    },
}

/// How this waiter is notified of its grant.
enum Subscription {
    /// The waiter has not tried to subscribe yet, and its requests take no place in the queue.
    None,
    /// The last attempt to subscribe failed: the waiter polls, and tries again before each poll.
    Failed,
    /// Notifications are impossible: the waiter polls.
    Impossible,
    Active(Arc<str>, GrantReceiver),
}

impl RedisWaiter {
    pub(crate) fn new(
        client: &Arc<RedisClient>,
        request: &AcquireRequest,
        budget: WaitDeadline,
        lease: &Arc<RedisLease>,
    ) -> Self {
        Self {
            client: Arc::clone(client),
            request: request.clone(),
            budget,
            lease: Arc::clone(lease),
            phase: QueuePhase::Asking,
            subscription: Subscription::None,
            beats: Heartbeats::default(),
            poll: MIN_POLL,
        }
    }

    /// Handles the reply to the plain commands, `None` after a timeout. Returns whether another request
    /// may help at once.
    pub(crate) async fn note(
        &mut self,
        taken: Option<Result<(PlainReply, Done), RedisFailure>>,
    ) -> Result<bool> {
        match taken {
            Some(Ok((PlainReply::Held, done))) => {
                self.is_held(done, None).await;
                Ok(false)
            }
            Some(Ok((PlainReply::WithoutToken, _))) => {
                self.lease.doubt();
                Ok(true)
            }
            Some(Ok((PlainReply::Granted(_) | PlainReply::Unknown, _))) => Ok(true),
            Some(Err(failure)) => self.failed(failure).map(|()| false),
            None => Err(self.unanswered()),
        }
    }

    /// Sends one request, and queues if this process is already subscribed, so that the grant needs no
    /// second request. `None` if the waiter has to wait.
    pub(crate) async fn ask_first(&mut self) -> Result<Option<RedisOutcome>> {
        if self.budget.waits()
            && let Some(channel) = self.client.server.topology.subscribed()
        {
            self.listen(Some(channel));
            if self.join().await? {
                return Ok(None);
            }
        }
        self.ask().await
    }

    /// Joins an existing queue by one plain command; false if a script has to join it.
    async fn join(&mut self) -> Result<bool> {
        let sent = self.client.engine.now();
        let (client, lease) = (Arc::clone(&self.client), Arc::clone(&self.lease));
        let (key, hint) = (lease.claim.keys.name(), &client.contention);
        // Time for the first heartbeat must remain: it finds the lock free if the holder is gone.
        let is_short = self.budget.left(2 * FIRST_HEARTBEAT) < 2 * FIRST_HEARTBEAT;
        if self.lease.claim.mode != Mode::Exclusive
            || self.lease.is_under_way()
            || is_short
            || !hint.has_lasting_queue(key, sent)
        {
            return Ok(false);
        }
        let Some(place) = self.place(sent) else {
            return Ok(false);
        };
        let server = &client.server;
        let joining = server.join(&lease.claim, &place, &lease.unanswered);
        match self.answered(joining).await {
            Some(Ok((Some(ticket), by))) => {
                self.lease.joined(ticket);
                // Nearly every queue has a holder. Shorter waits behind this one in the local queue end before the first
                // heartbeat.
                self.tell_contention(&by).await;
                self.phase = QueuePhase::Joined;
            }
            Some(Ok((None, _))) => {
                hint.forget_queue(key);
                return Ok(false);
            }
            // The script can join, or returns the reason. Redis 6.0 lacks the command.
            Some(Err(failure)) if failure.refusal().is_some() => {
                if matches!(failure.refusal(), Some(Refusal::NoCommand | Refusal::Other)) {
                    hint.forbid_joining();
                }
                return Ok(false);
            }
            Some(Err(failure)) => self.failed(failure)?,
            None => return Err(self.unanswered()),
        }
        Ok(true)
    }

    /// Waits until the lock is granted, refused, or the time is over.
    pub(crate) async fn run(&mut self) -> Result<RedisOutcome> {
        loop {
            match self.subscription {
                Subscription::None => self.subscribe().await?,
                _ => {
                    if let Some(grant) = self.wait().await? {
                        return Ok(RedisOutcome::Granted(grant));
                    }
                    self.subscribe_again().await?;
                }
            }
            if let Some(outcome) = self.ask().await? {
                return Ok(outcome);
            }
        }
    }

    async fn ask(&mut self) -> Result<Option<RedisOutcome>> {
        let sent = self.client.engine.now();
        let place = self.place(sent);
        let contended = &self.client.contention;
        let key = self.lease.claim.keys.name();
        let answer = self.answered(self.request_lock(place.as_ref()));
        match answer.await {
            Some(Ok((AcquireReply::Granted(token), _))) => {
                if matches!(self.phase, QueuePhase::Asking) {
                    contended.clear(key);
                }
                let token = self.lease.granted(token);
                return Ok(Some(RedisOutcome::Granted(Grant::new(sent, Some(token)))));
            }
            Some(Ok((AcquireReply::Gone, _))) => return Ok(Some(RedisOutcome::Gone)),
            Some(Ok((AcquireReply::Held, done))) if !self.budget.waits() => {
                let refused = self.client.refused(&self.lease, self.budget, &done).await;
                return Ok(Some(RedisOutcome::Refused(refused)));
            }
            Some(Ok((AcquireReply::Held, done))) => self.is_held(done, None).await,
            Some(Ok((AcquireReply::Queued { next, ticket }, done))) => {
                contended.record_queue(key, sent);
                self.lease.joined(ticket);
                self.is_held(done, next).await;
            }
            Some(Err(failure)) => self.failed(failure)?,
            None => return Err(self.unanswered()),
        }
        Ok(None)
    }

    /// Bounds a request by the deadline, and by a little more once the server has said that the lock is held. After
    /// a second without a reply, the layer above does not count the lock as held any longer.
    async fn answered<T>(
        &self,
        request: impl Future<Output = Result<T, RedisFailure>>,
    ) -> Option<Result<T, RedisFailure>> {
        let budget = match self.phase {
            QueuePhase::Joined | QueuePhase::Held { .. } => self.budget.with_grace(),
            QueuePhase::Asking | QueuePhase::Silent { .. } => self.budget,
        };
        let mut answered = pin!(self.lease.answered(budget, request));
        match before(Instant::now() + HEARTBEAT_TIMEOUT / 3, answered.as_mut()).await {
            Some(answer) => answer,
            None => {
                self.request.mark_unresponsive();
                answered.await
            }
        }
    }

    async fn request_lock(
        &self,
        place: Option<&QueueEntry>,
    ) -> Result<(AcquireReply, Done), RedisFailure> {
        let (lease, server) = (&self.lease, &self.client.server);
        let ask = |wait| {
            let (claim, unanswered) = (&lease.claim, &lease.unanswered);
            server.acquire(claim, place, wait, unanswered)
        };
        match (ask(None).await?, server.replicas) {
            // Replicas need not know of a waiter. The grant is requested again: that extends the lease, and the
            // replicas that acknowledge this write have the grant as well.
            ((AcquireReply::Granted(_), _), Some(replicas)) => {
                let again = ask(Some(replicas)).await;
                // The first request has the lock.
                again.map_err(|failure| failure.cause.unknown())
            }
            (answer, _) => Ok(answer),
        }
    }

    async fn subscribe(&mut self) -> Result<()> {
        let client = Arc::clone(&self.client);
        let channel = client.server.topology.channel();
        match self.budget.bound(client.longest, channel).await {
            Some(Ok(channel)) => self.listen(channel),
            Some(Err(failure)) => {
                self.subscription = Subscription::Failed;
                self.failed(failure)?;
            }
            // The next request shows whether the server of the lock replies.
            None => self.subscription = Subscription::Failed,
        }
        Ok(())
    }

    /// Subscribes if that failed before, so that the waiter does not poll for the rest of its wait.
    async fn subscribe_again(&mut self) -> Result<()> {
        if !matches!(self.subscription, Subscription::Failed) {
            return Ok(());
        }
        // No longer, so that the next heartbeat keeps the place.
        let again = timeout(HEARTBEAT_TIMEOUT / 3, self.subscribe()).await;
        again.unwrap_or(Ok(()))
    }

    fn listen(&mut self, channel: Option<Arc<str>>) {
        self.subscription = match channel {
            Some(channel) => {
                Subscription::Active(channel, self.client.notifications.listen(self.lease.id))
            }
            None => Subscription::Impossible,
        };
    }

    /// The queue entry that the next request sends.
    fn place(&mut self, sent: Moment) -> Option<QueueEntry> {
        let channel = match &self.subscription {
            Subscription::None => return None,
            Subscription::Active(channel, _) => Arc::clone(channel),
            Subscription::Failed | Subscription::Impossible => Arc::default(),
        };
        Some(QueueEntry {
            beat: self.beats.next(sent),
            ticket: match self.lease.ticket() {
                Some(ticket) => Arc::clone(ticket),
                None if self.lease.is_under_way() => "?".into(),
                None => Arc::default(),
            },
            channel,
        })
    }

    async fn is_held(&mut self, by: Done, free_in: Option<Duration>) {
        self.tell_contention(&by).await;
        self.phase = QueuePhase::Held { by, free_in };
    }

    /// Tells those who wait for this attempt that another client has the lock, if the server is the master: the
    /// successor of a former one may have the lock free. The place in the queue is kept either way.
    async fn tell_contention(&self, by: &Done) {
        // No longer, so that the next heartbeat keeps the place.
        let within = self.budget.left(HEARTBEAT_TIMEOUT / 3);
        match self.client.server.confirm_master(by, MAX_AGE, within).await {
            Ok(()) => self.request.mark_contended(),
            Err(failure) => {
                let error = Error::from(failure);
                self.request.mark_unavailable(error.message());
            }
        }
    }

    /// Records a failure; returns it as an error if a retry cannot help.
    fn failed(&mut self, mut failure: RedisFailure) -> Result<()> {
        // A refusal does not say whether earlier requests took effect.
        failure.outcome_unknown = self.lease.is_under_way();
        let now = self.client.engine.now();
        let since = match self.phase {
            QueuePhase::Silent { since, .. } => since,
            _ => now,
        };
        let is_over = now.since(since) >= UNRESPONSIVE_LIMIT;
        if is_over || !self.budget.waits() || !failure.is_retryable() {
            return Err(failure.into());
        }
        self.request.mark_unavailable(&failure.cause.to_string());
        self.phase = QueuePhase::Silent { since, failure };
        Ok(())
    }

    /// The error after the deadline of the caller, with no request in flight.
    async fn gives_up(&self) -> Error {
        match &self.phase {
            QueuePhase::Held { by, .. } => self.client.refused(&self.lease, self.budget, by).await,
            QueuePhase::Asking | QueuePhase::Joined | QueuePhase::Silent { .. } => {
                self.unanswered()
            }
        }
    }

    /// The error of a request that has no reply by the deadline. What the server said before may be over.
    fn unanswered(&self) -> Error {
        match &self.phase {
            QueuePhase::Silent { failure, .. } => {
                let mut failure = failure.clone();
                failure.outcome_unknown |= self.lease.is_under_way();
                failure.into()
            }
            QueuePhase::Asking | QueuePhase::Joined | QueuePhase::Held { .. } => {
                let message = "the wait timed out without a reply of the server";
                Error::new(ErrorKind::Unavailable, message).with_unknown_outcome()
            }
        }
    }

    /// Waits for the next poll, or for a published grant.
    async fn wait(&mut self) -> Result<Option<Grant>> {
        let pause = self.pause();
        let until = Instant::now() + self.budget.left(pause);
        let heard = match &mut self.subscription {
            Subscription::Active(_, receiver) => {
                tokio::time::timeout_at(until, receiver.next()).await.ok()
            }
            _ => {
                tokio::time::sleep_until(until).await;
                None
            }
        };
        match heard {
            // A grant that is too old is requested again.
            Some(Notification::Granted { beat, token }) => return Ok(self.pushed(beat, token)),
            Some(Notification::Interrupted) => {
                // All waiters of this process lose their notifications at the same time.
                let pause = self.jitter(Duration::from_millis(50));
                sleep(self.budget.left(pause)).await;
            }
            // A queue may outlive its holder: the next request finds out.
            None if matches!(self.phase, QueuePhase::Joined) => {}
            None if self.budget.is_over() => return Err(self.gives_up().await),
            None => {}
        }
        Ok(None)
    }

    /// A published grant counts from the heartbeat that it answers.
    fn pushed(&self, beat: u32, token: u64) -> Option<Grant> {
        let sent = self.beats.sent(beat)?;
        let window = window(self.lease.claim.ttl);
        let age = self.client.engine.now().since(sent);
        // If a confirmation is needed, the next request waits for it.
        let server = &self.client.server;
        let stands = server.replicas.is_none()
            && (!server.wants_proof() || server.topology.is_confirmed(MAX_AGE));
        let is_fresh = age < window / 2 && stands;
        is_fresh.then(|| Grant::new(sent, Some(self.lease.granted(token))).lasting(window))
    }

    fn pause(&mut self) -> Duration {
        let free_in = match self.phase {
            QueuePhase::Held { free_in, .. } => free_in,
            _ => None,
        };
        let is_told = matches!(self.subscription, Subscription::Active(..));
        if !is_told || matches!(self.phase, QueuePhase::Silent { .. }) {
            let pause = self.jitter(self.poll);
            self.poll = (self.poll * 2).min(MAX_POLL);
            return free_in.map_or(pause, |free_in| free_in.min(pause));
        }
        self.poll = MIN_POLL;
        let mut beat = heartbeat(self.lease.claim.ttl);
        if matches!(self.phase, QueuePhase::Joined) {
            beat = beat.min(FIRST_HEARTBEAT);
        }
        let beat = self.jitter(beat);
        free_in.map_or(beat, |free_in| beat.min(free_in + Duration::from_millis(1)))
    }

    fn jitter(&self, most: Duration) -> Duration {
        self.client.engine.jitter(most * 3 / 4, most)
    }
}

/// When the last heartbeats were sent.
#[derive(Debug, Default)]
struct Heartbeats {
    last: u32,
    sent: VecDeque<Moment>,
}

impl Heartbeats {
    fn next(&mut self, sent: Moment) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.sent.push_back(sent);
        if self.sent.len() > MAX_HEARTBEATS {
            self.sent.pop_front();
        }
        self.last
    }

    fn sent(&self, beat: u32) -> Option<Moment> {
        let back = self.last.checked_sub(beat)? as usize;
        let at = self.sent.len().checked_sub(back + 1)?;
        self.sent.get(at).copied()
    }
}

/// Older ones could not be relied on anyway.
const MAX_HEARTBEATS: usize = 16;

/// Max time until the first heartbeat of a waiter that joined by a plain command. The server counts no
/// heartbeat within 100 ms of an arrival; the first one keeps the queue from expiring.
const FIRST_HEARTBEAT: Duration = Duration::from_millis(150);

/// How long a waiter keeps retrying an unresponsive server; longer than a typical failover.
const UNRESPONSIVE_LIMIT: Duration = Duration::from_secs(10);

/// Poll intervals of a waiter without notifications.
const MIN_POLL: Duration = Duration::from_millis(10);
const MAX_POLL: Duration = Duration::from_millis(200);

/// Time between two heartbeats.
fn heartbeat(ttl: Duration) -> Duration {
    (ttl / 5).min(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_counts_from_its_heartbeat() {
        let at = |n: u64| Moment::from_nanos(n * 1_000_000_000);
        let mut beats = Heartbeats::default();
        assert_eq!(beats.sent(0), None);
        for n in 1..=40 {
            assert_eq!(u64::from(beats.next(at(n))), n);
        }
        assert_eq!(beats.sent(40), Some(at(40)));
        assert_eq!(beats.sent(39), Some(at(39)));
        assert_eq!(beats.sent(25), Some(at(25)));
        assert_eq!(beats.sent(24), None, "forgotten");
        assert_eq!(beats.sent(41), None, "not sent yet");
    }
}
