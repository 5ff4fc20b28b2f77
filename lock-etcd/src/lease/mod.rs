mod adoption;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use polylock_core::engine::LeaseId;
use polylock_core::{
    AcquireRequest, Error, FencingToken, Lease, LeaseControl, LeaseState, Liveness, LostReason,
    Mode, Released, Renewal, Renewer, Result,
};
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use crate::error::{EtcdFailure, RETRY_BACKOFF};
use crate::queue::{EtcdContender, EtcdEntry, values_of};
use crate::server_lease::ServerLease;
use crate::store::{ContenderList, EtcdStore, by_creation, gets, list, revision};
use crate::tokens::token;

/// One contender: a key in the directory of its lock, attached to a lease of etcd.
pub(crate) struct EtcdLease {
    pub(crate) store: Arc<EtcdStore>,
    pub(crate) directory: String,
    pub(crate) id: LeaseId,
    /// The ttl of the request.
    pub(crate) ttl: Duration,
    /// Whether the engine renews it, so that it may share its lease of etcd.
    pub(crate) is_shared: bool,
    /// Whether another process has created the key.
    is_adopter: bool,
    state: Mutex<EtcdLeaseState>,
    /// A request to create or adopt the key has ended.
    settled: Notify,
    /// Held to write what is stored at the key.
    pub(crate) writing: tokio::sync::Mutex<()>,
}

struct EtcdLeaseState {
    key: KnownKey,
    entry: EtcdEntry,
    /// The leases of etcd that the key may be attached to: more than one after a write without an answer.
    leases: Vec<Arc<ServerLease>>,
    /// The lease of etcd of a create request that had no reply, and may still arrive.
    late_create: Option<Arc<ServerLease>>,
    hand_overs: u8,
    /// How many tasks adopt the key for this acquisition.
    adoptions_under_way: usize,
    /// Of the present holder, once there is one.
    control: Option<LeaseControl>,
    /// How many holders there were, with the present one.
    holders: u64,
    /// A release is under way, or the last renewal, for the rest of a min hold. The core repeats them until the
    /// key is deleted or has a lease of etcd of its own.
    is_released: bool,
    /// A request to delete the key had no answer, and no release has reported that its outcome is unknown.
    is_deleted_perhaps: bool,
}

/// What is known of the key of a contender.
#[derive(Clone)]
pub(crate) enum KnownKey {
    /// Nothing was sent that could have created it.
    Never,
    /// A request to create it is under way.
    Creating,
    /// It may be there.
    Unknown,
    /// It was there, with these revisions.
    At(KeyRevisions),
    /// It was deleted, or another process has it.
    Gone,
}

impl KnownKey {
    /// Whether more is known than that the key was there with this revision.
    fn is_later_than(&self, mod_revision: i64) -> bool {
        match self {
            Self::At(own) => own.mod_revision > mod_revision,
            Self::Gone => true,
            Self::Never | Self::Creating | Self::Unknown => false,
        }
    }
}

/// The key of a contender and when it was written.
#[derive(Clone)]
pub(crate) struct KeyRevisions {
    pub(crate) name: String,
    pub(crate) create_revision: i64,
    pub(crate) mod_revision: i64,
}

impl EtcdLease {
    /// An acquisition of which nothing is sent yet.
    pub(crate) fn new(
        store: &Arc<EtcdStore>,
        request: &AcquireRequest,
        id: LeaseId,
        lease: Option<Arc<ServerLease>>,
    ) -> Arc<Self> {
        let entry = EtcdEntry {
            id,
            mode: request.mode(),
            adoptions: 0,
            label: request.label().encode(),
        };
        let state = EtcdLeaseState {
            key: KnownKey::Never,
            entry,
            leases: lease.into_iter().collect(),
            late_create: None,
            hand_overs: 0,
            adoptions_under_way: 0,
            control: None,
            holders: 0,
            is_released: false,
            is_deleted_perhaps: false,
        };
        let lease = Arc::new(Self {
            store: Arc::clone(store),
            directory: store.directory(request.key()),
            id,
            ttl: request.ttl(),
            is_shared: request.renewal() == Renewal::Automatic,
            is_adopter: request.ticket().is_some(),
            state: Mutex::new(state),
            settled: Notify::new(),
            writing: tokio::sync::Mutex::default(),
        });
        store.add(&lease);
        lease
    }

