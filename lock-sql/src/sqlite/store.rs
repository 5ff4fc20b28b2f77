use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lock_core::admin::LockInfo;
use lock_core::engine::{Engine, LeaseId};
use lock_core::{LeaseState, LockKey, Released, RenewalRequest};

use super::clocks::Clocks;
use super::desk::{Desk, MAX_KEYS};
use super::open::Place;
use super::transact::Transactor;
use super::work::Reads;
use crate::config::SqliteConfig;
use crate::dialect::sqlite::{Durability, Statements};
use crate::error::{Cause, Failure};
use crate::live::Live;
use crate::store::{Seen, Store, Taken};
use crate::table::{Claim, Locks, Record, Scene, Tokens};
use crate::wakes::Wakes;

/// The table in a SQLite file.
///
/// Renewals have a connection of their own: nobody's lease depends on how long the others queue. It
/// does not wait for the disk: no lease outlives the boot, so a machine that crashes ends all of
/// them, and the tokens were stored by the other connection before.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    desk: Arc<Desk>,
    renewals: Arc<Desk>,
    wakes: Arc<Wakes>,
}

impl SqliteStore {
    pub(crate) fn new(
        config: &SqliteConfig,
        engine: &Engine,
        live: &Arc<Live>,
    ) -> Result<Self, Cause> {
        let path = std::path::absolute(&config.path);
        let path = path.map_err(|e| super::trouble::opening(&config.path, e))?;
        let statements = Statements::new(config.table.clone());
        let (creates_directory, seen) = (config.creates_directory, Mutex::default());
        let place = Arc::new(Place {
            path,
            creates_directory,
            statements,
            seen,
        });
        let clocks = Clocks::new(engine.clone())?;
        let desk = |durability| {
            let transactor =
                Transactor::new(&place, engine, &clocks, live, durability, config.retention);
            Desk::new(engine.clone(), transactor, config.busy_timeout)
        };
        Ok(Self {
            desk: desk(Durability::Every),
            renewals: desk(Durability::Lazy),
            wakes: Arc::default(),
        })
    }

    /// Opens the file and finds or makes the table.
    pub(crate) async fn open(&self) -> Result<(), Failure> {
        self.desk.read(Reads::Keys(Vec::new()), |_| ()).await
    }

    /// Changes one record.
    async fn change<T: Send + 'static>(
        &self,
        key: &LockKey,
        act: impl FnOnce(&mut Record, &Scene) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.desk.change(vec![key.clone()], on(key, act)).await
    }

    /// Looks at one record.
    async fn read<T: Send + 'static>(
        &self,
        key: &LockKey,
        act: impl FnOnce(&mut Record, &Scene) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.desk
            .read(Reads::Keys(vec![key.clone()]), on(key, act))
            .await
    }

    async fn renew_some(&self, due: &[RenewalRequest]) -> Result<Vec<LeaseState>, Failure> {
        let due = due.to_vec();
        let keys = due.iter().map(|request| request.key.clone()).collect();
        let renew = move |locks: &mut Locks| {
            let scene = locks.scene;
            let renew = |RenewalRequest { key, id, ttl, .. }: &RenewalRequest| {
                locks.record(key).renew(*id, *ttl, &scene)
            };
            due.iter().map(renew).collect()
        };
        self.renewals.change(keys, renew).await
    }
}

fn on<T>(
    key: &LockKey,
    act: impl FnOnce(&mut Record, &Scene) -> T + Send + 'static,
) -> impl FnOnce(&mut Locks) -> T + Send + 'static {
    let key = key.clone();
    move |locks: &mut Locks| {
        let scene = locks.scene;
        act(locks.record(&key), &scene)
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn take(&self, key: &LockKey, claim: Claim) -> Result<Taken, Failure> {
        let take = move |record: &mut Record, scene: &Scene| {
            let taken = record.take(&claim, scene);
            if let (Err(_), Some(ticket)) = (&taken, claim.ticket) {
                record.enqueue(ticket, scene);
            }
            taken
        };
        self.change(key, take).await
    }

    async fn look(&self, key: &LockKey, claim: &Claim) -> Result<Seen, Failure> {
        let claim = claim.clone();
        self.read(key, move |record, scene| record.look(&claim, scene))
            .await
    }

    fn has_queue(&self) -> bool {
        true
    }

    async fn dequeue(&self, key: &LockKey, ticket: LeaseId) -> Result<(), Failure> {
        self.change(key, move |record, scene| record.dequeue(ticket, scene))
            .await
    }

    fn wakes(&self) -> &Arc<Wakes> {
        &self.wakes
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
        self.change(key, move |record, scene| record.release(id, scene))
            .await
    }

    async fn downgrade(&self, key: &LockKey, id: LeaseId) -> Result<LeaseState, Failure> {
        self.change(key, move |record, scene| record.downgrade(id, scene))
            .await
    }

    async fn reserve(&self, key: &LockKey, id: LeaseId) -> Result<Option<Tokens>, Failure> {
        self.change(key, move |record, scene| record.reserve(id, scene))
            .await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Failure> {
        self.desk
            .read(Reads::Prefix(prefix.to_owned()), |locks| locks.infos())
            .await
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>, Failure> {
        let name = key.clone();
        self.read(key, move |record, scene| record.info(&name, scene))
            .await
    }

    async fn break_all(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>, Failure> {
        let (name, reason) = (key.clone(), reason.to_owned());
        let take_away = move |record: &mut Record, scene: &Scene| {
            let broken = record.info(&name, scene);
            record.break_all(&reason, scene);
            broken
        };
        self.change(key, take_away).await
    }
}
