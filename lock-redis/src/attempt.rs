//! One acquisition, from its first request to its grant.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lock_core::engine::{LeaseId, Moment};
use lock_core::{AcquireRequest, Error, ErrorKind, Grant, Mode, Result};

use crate::budget::Budget;
use crate::error::Failure;
use crate::inbox::{Heard, Listening};
use crate::lease::RedisLease;
use crate::link::Taken;
use crate::lock::Client;
use crate::server::{Answer, Claim, MAX_AGE, Place, Ticket};

/// How an attempt ends.
#[derive(Debug)]
pub(crate) enum Outcome {
    Granted(Grant),
    /// The lease ended before anybody noticed that it had begun; another attempt may follow.
    Gone,
    /// The server keeps nothing of this attempt.
    Refused(Error),
}

pub(crate) struct Attempt<'a> {
    pub(crate) client: &'a Client,
    pub(crate) request: &'a AcquireRequest,
    pub(crate) budget: Budget,
    pub(crate) id: LeaseId,
    pub(crate) lease: &'a RedisLease,
    pub(crate) claim: Claim,
}

impl Attempt<'_> {
    /// Asks until there is an answer; as a waiter, keeps its place until the lock is granted.
    ///
    /// Every request of an attempt has the same id, so that it may be repeated after an unknown
    /// outcome, and counts as a heartbeat. A grant may come as a reply or be pushed.
    pub(crate) async fn run(&self) -> Result<Outcome> {
        let mut waiting = Waiting::new(self);
        if let Some(outcome) = self.take(&mut waiting).await? {
            return Ok(outcome);
        }
        let crowds = &self.client.shared.crowds;
        let key = self.lease.keys().name();
        // The grant of a server that this process hears costs no second request.
        if self.budget.waits() {
            waiting.listen_if_subscribed();
        }
        loop {
            let sent = self.client.engine.now();
            let place = waiting.place(sent);
            let asking = self.ask(place.as_ref(), waiting.answered);
            match self.answered(asking).await {
                Some(Ok(Answer::Granted(token))) => {
                    if !waiting.answered {
                        crowds.clear(key);
                    }
                    return Ok(Outcome::Granted(self.granted(sent, token)));
                }
                Some(Ok(Answer::Gone)) => return Ok(Outcome::Gone),
                Some(Ok(Answer::Limit(limit))) => {
                    return Ok(Outcome::Refused(other_limit(limit)));
                }
                Some(Ok(Answer::Held)) => {
                    if !self.budget.waits() {
                        return Ok(Outcome::Refused(self.budget.contended()));
                    }
                    waiting.answered(None);
                    waiting.subscribe().await?;
                    continue;
                }
                Some(Ok(Answer::Queued {
                    next,
                    ahead,
                    ticket,
                })) => {
                    crowds.met(key);
                    waiting.ticket = Some(ticket);
                    self.lease.joined(ticket);
                    waiting.answered(next.filter(|_| ahead == 0));
                }
                Some(Err(failure)) => waiting.failed(failure)?,
                None => return Err(waiting.gives_up()),
            }
            if let Some(grant) = waiting.wait().await? {
                return Ok(Outcome::Granted(grant));
            }
            waiting.subscribe_again().await?;
        }
    }

    /// Takes the lock by plain commands, unless others wanted it lately; `None` if there is more to
    /// say.
    async fn take(&self, waiting: &mut Waiting<'_>) -> Result<Option<Outcome>> {
        let (keys, shared) = (self.lease.keys(), &self.client.shared);
        if self.claim.mode != Mode::Exclusive
            || self.budget.waits() && shared.crowds.is_crowded(keys.name())
        {
            return Ok(None);
        }
        let sent = self.client.engine.now();
        let taking = shared.server.take(keys, &self.claim, self.client.replicas);
        match self.answered(taking).await {
            Some(Ok(Taken::Granted(token))) => {
                return Ok(Some(Outcome::Granted(self.granted(sent, token))));
            }
            Some(Ok(Taken::Held)) if !self.budget.waits() => {
                return Ok(Some(Outcome::Refused(self.budget.contended())));
            }
            Some(Ok(Taken::WithoutToken)) => waiting.is_unanswered = true,
            Some(Ok(Taken::Held)) => waiting.answered(None),
            Some(Ok(Taken::Unknown)) => {}
            Some(Err(failure)) => waiting.failed(failure)?,
            None => return Err(waiting.gives_up()),
        }
        Ok(None)
    }

    /// Bounds a request by the wait. Until its outcome is known, and if it is dropped, a release has to
    /// reckon with its arrival.
    async fn answered<T>(
        &self,
        request: impl Future<Output = Result<T, Failure>>,
    ) -> Option<Result<T, Failure>> {
        let before = self.lease.is_under_way(true);
        let answer = self.budget.bound(request).await;
        match &answer {
            Some(Err(failure)) if failure.outcome_unknown => {}
            Some(_) => drop(self.lease.is_under_way(before)),
            None => {}
        }
        answer
    }

    fn granted(&self, sent: Moment, token: u64) -> Grant {
        Grant::new(sent, Some(self.lease.granted(token)))
    }

    /// Asks once; `was_held` says that somebody else had the lock at the last answer.
    async fn ask(&self, place: Option<&Place>, was_held: bool) -> Result<Answer, Failure> {
        let (keys, server) = (self.lease.keys(), &self.client.shared.server);
        let Some(replicas) = self.client.replicas else {
            return server.acquire(keys, &self.claim, place, None).await;
        };
        if was_held {
            // Replicas need not know of a heartbeat. What is granted is asked for again below: that
            // extends the lease, a write behind which the replicas have the grant as well.
            match server.acquire(keys, &self.claim, place, None).await? {
                Answer::Granted(_) => {}
                answer => return Ok(answer),
            }
        }
        let wait = Some(replicas);
        server.acquire(keys, &self.claim, place, wait).await
    }
}

