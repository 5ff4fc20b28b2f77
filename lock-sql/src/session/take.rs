//! How a session takes a lock.

use std::sync::Arc;
use std::time::Duration;

use lock_core::LockKey;
use lock_core::engine::Moment;
use tokio::time::{Instant, sleep_until};

use super::actor::{Actor, Held};
use super::args::{Args, millis};
use super::handle::{Granted, Seat, Take, Taken};
use super::lease::ended;
use super::record::RECORD_AFTER;
use super::terms::{SessionMode, TOKENS_AT_ONCE, tokens};
use super::texts::{column, got};
use crate::error::{Cause, Failure};
use crate::table::Tokens;
use crate::wire::{Answer, Class, Value};

/// What a take is answered with, if the lock was taken.
#[derive(Clone, Copy, Debug)]
struct Got {
    /// When the server had it for us, or before.
    since: Moment,
    /// Whether the key has its record.
    found: bool,
    mine: bool,
    token: i64,
    last_token: i64,
    session: i64,
    began: i64,
    /// Whether somebody waits to have the lock alone.
    claimed: bool,
}

enum Step {
    Got(Got),
    /// Somebody else has the lock; whether the session has something left to undo.
    Held {
        is_dirty: bool,
    },
    /// The rows of the key are missing.
    Missing,
}

impl Actor {
    pub(super) async fn take(&mut self, mut take: Take) {
        if take.reply.is_closed() {
            return;
        }
        let (key, id, is_shared) = (take.key.clone(), take.id, take.is_shared);
        let block = self.blocks.remove(&key).filter(|_| !is_shared);
        let taken = match self.step(&mut take).await {
            Ok(Step::Got(got)) => self.holds(&take, block, got).await,
            Ok(Step::Held { is_dirty }) => {
                if let Some(block) = block {
                    self.blocks.insert(key.clone(), block);
                }
                // Who does not wait any more gets its place dropped.
                drop(take.reply.send(Ok(Taken::Held(take.place))));
                if is_dirty {
                    // What comes next stands in the queue behind this.
                    self.undo(&key, is_shared).await;
                }
                return;
            }
            Ok(Step::Missing) => {
                let cause = Cause::Unfit("the rows of a lock vanish again and again".to_owned());
                Err(cause.into())
            }
            Err(failure) => Err(failure),
        };
        match taken {
            Ok((tokens, since)) => {
                take.place.settle();
                let seat = Seat::new(take.place, id);
                let granted = Granted {
                    tokens,
                    since,
                    seat,
                };
                // The seat of somebody who is gone gives the lock back.
                drop(take.reply.send(Ok(Taken::Granted(granted))));
            }
            Err(failure) => {
                self.undo(&key, is_shared).await;
                // A pooler has gone on with another server.
                self.is_over |= failure.is_late();
                drop(take.reply.send(Err(failure)));
            }
        }
    }

    /// Asks until the rows of the key are there.
    async fn step(&mut self, take: &mut Take) -> Result<Step, Failure> {
        let mut missing = 0;
        while missing < MOST_MISSING {
            let args = self.holder_args(&take.key, take.id, &take.label, 0).with(
                Args::MORE_TOKENS,
                if take.is_shared {
                    0
                } else {
                    TOKENS_AT_ONCE - 1
                },
            );
            let sent = self.terms.engine.now();
            let answer = match take.until {
                None => {
                    let terms = Arc::clone(&self.terms);
                    let sql = &terms.texts.try_take[usize::from(take.is_shared)];
                    self.ask(sql, args.values()).await.map(Some)
                }
                Some(until) => self.wait(take, until, args).await,
            };
            let answer = match answer {
                Ok(Some(answer)) => answer,
                Ok(None) => return Ok(Step::Held { is_dirty: false }),
                Err(failure) if failure.class() == Some(Class::LockTimeout) => {
                    // The transaction is aborted; a lock may have been granted although the time
                    // was over.
                    return Ok(Step::Held { is_dirty: true });
                }
                Err(failure) => return Err(failure),
            };
            match self.read(sent, &answer)? {
                Step::Missing => {
                    self.undo(&take.key, take.is_shared).await;
                    // Whoever makes them in a transaction keeps this session waiting, and no connection
                    // that others need.
                    let args = self.args(&take.key, take.id);
                    let terms = Arc::clone(&self.terms);
                    match self.ask(&terms.texts.seed, args.values()).await.map(drop) {
                        Ok(()) => missing += 1,
                        // Somebody makes them in a transaction that has not ended, and has the lock.
                        Err(failure) if failure.class() == Some(Class::LockTimeout) => {
                            let until = take.until.unwrap_or_else(Instant::now);
                            if until <= Instant::now() || take.reply.is_closed() {
                                return Ok(Step::Held { is_dirty: false });
                            }
                        }
                        Err(failure) => return Err(failure),
                    }
                }
                // Somebody waits to have it alone, and those who share it let it pass.
                Step::Got(got) if got.claimed && take.is_shared => {
                    self.undo(&take.key, true).await;
                    let until = take.until.unwrap_or_else(Instant::now);
                    let pause =
                        Instant::now() + self.terms.engine.jitter(CLAIM_PAUSE / 2, CLAIM_PAUSE);
                    if until <= pause || take.reply.is_closed() {
                        return Ok(Step::Held { is_dirty: false });
                    }
                    sleep_until(pause).await;
                }
                step => return Ok(step),
            }
        }
        Ok(Step::Missing)
    }

