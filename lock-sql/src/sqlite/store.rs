use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lock_core::admin::LockInfo;
use lock_core::engine::{Engine, LeaseId};
use lock_core::{LeaseState, LockKey, Released, RenewalRequest};

use super::clocks::Clocks;
use super::open::Place;
use super::transact::Transactor;
use super::work::Reads;
use super::write_queue::{MAX_KEYS, WriteQueue};
use crate::config::SqliteConfig;
use crate::dialect::sqlite::{Durability, Statements};
use crate::error::{Cause, Failure};
use crate::held_leases::HeldLeases;
use crate::release_notifier::ReleaseNotifier;
use crate::store::{Seen, Store, Taken};
use crate::table::{Claim, Locks, ReadContext, Record, Tokens};

/// The table in a SQLite file.
///
/// Renewals have their own connection: no lease depends on how long other requests queue. It does
/// not wait for the disk: no lease outlives the boot, so a machine crash ends all of them, and the
/// tokens were stored by the other connection before.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    write_queue: Arc<WriteQueue>,
    renewals: Arc<WriteQueue>,
    release_notifier: Arc<ReleaseNotifier>,
}

impl SqliteStore {
    pub(crate) fn new(
        config: &SqliteConfig,
        engine: &Engine,
        held_leases: &Arc<HeldLeases>,
    ) -> Result<Self, Cause> {
        let path = std::path::absolute(&config.path);
        let path = path.map_err(|e| super::db_error::opening(&config.path, e))?;
        let statements = Statements::new(config.table.clone());
        let (creates_directory, seen) = (config.creates_directory, Mutex::default());
        let place = Arc::new(Place {
            path,
            creates_directory,
            statements,
            seen,
        });
        let clocks = Clocks::new(engine.clone())?;
        let write_queue = |durability| {
            let transactor = Transactor::new(
                &place,
                engine,
                &clocks,
                held_leases,
                durability,
                config.retention,
            );
            WriteQueue::new(engine.clone(), transactor, config.busy_timeout)
        };
        Ok(Self {
            write_queue: write_queue(Durability::Every),
            renewals: write_queue(Durability::Lazy),
            release_notifier: Arc::default(),
        })
    }

    /// Opens the file and finds or makes the table.
    pub(crate) async fn open(&self) -> Result<(), Failure> {
        self.write_queue.read(Reads::Keys(Vec::new()), |_| ()).await
    }

    /// Changes one record.
    async fn change<T: Send + 'static>(
        &self,
        key: &LockKey,
        act: impl FnOnce(&mut Record, &ReadContext) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.write_queue
            .change(vec![key.clone()], on(key, act))
            .await
    }

    /// Looks at one record.
    async fn read<T: Send + 'static>(
        &self,
        key: &LockKey,
        act: impl FnOnce(&mut Record, &ReadContext) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.write_queue
            .read(Reads::Keys(vec![key.clone()]), on(key, act))
            .await
    }

    async fn renew_some(&self, due: &[RenewalRequest]) -> Result<Vec<LeaseState>, Failure> {
        let due = due.to_vec();
        let keys = due.iter().map(|request| request.key.clone()).collect();
        let renew = move |locks: &mut Locks| {
            let read_context = locks.read_context;
            let renew = |RenewalRequest { key, id, ttl, .. }: &RenewalRequest| {
                locks.record(key).renew(*id, *ttl, &read_context)
            };
            due.iter().map(renew).collect()
        };
        self.renewals.change(keys, renew).await
    }
}

fn on<T>(
    key: &LockKey,
    act: impl FnOnce(&mut Record, &ReadContext) -> T + Send + 'static,
) -> impl FnOnce(&mut Locks) -> T + Send + 'static {
    let key = key.clone();
    move |locks: &mut Locks| {
        let read_context = locks.read_context;
        act(locks.record(&key), &read_context)
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn take(&self, key: &LockKey, claim: Claim) -> Result<Taken, Failure> {
        let take = move |record: &mut Record, read_context: &ReadContext| {
            let taken = record.take(&claim, read_context);
            if let (Err(_), Some(ticket)) = (&taken, claim.ticket) {
                record.enqueue(ticket, read_context);
            }
            taken
        };
        self.change(key, take).await
    }

    async fn look(&self, key: &LockKey, claim: &Claim) -> Result<Seen, Failure> {
        let claim = claim.clone();
        self.read(key, move |record, read_context| {
            record.look(&claim, read_context)
        })
        .await
    }

    fn has_queue(&self) -> bool {
        true
    }

    async fn dequeue(&self, key: &LockKey, ticket: LeaseId) -> Result<(), Failure> {
        self.change(key, move |record, read_context| {
            record.dequeue(ticket, read_context);
        })
        .await
    }

    fn release_notifier(&self) -> &Arc<ReleaseNotifier> {
        &self.release_notifier
    }

    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState, Failure>> {
        let mut answers = Vec::with_capacity(due.len());
        for some in due.chunks(MAX_KEYS) {
            match self.renew_some(some).await {
                Ok(states) => answers.extend(states.into_iter().map(Ok)),
                Err(failure) => answers.extend(some.iter().map(|_| Err(failure.clone()))),
            }
        }
        answers
    }

    async fn release(&self, key: &LockKey, id: LeaseId) -> Result<Released, Failure> {
        self.change(key, move |record, read_context| {
            record.release(id, read_context)
        })
        .await
    }

    async fn downgrade(&self, key: &LockKey, id: LeaseId) -> Result<LeaseState, Failure> {
        self.change(key, move |record, read_context| {
            record.downgrade(id, read_context)
        })
        .await
    }

    async fn reserve(&self, key: &LockKey, id: LeaseId) -> Result<Option<Tokens>, Failure> {
        self.change(key, move |record, read_context| {
            record.reserve(id, read_context)
        })
        .await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Failure> {
        self.write_queue
            .read(Reads::Prefix(prefix.to_owned()), |locks| locks.infos())
            .await
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>, Failure> {
        let name = key.clone();
        self.read(key, move |record, read_context| {
            record.info(&name, read_context)
        })
        .await
    }

    async fn break_all(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>, Failure> {
        let (name, reason) = (key.clone(), reason.to_owned());
        let take_away = move |record: &mut Record, read_context: &ReadContext| {
            let broken = record.info(&name, read_context);
            record.break_all(&reason, read_context);
            broken
        };
        self.change(key, take_away).await
    }
}
