use polylock_core::admin::{LockAdmin, Record};
use polylock_core::engine::{LeaseId, OsEntropy};
use polylock_core::{
    DistributedLock, ErrorKind, Fencing, FencingToken, LockLifetime, Mode, Result,
};

use super::Case;

/// Something that a case needs and that a backend or its harness may lack.
///
/// A skip list names what is lacking; see [`conformance!`](crate::conformance!).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Need {
    /// Holders can be listed, inspected and broken.
    Admin,
    /// A lease can be given another id.
    Adoption,
    /// It has no local queue of its own.
    Bare,
    /// An exclusive lock can become a shared one.
    Downgrade,
    /// The harness can make a request arrive twice.
    Duplicates,
    /// Waiters are served in the order of their arrival.
    Fair,
    /// The harness can disturb requests.
    Faults,
    /// Holders have fencing tokens.
    Fencing,
    /// A lock ends with its ttl unless it is renewed.
    Lease,
    /// The harness can look into the store.
    Look,
    /// A key can have a limited number of holders.
    Permits,
    /// A holder can store a record beside its lock.
    Records,
    /// A key can have several holders, and no exclusive one beside them.
    Shared,
    /// The harness has a lock-taker.
    Taker,
}

impl Need {
    /// Whether the harness and the capabilities of its clients have it.
    pub(super) async fn is_met(self, case: &Case) -> bool {
        let client = case.client().await;
        let (capabilities, harness) = (client.capabilities(), case.harness());
        match self {
            Self::Admin => capabilities.admin,
            Self::Adoption => capabilities.tickets,
            Self::Bare => !capabilities.reentry,
            Self::Downgrade => capabilities.downgrade,
            Self::Duplicates => harness.faults().is_some_and(|faults| faults.duplicates()),
            Self::Fair => capabilities.fair,
            Self::Faults => harness.faults().is_some(),
            Self::Fencing => capabilities.fencing > Fencing::Unavailable,
            Self::Lease => capabilities.bound == LockLifetime::Lease,
            Self::Look => harness.look(&case.key()).await.is_some(),
            Self::Permits => capabilities.permits,
            Self::Records => !is_unsupported(&admin(&client).record(&case.key()).await),
            Self::Shared => capabilities.shared,
            Self::Taker => harness.taker().is_some(),
        }
    }

    /// Asserts that a missing need is not offered, and that its use is an error.
    pub(super) async fn assert_lacking(self, case: &Case) {
        let is_met = self.is_met(case).await;
        assert!(!is_met, "{self:?} is in the skip list, and is there");
        let (client, key) = (case.client().await, case.key());
        match self {
            Self::Admin => assert!(client.admin().is_none(), "it has an administration"),
            Self::Adoption => {
                let answer = adopted(case, &client).await;
                let offered = "adopt_lease is served although `capabilities().tickets` is false";
                assert!(is_unsupported(&answer), "{offered}: {answer:?}");
            }
            Self::Downgrade => {
                let mut guard = case.lock(&client, &key).await;
                let error = guard.downgrade().await.expect_err("it was downgraded");
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(guard.is_held(), "the refusal cost the lock");
                guard.release().await.expect("a held lock is released");
            }
            Self::Fencing => {
                let guard = case.lock(&client, &key).await;
                assert_eq!(guard.fencing_token(), None);
                guard.release().await.expect("a held lock is released");
            }
            Self::Lease => {
                let guard = case.lock(&client, &key).await;
                assert_eq!(guard.lease_id(), None, "it can be renewed by its id");
                let renewed = guard.renew_for(case.ttl()).await;
                let error = renewed.expect_err("it was extended");
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                if let Some(admin) = client.admin() {
                    let id = LeaseId::random(&OsEntropy::default());
                    let renewed = admin.renew_lease(&key, id, case.ttl()).await;
                    assert!(is_unsupported(&renewed), "{renewed:?}");
                    let released = admin.release_lease(&key, id).await;
                    assert!(is_unsupported(&released), "{released:?}");
                    assert!(is_unsupported(&adopted(case, &client).await));
                }
                assert!(guard.is_held(), "the refusal cost the lock");
                guard.release().await.expect("a held lock is released");
            }
            Self::Permits => {
                let limit = super::two();
                case.assert_refused(&*client, Mode::Permit { limit }).await;
            }
            Self::Records => {
                let record = Record::new(FencingToken::new(7), "nowhere to store it");
                let stored = admin(&client).write_record(&key, &record, case.ttl());
                assert!(is_unsupported(&stored.await));
            }
            Self::Shared => case.assert_refused(&*client, Mode::Shared).await,
            // What a harness lacks, or an order that is not promised, shows nowhere else.
            Self::Bare
            | Self::Duplicates
            | Self::Fair
            | Self::Faults
            | Self::Look
            | Self::Taker => {}
        }
    }
}

/// The outcome of adopting a lease that does not exist.
async fn adopted(case: &Case, locks: &dyn DistributedLock) -> Result<Option<FencingToken>> {
    let [id, new] = [(); 2].map(|()| LeaseId::random(&OsEntropy::default()));
    let admin = admin(locks);
    admin.adopt_lease(&case.key(), id, new, case.ttl()).await
}

fn is_unsupported<T>(answer: &Result<T>) -> bool {
    matches!(answer, Err(error) if error.kind() == ErrorKind::Unsupported)
}

/// The administration of a backend that has one.
pub(super) fn admin(locks: &dyn DistributedLock) -> &dyn LockAdmin {
    locks
        .admin()
        .expect("the capabilities promise an administration")
}