    /// The name of the key that an acquisition creates.
    pub(crate) fn name(&self) -> String {
        self.id.to_hex()
    }

    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.directory)
    }

    fn state(&self) -> MutexGuard<'_, EtcdLeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn key(&self) -> KnownKey {
        self.state().key.clone()
    }

    /// The key, if it was seen; the path to it.
    pub(crate) fn known_path(&self) -> Option<String> {
        match &self.state().key {
            KnownKey::At(revisions) => Some(self.path(&revisions.name)),
            _ => None,
        }
    }

    /// Whether its key was deleted, and created again by a late request. Contenders that came between the two
    /// have larger tokens.
    pub(crate) fn is_replaced(&self, contenders: &[EtcdContender]) -> bool {
        let state = self.state();
        let KnownKey::At(own) = &state.key else {
            return false;
        };
        let listed = contenders.iter().find(|listed| listed.name == own.name);
        listed.is_some_and(|listed| listed.create_revision != own.create_revision)
    }

    /// The lease of etcd that the key is attached to, if that is certain.
    pub(crate) fn server_lease(&self) -> Option<Arc<ServerLease>> {
        match &self.state().leases[..] {
            [lease] => Some(Arc::clone(lease)),
            _ => None,
        }
    }

    pub(crate) fn token(&self) -> Result<FencingToken, EtcdFailure> {
        let state = self.state();
        let KnownKey::At(revisions) = &state.key else {
            return Err(EtcdFailure::Protocol("a holder without a key"));
        };
        let token = token(
            revisions.create_revision,
            state.entry.adoptions,
            state.hand_overs,
        );
        token.ok_or(EtcdFailure::Protocol("a revision beyond 2^47"))
    }

    /// Sends the request that creates the key, on the engine, so that its outcome is known even if the
    /// caller is dropped.
    pub(crate) fn create(
        self: &Arc<Self>,
    ) -> oneshot::Receiver<Result<ContenderList, EtcdFailure>> {
        let former = std::mem::replace(&mut self.state().key, KnownKey::Creating);
        let was_unknown = matches!(former, KnownKey::Unknown);
        let (done, answer) = oneshot::channel();
        let lease = Arc::clone(self);
        self.store.engine.spawn(async move {
            let created = lease.try_create().await;
            let key = match &created {
                Ok(ContenderList { contenders, .. }) => {
                    let own = contenders.iter().find(|own| own.name == lease.name());
                    own.map_or(KnownKey::Unknown, |own| KnownKey::At(own.into()))
                }
                Err(failure) if was_unknown || failure.is_ambiguous() => KnownKey::Unknown,
                Err(_) => KnownKey::Never,
            };
            // A full database has answered, so that this request does not arrive later.
            let is_lost = |failure: &EtcdFailure| failure.is_ambiguous() && !failure.is_full();
            let mut state = lease.state();
            state.key = key;
            if created.as_ref().is_err_and(is_lost) {
                state.late_create = state.leases.first().cloned();
            }
            drop(state);
            lease.settled.notify_waiters();
            drop(done.send(created));
        });
        answer
    }

    async fn try_create(&self) -> Result<ContenderList, EtcdFailure> {
        let lease = self.server_lease().ok_or(EtcdFailure::LeaseGone)?;
        let (key, value) = (self.path(&self.name()), self.state().entry.encode());
        let options = PutOptions::new().with_lease(lease.id);
        let all = || TxnOp::get(self.directory.as_str(), Some(by_creation()));
        // A repeated request finds what the first one has created.
        let txn = Txn::new()
            .when([Compare::create_revision(key.as_str(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key, value, Some(options)), all()])
            .or_else([all()]);
        let created = match self.store.connection.txn(txn).await {
            Err(failure) if failure.is_full() => return self.created_at_quota(failure).await,
            created => created?,
        };
        let listed = gets(&created).pop();
        let listed = listed.ok_or(EtcdFailure::Protocol("a transaction without its results"))?;
        let mut listing = ContenderList::of(&listed, &self.directory);
        // That of the whole transaction, with its own write.
        listing.revision = revision(created.header());
        Ok(listing)
    }

    /// Lists the directory if the key was created all the same: etcd executes the request that reaches its
    /// quota, and then answers that it is full.
    async fn created_at_quota(&self, failure: EtcdFailure) -> Result<ContenderList, EtcdFailure> {
        let connection = &self.store.connection;
        let (directory, name) = (self.directory.as_str(), self.name());
        let path = self.path(&name);
        // A full database refuses many requests, and the queue may be long.
        let read = connection.send(|mut client| async move { client.get(path, None).await });
        match read.await {
            Ok(found) if found.kvs().is_empty() => return Err(failure.without_effect()),
            Ok(_) => {}
            Err(_) => return Err(failure),
        }
        let listed = connection.send(|client| list(client, directory));
        let Ok((listing, _)) = listed.await else {
            return Err(failure);
        };
        match listing.contenders.iter().any(|own| own.name == name) {
            true => Ok(listing),
            false => Err(failure.without_effect()),
        }
    }

    /// Notes that the key may be attached to another lease of etcd; false if that is known.
    pub(crate) fn may_be_attached(&self, lease: &Arc<ServerLease>) -> bool {
        let mut state = self.state();
        let is_known = state.leases.iter().any(|known| known.id == lease.id);
        if !is_known {
            state.leases.push(Arc::clone(lease));
        }
        !is_known
    }

    /// Attaches the key to a lease of etcd.
    pub(crate) async fn write(&self, lease: &Arc<ServerLease>) -> Result<LeaseState, EtcdFailure> {
        let _one_writes = self.writing.lock().await;
        self.put(lease, None).await
    }

    /// Makes the lock a shared one, attached to the lease of etcd that it has.
    async fn write_shared(&self) -> Result<LeaseState, EtcdFailure> {
        let _one_writes = self.writing.lock().await;
        // Not before: a renewal may have moved the key meanwhile, and the former lease may end first. Of several,
        // the last is the one that was written last.
        let attached = self.state().leases.last().cloned();
        let attached = attached.ok_or(EtcdFailure::Protocol("a holder without a lease"))?;
        self.put(&attached, Some(Mode::Shared)).await
    }

    /// Attaches the key to a lease of etcd, and makes it one of another mode if there is one. For the task that
    /// holds `writing`. The write is refused if another has come before it, so that a late write undoes none.
    pub(crate) async fn put(
        &self,
        lease: &Arc<ServerLease>,
        mode: Option<Mode>,
    ) -> Result<LeaseState, EtcdFailure> {
        let mut is_other = false;
        loop {
            is_other |= self.may_be_attached(lease);
            let (key, value) = {
                let mut state = self.state();
                if let Some(mode) = mode {
                    state.entry.mode = mode;
                }
                (state.key.clone(), state.entry.encode())
            };
            let KnownKey::At(mut revisions) = key else {
                return Ok(LeaseState::Lost(LostReason::Broken));
            };
            let path = self.path(&revisions.name);
            let replaced = self
                .store
                .replace(&path, revisions.mod_revision, &value, lease.id);
            let replaced = replaced.await.inspect_err(|failure| {
                if matches!(failure, EtcdFailure::LeaseGone) {
                    lease.retire();
                }
                if is_other && !failure.is_ambiguous() {
                    self.state().leases.retain(|known| known.id != lease.id);
                }
            });
            let (mod_revision, is_written) = match replaced? {
                Ok(revision) => (revision, true),
                Err(stored) => {
                    // An earlier request that had no reply has written the same.
                    let is_same = stored.as_ref().is_some_and(|stored| {
                        stored.lease() == lease.id && stored.value() == value.as_bytes()
                    });
                    let found = stored.map(|stored| EtcdContender::read(&revisions.name, &stored));
                    if let Some(lost) = self.loss(found.as_ref()).await {
                        return Ok(lost);
                    }
                    (found.map_or(0, |found| found.mod_revision), is_same)
                }
            };
            revisions.mod_revision = mod_revision;
            let mut state = self.state();
            // A late attempt to adopt the key has written it since, and has attached it to a lease of its own.
            if state.key.is_later_than(mod_revision) {
                continue;
            }
            state.key = KnownKey::At(revisions);
            if is_written {
                let former = std::mem::replace(&mut state.leases, vec![Arc::clone(lease)]);
                drop(state);
                // Not in the mutex: the last one to have it revokes it.
                drop(former);
                return Ok(LeaseState::Held);
            }
        }
    }

    /// Notes that the lock is renewed for the last time.
    pub(crate) fn begin_last_renewal(&self) {
        self.state().is_released = true;
    }

    /// Whether its holder has lost the lock and keeps the guard, or has left the lock without a release, so that
    /// the key has to end with its lease of etcd.
    pub(crate) fn has_lost_holder(&self) -> bool {
        let Some((control, holder)) = self.holder() else {
            return false;
        };
        // Not in the mutex: it may drop the last reference to the holder.
        control.is_lost_or_abandoned()
            // That holder may be gone because the lock was handed over or released meanwhile.
            && self.holder().is_some_and(|(_, present)| present == holder)
    }

    /// The control and the number of the present holder, unless its release has begun.
    fn holder(&self) -> Option<(LeaseControl, u64)> {
        let state = self.state();
        let is_held = matches!(state.key, KnownKey::At(_)) && !state.is_released;
        let control = state.control.clone().filter(|_| is_held)?;
        Some((control, state.holders))
    }

    /// Stops the renewals of its lease of etcd.
    pub(crate) fn retire(&self) {
        let state = self.state();
        let leases = state.leases.iter().chain(&state.late_create);
        leases.for_each(|lease| lease.retire());
    }

    /// Returns the loss, unless `found` is this contender. A key with its id that a late request has
    /// created again does not count: it has another token.
    pub(crate) async fn loss(&self, found: Option<&EtcdContender>) -> Option<LeaseState> {
        let (key, attached) = {
            let state = self.state();
            (state.key.clone(), state.leases.first().cloned())
        };
        let reason = match (found, key, attached) {
            (Some(found), ..) if found.id() != Some(self.id) => LostReason::Stolen,
            (Some(found), KnownKey::At(own), _) if own.create_revision == found.create_revision => {
                return None;
            }
            (_, _, Some(attached)) if self.store.has_ended(&attached).await => LostReason::Stolen,
            // The key was deleted although its lease of etcd lives.
            _ => LostReason::Broken,
        };
        self.set_gone();
        Some(LeaseState::Lost(reason))
    }

    /// A request that is late may create it once more, for as long as the lease of etcd lasts.
    fn set_gone(&self) {
        let mut state = self.state();
        state.key = KnownKey::Gone;
        let late = state.late_create.take();
        drop(state);
        if let Some(lease) = late {
            lease.retire();
        }
    }

    /// Deletes the key if it is still this contender's, with retries until it is certainly gone.
    async fn delete(&self) -> Result<Released, EtcdFailure> {
        loop {
            if !matches!(self.key(), KnownKey::At(_)) {
                self.settled().await;
            }
            let path = match self.key() {
                KnownKey::Never | KnownKey::Gone => return self.found_gone(),
                KnownKey::At(revisions) => self.path(&revisions.name),
                KnownKey::Unknown if self.is_adopter => match self.look_for_adopted().await? {
                    Some(path) => path,
                    None => return self.found_gone(),
                },
                KnownKey::Unknown => self.path(&self.name()),
                KnownKey::Creating => continue,
            };
            match self.store.delete(&path, self.id).await {
                Ok(is_deleted) => return self.deleted(is_deleted),
                Err(failure) if failure.is_retryable() || failure.is_of_connection() => {
                    if failure.is_ambiguous() {
                        self.state().is_deleted_perhaps = true;
                    }
                    sleep(RETRY_BACKOFF).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// The outcome of a release that has nothing to delete. After a deletion without a reply, it is unknown
    /// whether that deletion or something else ended the key.
    fn found_gone(&self) -> Result<Released, EtcdFailure> {
        match std::mem::take(&mut self.state().is_deleted_perhaps) {
            true => Err(EtcdFailure::Unconfirmed),
            false => Ok(Released::AlreadyLost),
        }
    }

    fn deleted(&self, is_deleted: bool) -> Result<Released, EtcdFailure> {
        // A key that was never seen may not be gone: a request that creates or adopts it may still arrive.
        let may_arrive = self.is_adopter || self.state().late_create.is_some();
        if is_deleted || !may_arrive || matches!(self.key(), KnownKey::At(_)) {
            self.set_gone();
        }
        match is_deleted {
            true => Ok(Released::Clean),
            false => self.found_gone(),
        }
    }

    /// Waits until it is known what became of the request that creates the key, and until no task adopts it.
    async fn settled(&self) {
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            // Listen before looking, or the answer could come in between.
            settled.as_mut().enable();
            let is_settled = {
                let state = self.state();
                !matches!(state.key, KnownKey::Creating) && state.adoptions_under_way == 0
            };
            if is_settled {
                return;
            }
            settled.await;
        }
    }
}

impl EtcdStore {
    /// Deletes a key if the contender with this id is there; whether it was.
    pub(crate) async fn delete(&self, path: &str, id: LeaseId) -> Result<bool, EtcdFailure> {
        let (above, below) = values_of(id);
        let txn = Txn::new()
            .when([
                Compare::value(path, CompareOp::Greater, above),
                Compare::value(path, CompareOp::Less, below),
            ])
            .and_then([TxnOp::delete(path, None)]);
        Ok(self.connection.txn(txn).await?.succeeded())
    }
}

impl From<&EtcdContender> for KeyRevisions {
    fn from(contender: &EtcdContender) -> Self {
        Self {
            name: contender.name.clone(),
            create_revision: contender.create_revision,
            mod_revision: contender.mod_revision,
        }
    }
}

#[async_trait]
impl Lease for EtcdLease {
    fn liveness(&self) -> Liveness {
        Liveness::Renewed {
            id: self.id,
            renewer: Arc::clone(&self.store) as Arc<dyn Renewer>,
        }
    }

    /// etcd pushes no losses: a renewal detects them.
    fn attach(&self, control: LeaseControl) {
        let mut state = self.state();
        state.control = Some(control);
        state.holders += 1;
    }

    /// The key of the first holder has room for 255 more tokens.
    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        {
            let mut state = self.state();
            match state.hand_overs.checked_add(1) {
                Some(next) => state.hand_overs = next,
                None => return Ok(None),
            }
        }
        Ok(Some(self.token()?))
    }

    async fn downgrade(&self) -> Result<()> {
        let until = self.store.step();
        let failure = loop {
            match self.write_shared().await {
                Ok(LeaseState::Lost(reason)) => return Err(Error::lost(reason)),
                Ok(_) => return Ok(()),
                Err(failure) => {
                    if let Err(failure) = self.store.connection.pause(until, failure).await {
                        break failure;
                    }
                }
            }
        };
        // The entry is shared from here on: a renewal that moves the key writes that too.
        Err(Error::from(failure).with_unknown_outcome())
    }

    async fn release(&self) -> Result<Released> {
        self.state().is_released = true;
        self.delete().await.map_err(|failure| {
            let error = Error::from(failure);
            // A refused retry does not show whether the first deletion was executed.
            match std::mem::take(&mut self.state().is_deleted_perhaps) {
                true => error.with_unknown_outcome(),
                false => error,
            }
        })
    }
}

impl Drop for EtcdLease {
    /// A key that was not seen to be gone ends with its lease of etcd.
    fn drop(&mut self) {
        self.store.remove(self.id);
        if !matches!(self.key(), KnownKey::Never | KnownKey::Gone) {
            self.retire();
        }
    }
}

impl fmt::Debug for EtcdLease {
    /// Without the key, whose name is the id of the lease: with it, any client can release the lock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdLease")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}