    /// Runs a message that waits on the server; whoever gives up has the wait ended there too, and
    /// the session with it, since nobody knows what the end of the wait comes upon. `None` if the
    /// time was over.
    async fn wait(
        &mut self,
        take: &mut Take,
        until: Instant,
        args: Args,
    ) -> Result<Option<Answer>, Failure> {
        let terms = Arc::clone(&self.terms);
        let sql = &terms.texts.wait_take[usize::from(take.is_shared)];
        let left = until.saturating_duration_since(Instant::now());
        let args = args.with(Args::WAIT, millis(left));
        let Some(mut connection) = self.connection.take() else {
            return Ok(None);
        };
        let sent = terms.engine.now();
        let late = until + SLACK;
        let answer = {
            let mut message = std::pin::pin!(connection.message(sql, args.values()));
            let mut claim = Instant::now() + CLAIM_AFTER;
            let cancelled = loop {
                tokio::select! {
                    biased;
                    answer = &mut message => break Some(answer),
                    () = take.reply.closed() => break None,
                    () = sleep_until(late) => break None,
                    () = sleep_until(claim) => self.claim(take),
                }
                claim = Instant::now() + CLAIM_AFTER;
            };
            match cancelled {
                Some(answer) => Ok(answer),
                None => {
                    // Behind a pooler nobody knows which session of the server's waits; closing the
                    // connection ends it.
                    if !terms.target.is_pooled() {
                        self.cancel().await;
                    }
                    Err(tokio::time::timeout(ENDING, message).await)
                }
            }
        };
        match answer {
            Ok(answer) => self.answered(connection, sent, answer).map(Some),
            // Closing the connection frees what may have been granted in the end.
            Err(_) => Ok(None),
        }
    }

    /// Keeps others from sharing the lock that is waited for, for a while. Nothing waits for it.
    fn claim(&self, take: &Take) {
        if take.is_shared || self.terms.texts.claim.is_none() {
            return;
        }
        let (terms, args) = (Arc::clone(&self.terms), self.terms.args(&take.key));
        self.terms.engine.spawn_service(async move {
            let Some(sql) = &terms.texts.claim else {
                return;
            };
            if let Err(failure) = terms.clerk.message(sql, args.into_vec()).await {
                let error = lock_core::Error::from(failure);
                tracing::debug!(%error, "a waiter could not say that it waits");
            }
        });
    }

    fn read(&self, sent: Moment, answer: &Answer) -> Result<Step, Failure> {
        let alone = |row: &Vec<Value>| match row.as_slice() {
            [only] => only.int(),
            _ => None,
        };
        match answer.rows.iter().find_map(alone) {
            Some(got::TAKEN) => {}
            Some(got::NOT) => return Ok(Step::Held { is_dirty: false }),
            Some(got::INTERRUPTED) => return Err(Cause::Interrupted.into()),
            Some(got::ELSEWHERE) => return Err(pooled()),
            // A statement that is meant for one session finds nothing to do in another one.
            _ if self.terms.mode == SessionMode::Advisory => return Err(pooled()),
            _ => return Ok(Step::Missing),
        }
        let row = answer.rows.last().filter(|row| row.len() > 1);
        let malformed = || Failure::from(Cause::Unfit("an answer without its columns".to_owned()));
        let row = row.ok_or_else(malformed)?;
        let get = |column: usize| row.get(column).and_then(Value::int).ok_or_else(malformed);
        if row.get(column::ADMITTED).and_then(Value::int) == Some(0) {
            return Err(ended());
        }
        if get(column::SAME_NAME)? == 0 {
            let message = "another key has the same 64-bit hash as this one; rename one of them";
            return Err(Cause::Config(message.to_owned()).into());
        }
        // The time on the server counts, which may have been spent waiting; what lies between the
        // answer and us does not. A clock that is set there cannot make it later than now.
        let waited = u64::try_from(get(column::ELAPSED)?).unwrap_or(0);
        let since = (sent + Duration::from_micros(waited)).min(self.terms.engine.now());
        Ok(Step::Got(Got {
            since,
            found: get(column::FOUND)? == 1,
            mine: get(column::MINE)? == 1,
            token: get(column::TOKEN)?,
            last_token: get(column::LAST_TOKEN)?,
            session: get(column::SESSION)?,
            began: get(column::BEGAN)?,
            claimed: row.get(column::CLAIMED).and_then(Value::int) == Some(1),
        }))
    }