fn other_limit(limit: u32) -> Error {
    let message = format!("permits of this key are taken with the limit {limit}");
    Error::new(ErrorKind::InvalidRequest, message)
}

/// A waiter between two requests.
struct Waiting<'a> {
    attempt: &'a Attempt<'a>,
    listening: Option<Listening>,
    channel: Option<Arc<str>>,
    /// Whether the last attempt to subscribe failed.
    is_deaf: bool,
    /// Whether this attempt takes a place in the queue.
    queues: bool,
    /// The place that the server has given.
    ticket: Option<u64>,
    beats: Beats,
    /// When the lock may come free by time alone, for the first in the queue.
    next: Option<Duration>,
    poll: Duration,
    /// Whether the server has said that somebody else has the lock.
    answered: bool,
    /// Whether an earlier request of this attempt may still be under way.
    is_unanswered: bool,
    /// Since when there is no answer, and the last reason.
    silent: Option<(Moment, Failure)>,
}

impl<'a> Waiting<'a> {
    fn new(attempt: &'a Attempt<'a>) -> Self {
        Self {
            attempt,
            listening: None,
            channel: None,
            is_deaf: false,
            queues: false,
            ticket: None,
            beats: Beats::default(),
            next: None,
            poll: FIRST_POLL,
            answered: false,
            is_unanswered: false,
            silent: None,
        }
    }

    fn listen_if_subscribed(&mut self) {
        if let Some(channel) = self.attempt.client.shared.server.link.subscribed() {
            self.listen(Some(channel));
        }
    }

    async fn subscribe(&mut self) -> Result<()> {
        let channel = self.attempt.client.shared.server.link.channel();
        match self.attempt.budget.bound(channel).await {
            Some(Ok(channel)) => self.listen(channel),
            Some(Err(failure)) => {
                self.queues = true;
                self.is_deaf = true;
                self.failed(failure)?;
            }
            None => return Err(self.gives_up()),
        }
        Ok(())
    }

    /// Subscribes if that failed before, so that the waiter does not poll for the rest of its wait.
    async fn subscribe_again(&mut self) -> Result<()> {
        if !self.is_deaf {
            return Ok(());
        }
        // No longer, for the heartbeat that follows keeps the place.
        let again = tokio::time::timeout(ALIVE / 3, self.subscribe()).await;
        again.unwrap_or(Ok(()))
    }

    fn listen(&mut self, channel: Option<Arc<str>>) {
        self.queues = true;
        self.is_deaf = false;
        self.channel = channel;
        if self.channel.is_some() && self.listening.is_none() {
            let inbox = &self.attempt.client.inbox;
            self.listening = Some(inbox.listen(self.attempt.id));
        }
    }

    /// What the request that is sent now says of this waiter.
    fn place(&mut self, sent: Moment) -> Option<Place> {
        self.queues.then(|| Place {
            beat: self.beats.next(sent),
            ticket: match self.ticket {
                Some(ticket) => Ticket::Known(ticket),
                None if self.is_unanswered => Ticket::Unknown,
                None => Ticket::None,
            },
            alive: ALIVE,
            window: window(self.attempt.claim.ttl),
            channel: self.channel.clone().unwrap_or_default(),
        })
    }

    fn answered(&mut self, next: Option<Duration>) {
        self.answered = true;
        self.attempt.request.note_held();
        self.silent = None;
        self.next = next;
    }

