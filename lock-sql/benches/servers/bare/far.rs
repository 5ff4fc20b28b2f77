use std::sync::mpsc as sync_mpsc;
use std::thread;

use tokio::sync::{mpsc, oneshot};

use super::{Bare, Means};
use crate::locks::{Mode, runtime};
use crate::server::Database;

/// One in a thread of its own, as the connections of the locks are.
pub(crate) struct Far {
    commands: mpsc::UnboundedSender<Command>,
}

struct Command {
    what: What,
    taken: oneshot::Sender<()>,
    /// Comes when the lock is to be freed, and is told when it is.
    release: oneshot::Receiver<oneshot::Sender<()>>,
}

enum What {
    Pair(Mode, u32),
    SelectOne,
}

impl Far {
    pub(crate) fn open(database: Database, url: &str, means: Means) -> Self {
        Self::open_many(database, url, means, 1).pop().unwrap()
    }

    /// Several in one thread, on one pool.
    pub(crate) fn open_many(
        database: Database,
        url: &str,
        means: Means,
        count: usize,
    ) -> Vec<Self> {
        let (tell, told) = sync_mpsc::channel();
        let url = url.to_owned();
        thread::spawn(move || {
            runtime().block_on(async {
                let first = Bare::open(database, &url, means).await;
                let others: Vec<_> = (1..count).map(|_| first.another()).collect();
                let tasks: Vec<_> = std::iter::once(first)
                    .chain(others)
                    .map(|bare| {
                        let (commands, received) = mpsc::unbounded_channel();
                        tell.send(Self { commands }).unwrap();
                        tokio::spawn(serve(bare, received))
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
        });
        told.iter().take(count).collect()
    }

    pub(crate) async fn pair(&self, mode: Mode, key: u32) {
        let (taken, is_taken) = oneshot::channel();
        let (let_go, release) = oneshot::channel();
        let what = What::Pair(mode, key);
        self.send(what, taken, release);
        is_taken.await.unwrap();
        let (freed, is_freed) = oneshot::channel();
        let_go.send(freed).unwrap();
        is_freed.await.unwrap();
    }

    pub(crate) async fn select_one(&self) {
        let (taken, is_taken) = oneshot::channel();
        let (_let_go, release) = oneshot::channel();
        self.send(What::SelectOne, taken, release);
        is_taken.await.unwrap();
    }

    fn send(
        &self,
        what: What,
        taken: oneshot::Sender<()>,
        release: oneshot::Receiver<oneshot::Sender<()>>,
    ) {
        let sent = self.commands.send(Command {
            what,
            taken,
            release,
        });
        assert!(sent.is_ok());
    }
}

async fn serve(mut bare: Bare, mut commands: mpsc::UnboundedReceiver<Command>) {
    while let Some(command) = commands.recv().await {
        let Command {
            what,
            taken,
            release,
        } = command;
        match what {
            What::Pair(mode, key) => {
                let mut freed = None;
                let between = async || {
                    taken.send(()).unwrap();
                    freed = Some(release.await.unwrap());
                };
                bare.pair(mode, key, between).await;
                freed.unwrap().send(()).unwrap();
            }
            What::SelectOne => {
                bare.select_one().await;
                taken.send(()).unwrap();
            }
        }
    }
}
