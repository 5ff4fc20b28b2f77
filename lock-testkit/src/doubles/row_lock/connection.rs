//! A connection in a task of its own, so that no dropped future leaves it inside a transaction.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::engine::{Engine, Moment};
use lock_core::memory::Request;
use lock_core::{Error, LeaseControl, LockKey, LostReason, Released, Result};
use tokio::sync::{mpsc, oneshot, watch};

use super::KEEPALIVE;
use super::server::{Answer, Server};
use crate::doubles::wire::{broken, lock};

/// The lease's end of a connection; once it is dropped, the connection closes.
pub(super) struct Connection {
    commands: mpsc::UnboundedSender<Command>,
    news: Arc<Mutex<News>>,
}

/// What is known of the connection, and whom to tell.
#[derive(Default)]
struct News {
    control: Option<LeaseControl>,
    doubt: Option<Moment>,
    closed: bool,
}

enum Command {
    Lock {
        limit: Option<Duration>,
        reply: Reply<Option<u64>>,
    },
    NextToken {
        reply: Reply<Option<u64>>,
    },
    Release {
        reply: Reply<Released>,
    },
}

type Reply<T> = oneshot::Sender<Result<T>>;

impl Connection {
    /// Connects, for one acquisition of `key`.
    pub(super) async fn open(server: &Arc<Server>, key: &LockKey, engine: &Engine) -> Result<Self> {
        let answered = engine.now();
        let (id, closed) = server.wire.send(|| server.open()).await?;
        let (commands, inbox) = mpsc::unbounded_channel();
        let news = Arc::<Mutex<News>>::default();
        let (server, key) = (Arc::clone(server), key.clone());
        let told = Arc::clone(&news);
        let task = Task {
            server,
            key,
            id,
            engine: engine.clone(),
            news: told,
            answered,
        };
        // Counted apart: no shutdown waits for a connection whose guard lives.
        engine
            .for_backend(engine.backend())
            .spawn(task.run(inbox, closed));
        Ok(Self { commands, news })
    }

    /// Locks the row, and waits for it if there is a limit; `None` if somebody else has it.
    pub(super) async fn lock(&self, limit: Option<Duration>) -> Result<Option<u64>> {
        self.ask(|reply| Command::Lock { limit, reply })
            .await
            .unwrap_or_else(|| Err(gone()))
    }

    pub(super) async fn next_token(&self) -> Result<Option<u64>> {
        self.ask(|reply| Command::NextToken { reply })
            .await
            .unwrap_or_else(|| Err(gone()))
    }

    /// Ends the transaction, whether it has the row or waits for it.
    pub(super) async fn release(&self) -> Result<Released> {
        let released = self.ask(|reply| Command::Release { reply }).await;
        // What the server closed, it has freed.
        released.unwrap_or(Ok(Released::AlreadyLost))
    }

    pub(super) fn attach(&self, control: LeaseControl) {
        let mut news = lock(&self.news);
        if news.closed {
            control.lose(LostReason::SessionEnded);
        } else if let Some(deadline) = news.doubt {
            control.limit(deadline);
        }
        news.control = Some(control);
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Option<Result<T>> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).ok()?;
        answer.await.ok()
    }
}

fn gone() -> Error {
    broken("the server closed the connection").with_unknown_outcome()
}

struct Task {
    server: Arc<Server>,
    key: LockKey,
    id: u64,
    engine: Engine,
    news: Arc<Mutex<News>>,
    /// When the last ping left that was answered.
    answered: Moment,
}

/// A statement that waits for the row, and who waits for its result.
type Statement = (
    Reply<Option<u64>>,
    Pin<Box<dyn Future<Output = Result<Option<u64>>> + Send>>,
);

impl Task {
    async fn run(
        mut self,
        mut inbox: mpsc::UnboundedReceiver<Command>,
        mut closed: watch::Receiver<bool>,
    ) {
        let mut statement: Option<Statement> = None;
        loop {
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(Command::Lock { limit, reply }) => {
                        statement = Some((reply, Box::pin(self.lock_row(limit))));
                    }
                    Some(Command::NextToken { reply }) => {
                        let next = || self.server.next_token(self.id, &self.key);
                        drop(reply.send(self.server.wire.send(next).await));
                    }
                    Some(Command::Release { reply }) => {
                        // Cancels the statement.
                        statement = None;
                        let close = || self.server.close(self.id, &self.key);
                        let held = self.server.wire.call(Request::Release, close).await;
                        drop(reply.send(held.map(released)));
                    }
                    None => {
                        // Cut off, the server finds out by its keepalive.
                        let close = || self.server.close(self.id, &self.key);
                        drop(self.server.wire.send(close).await);
                        return;
                    }
                },
                result = result(&mut statement), if statement.is_some() => {
                    if let Some((reply, _)) = statement.take() {
                        // Who gave up has told the lease to release, which comes next.
                        drop(reply.send(result));
                    }
                }
                () = closing(&mut closed), if !self.server.wire.is_cut() => break,
                () = tokio::time::sleep(KEEPALIVE / 6) => self.ping().await,
            }
        }
        let mut news = lock(&self.news);
        news.closed = true;
        if let Some(control) = news.control.take() {
            control.lose(LostReason::SessionEnded);
        }
    }

    fn lock_row(
        &self,
        limit: Option<Duration>,
    ) -> impl Future<Output = Result<Option<u64>>> + Send + 'static {
        let (server, key, id) = (Arc::clone(&self.server), self.key.clone(), self.id);
        async move {
            let select = || server.lock_row(id, &key, limit.is_some());
            match server.wire.call(Request::Acquire, select).await? {
                Answer::Busy => Ok(None),
                Answer::Closed => Err(gone()),
                Answer::Locked(token) => Ok(Some(token)),
                Answer::Waits(granted) => {
                    // `lock_timeout` of the server; the release that follows empties the queue.
                    match tokio::time::timeout(limit.unwrap_or_default(), granted).await {
                        Ok(granted) => granted.map(Some).map_err(|_| gone()),
                        Err(_) => Ok(None),
                    }
                }
            }
        }
    }

    /// A connection that does not answer is in doubt for half of the time after which the server
    /// closes it.
    async fn ping(&mut self) {
        let sent = self.engine.now();
        let ping = self
            .server
            .wire
            .call(Request::Renew, || self.server.ping(self.id));
        let reply = tokio::time::timeout(KEEPALIVE / 6, ping).await;
        let mut news = lock(&self.news);
        match reply.unwrap_or_else(|_| Err(gone())) {
            Ok(true) => {
                self.answered = sent;
                if let (Some(_), Some(control)) = (news.doubt.take(), &news.control) {
                    control.confirm();
                }
            }
            // The loop hears of it.
            Ok(false) => {}
            Err(_) => {
                let deadline = self.answered + KEEPALIVE / 2;
                news.doubt = Some(deadline);
                if let Some(control) = &news.control {
                    control.limit(deadline);
                }
            }
        }
    }
}

async fn result(statement: &mut Option<Statement>) -> Result<Option<u64>> {
    match statement {
        Some((_, statement)) => statement.await,
        None => std::future::pending().await,
    }
}

fn released(held: bool) -> Released {
    if held {
        Released::Clean
    } else {
        Released::AlreadyLost
    }
}

async fn closing(closed: &mut watch::Receiver<bool>) {
    drop(closed.wait_for(|closed| *closed).await);
}