    /// Takes note of a failure; gives it back if it is no use to ask again.
    fn failed(&mut self, mut failure: Failure) -> Result<()> {
        if failure.outcome_unknown {
            self.is_unanswered = true;
        }
        // Nor does a refusal say what became of the requests before.
        failure.outcome_unknown = self.is_unanswered;
        let now = self.attempt.client.engine.now();
        let (since, _) = self.silent.get_or_insert_with(|| (now, failure.clone()));
        let is_over = now.since(*since) >= PATIENCE;
        if is_over || !self.attempt.budget.waits() || !failure.is_retryable() {
            return Err(failure.into());
        }
        self.silent = Some((*since, failure));
        self.attempt.request.note_unanswered();
        self.next = None;
        Ok(())
    }

    /// The error of a caller whose time is over.
    fn gives_up(&mut self) -> Error {
        match self.silent.take() {
            Some((_, failure)) => failure.into(),
            None if self.answered => self.attempt.budget.contended(),
            None => {
                let message = "the server did not answer before the wait was over";
                Error::new(ErrorKind::Unavailable, message).with_unknown_outcome()
            }
        }
    }

    /// Waits until it is time to ask again, or for a grant that is pushed.
    async fn wait(&mut self) -> Result<Option<Grant>> {
        let until = tokio::time::Instant::now() + self.pause();
        loop {
            if self.attempt.budget.is_over() {
                return Err(self.gives_up());
            }
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            let left = self.attempt.budget.left(left);
            let heard = match &self.listening {
                Some(listening) => tokio::time::timeout(left, listening.next()).await.ok(),
                None => {
                    tokio::time::sleep(left).await;
                    None
                }
            };
            match heard {
                Some(Heard::Granted(push)) => {
                    if let Some(grant) = self.pushed(push.beat, push.token) {
                        return Ok(Some(grant));
                    }
                    // Too old to rely on: ask whether it still stands.
                    return Ok(None);
                }
                Some(Heard::Nothing) => {
                    // Every waiter of this process hears nothing at the same time.
                    let pause = self.jitter(Duration::from_millis(50));
                    tokio::time::sleep(self.attempt.budget.left(pause)).await;
                    return Ok(None);
                }
                None if self.attempt.budget.is_over() => {}
                None => return Ok(None),
            }
        }
    }

    /// A grant counts from the heartbeat that it answers.
    fn pushed(&self, beat: u32, token: u64) -> Option<Grant> {
        let sent = self.beats.sent(beat)?;
        let window = window(self.attempt.claim.ttl);
        let age = self.attempt.client.engine.now().since(sent);
        // Where there is more to wait for, the next request does so.
        let server = &self.attempt.client.shared.server;
        let stands = self.attempt.client.replicas.is_none()
            && (!server.wants_proof() || server.link.is_confirmed(MAX_AGE));
        let is_fresh = age < window / 2 && stands;
        is_fresh.then(|| Grant::new(sent, Some(self.attempt.lease.granted(token))).lasting(window))
    }

    fn pause(&mut self) -> Duration {
        if self.silent.is_some() || self.channel.is_none() {
            let pause = self.jitter(self.poll);
            self.poll = (self.poll * 2).min(LAST_POLL);
            return self.next.map_or(pause, |next| next.min(pause));
        }
        self.poll = FIRST_POLL;
        let beat = self.jitter(heartbeat(self.attempt.claim.ttl));
        match self.next {
            Some(next) => beat.min(next + Duration::from_millis(1)),
            None => beat,
        }
    }

    fn jitter(&self, most: Duration) -> Duration {
        self.attempt.client.engine.jitter(most * 3 / 4, most)
    }
}

/// When the last heartbeats left.
#[derive(Debug, Default)]
struct Beats {
    last: u32,
    sent: VecDeque<Moment>,
}

impl Beats {
    fn next(&mut self, sent: Moment) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.sent.push_back(sent);
        if self.sent.len() > MOST_BEATS {
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
const MOST_BEATS: usize = 16;

/// How long a server takes a waiter for alive after a heartbeat.
const ALIVE: Duration = Duration::from_secs(3);

/// How long a server that does not answer is asked again by one who waits: a fail-over fits in.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pauses of a waiter that is not told.
const FIRST_POLL: Duration = Duration::from_millis(10);
const LAST_POLL: Duration = Duration::from_millis(200);

/// The lease of a grant that is pushed: what a waiter costs the next one if it died unnoticed.
pub(crate) fn window(ttl: Duration) -> Duration {
    ttl.min(ALIVE)
}

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
        let mut beats = Beats::default();
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