    /// Finds the tokens of a lock that is taken, and notes that it is held.
    async fn holds(
        &mut self,
        take: &Take,
        block: Option<Tokens>,
        got: Got,
    ) -> Result<(Tokens, Moment), Failure> {
        self.handle.prove(got.since);
        // Behind a pooler each transaction may have another session of the server's.
        if self.terms.mode == SessionMode::Row {
            self.number = got.session;
        }
        let (key, id) = (&take.key, take.id);
        let same = |block: &Tokens| got.mine && i64::try_from(block.last) == Ok(got.last_token);
        // A claim of this waiter goes with the draw.
        let kept = block.filter(same).filter(|_| !got.claimed);
        // What this session drew earlier it may have used.
        let drawn_here = match self.terms.mode {
            SessionMode::Advisory if got.mine && take.until.is_some() => {
                tokens(got.token, got.last_token)
            }
            _ => None,
        };
        let drawn = match kept.or(drawn_here) {
            Some(tokens) => tokens,
            None => {
                let args = self.holder_args(key, id, &take.label, got.began);
                if !got.found {
                    self.terms.seed(&args).await?;
                }
                let seen = Some(got.last_token).filter(|_| !take.is_shared);
                self.draw(args, seen).await?
            }
        };
        if take.is_shared {
            self.record_shared(key, id, &take.label, got.began, drawn.next)
                .await?;
        }
        let record_at = kept.map(|_| Instant::now() + RECORD_AFTER);
        self.held.insert(
            id,
            Held {
                key: key.clone(),
                is_shared: take.is_shared,
                label: take.label.clone(),
                began: got.began,
                first_token: drawn.next,
                last_token: i64::try_from(drawn.last).unwrap_or(i64::MAX),
                record_at,
                recording: None,
            },
        );
        Ok((drawn, got.since))
    }

    /// Draws tokens for a lock that this session holds, if the record is the one that it has `seen`;
    /// else it looks again, by which it finds out whether it has the lock still. Those who share a lock
    /// draw one token each, whatever the others do.
    pub(super) async fn draw(
        &mut self,
        args: Args,
        mut seen: Option<i64>,
    ) -> Result<Tokens, Failure> {
        let terms = Arc::clone(&self.terms);
        let count = seen.map_or(1, |_| TOKENS_AT_ONCE);
        for _ in 0..MOST_DRAWS {
            let args = args.clone().with(Args::SEEN, seen.unwrap_or(-1));
            if let Some(drawn) = terms.draw(args.clone(), count).await? {
                return Ok(drawn);
            }
            let record = self.ask(&terms.texts.read_record, args.values()).await?;
            let last = record
                .rows
                .last()
                .and_then(|row| row.get(column::LAST_TOKEN)?.int());
            seen = seen.and(last);
        }
        Err(
            Cause::Unfit("the record of a lock is gone or changes while it is held".to_owned())
                .into(),
        )
    }

    /// Frees what a take that failed may have left; without an answer the session ends.
    pub(super) async fn undo(&mut self, key: &LockKey, is_shared: bool) {
        if self.connection.is_none() {
            return;
        }
        let terms = Arc::clone(&self.terms);
        let args = terms.args(key);
        let undone = self
            .ask(&terms.texts.undo[usize::from(is_shared)], args.values())
            .await;
        if undone.is_err() {
            self.connection = None;
        }
    }
}

fn pooled() -> Failure {
    let message = "a transaction pooler is in the path, where locks of sessions exclude nobody; use \
                   mode=lease";
    Cause::Config(message.to_owned()).into()
}

/// What the server gets beyond its time to end a wait by itself, after which the connection is as
/// good as before.
const SLACK: Duration = Duration::from_millis(80);

/// How long a waiter waits before it keeps others from sharing the lock, and how often it says so. A
/// claim lasts for two seconds.
const CLAIM_AFTER: Duration = Duration::from_millis(300);

/// Pause of those who are kept from sharing a lock.
const CLAIM_PAUSE: Duration = Duration::from_millis(40);

/// How often the rows of a key may be missing after they were made.
const MOST_MISSING: u32 = 3;

/// How often others may draw, who have lost the lock without knowing it yet.
const MOST_DRAWS: u32 = 5;

/// How long a wait that was cancelled may take to end.
const ENDING: Duration = Duration::from_secs(1);
