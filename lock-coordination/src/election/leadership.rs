use std::ops::Deref;
use std::time::Duration;

use polylock_core::admin::Record;
use polylock_core::{
    Error, ErrorKind, FencingToken, Label, LockGuard, LostReason, LostSignal, Released, Result,
};

use super::role::ActiveTerm;
use super::{Election, leader};
use crate::requirements::{admin, token};

/// The leadership of this instance. Dropping it resigns in the background.
///
/// It dereferences to [`Term`], which has more methods. The example of [`Election`] uses it.
#[must_use = "dropping it resigns"]
#[derive(Debug)]
pub struct Leadership {
    // Dropped in this order: the term ends before the lock is released.
    active: ActiveTerm,
    term: Term,
    guard: LockGuard,
}

impl Leadership {
    /// `label` is what the server shows of this term alone.
    pub(super) fn begin(election: &Election, label: Label, guard: LockGuard) -> Result<Self> {
        let token = token(&*election.locks, &guard)?;
        let active = ActiveTerm::begin(election, &guard);
        let term = Term {
            election: election.clone(),
            number: active.number(),
            label,
            token,
            lost: guard.lost(),
        };
        Ok(Self {
            active,
            term,
            guard,
        })
    }

    /// The lock that makes this instance the leader.
    pub fn guard(&self) -> &LockGuard {
        &self.guard
    }

    /// Runs `work` for as long as this instance leads, as [`LockGuard::run`] does.
    ///
    /// # Errors
    ///
    /// [`Lost`](ErrorKind::Lost) if the lock was lost before `work` was done. `work` is dropped by then; it
    /// may have had effects.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`; the instance still leads.
    pub async fn run<W: Future>(&self, work: W) -> Result<W::Output> {
        self.guard.run(work).await
    }

    /// Resigns, so that the next candidate leads, and waits for the reply of the server.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](ErrorKind::Unavailable) if the server did not confirm it; see
    /// [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background; only the answer is lost.
    pub async fn resign(self) -> Result<Released> {
        let Self { active, guard, .. } = self;
        drop(active);
        guard.release().await
    }
}

impl Deref for Leadership {
    type Target = Term;

    fn deref(&self) -> &Term {
        &self.term
    }
}

/// One term of a leader. It can be cloned and passed to the tasks of the leader, and does not keep the
/// lead.
///
/// The example of [`Election::lead`] uses it.
#[derive(Clone, Debug)]
pub struct Term {
    election: Election,
    number: u64,
    label: Label,
    token: FencingToken,
    lost: LostSignal,
}

impl Term {
    /// The token to send with every write of the leader; larger than that of every earlier leader.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }

    /// The signal that the lock is lost, which fires before another instance can be elected; see
    /// [`LostSignal`]. It does not fire after a resignation: a task that was spawned for the term waits for
    /// [`ended`](Self::ended).
    #[must_use]
    pub fn lost(&self) -> LostSignal {
        self.lost.clone()
    }

    /// Whether this instance leads in this term, by the clock of this moment; for a check before each step
    /// of the work.
    ///
    /// It stays false in a later term of the same instance, unlike [`Election::leads`], and is false at once
    /// after a suspension of the machine beyond the end of the lease.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.election.role.is_current(self.number) && self.lost.reason().is_none()
    }

    /// Waits until the term has ended by a loss, a resignation or a drop; for tasks that the leader
    /// spawned.
    ///
    /// It is ready before the lock is released, and at a loss when [`lost`](Self::lost) fires.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; the end is final, and the next call returns at once.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use polylock_coordination::{Election, Term};
    /// use polylock_core::memory::Memory;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let election = Election::new(Arc::new(Memory::new()), "scheduler")?;
    /// let leadership = election.campaign().await?;
    /// let term = Term::clone(&leadership);
    /// let task = tokio::spawn(async move {
    ///     tokio::select! {
    ///         () = term.ended() => "ended",
    ///         () = tokio::time::sleep(Duration::from_secs(60)) => "done", // the work
    ///     }
    /// });
    /// leadership.resign().await?;
    /// assert_eq!(task.await?, "ended");
    /// # Ok(()) }
    /// ```
    pub async fn ended(&self) {
        self.election.role.ended(self.number).await;
    }

    /// Tells followers where the leader can be reached: any bytes, such as `"10.0.0.7:9000"`.
    ///
    /// Sends one request. A later address replaces an earlier one. Followers see it as long as this
    /// instance leads. The server keeps the last record of each election for 10 years, so that a long-lived
    /// leader keeps its address. Do not use an election name for one term alone.
    ///
    /// # Errors
    ///
    /// - [`InvalidRequest`](ErrorKind::InvalidRequest) if it is longer than
    ///   [`Election::MAX_ADDRESS_LEN`].
    /// - [`Lost`](ErrorKind::Lost) if the term has ended, also if it ended while the address was written.
    /// - [`Unavailable`](ErrorKind::Unavailable) if the server did not answer, with an unknown outcome if
    ///   followers may see it.
    /// - Others of [`LockAdmin::write_record`](polylock_core::admin::LockAdmin::write_record).
    ///
    /// # Cancel safety
    ///
    /// Followers may or may not see it.
    pub async fn proclaim(&self, address: impl AsRef<[u8]> + Send) -> Result<()> {
        let election = &self.election;
        let (key, address) = (election.request.key(), address.as_ref());
        if address.len() > Election::MAX_ADDRESS_LEN {
            let (len, max) = (address.len(), Election::MAX_ADDRESS_LEN);
            let message = format!("an address of {len} bytes; {max} at most");
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_key(key));
        }
        self.ensure_leads()?;
        let record = Record::new(self.token, leader::encode(&self.label, address));
        let is_latest = admin(&*election.locks)?
            .write_record(key, &record, KEPT)
            .await?;
        self.ensure_leads()?;
        match is_latest {
            true => Ok(()),
            // A later leader has proclaimed its address.
            false => Err(Error::lost(LostReason::Stolen).with_key(key)),
        }
    }

    fn ensure_leads(&self) -> Result<()> {
        let Self { election, lost, .. } = self;
        let error = match lost.reason() {
            Some(reason) => Error::lost(reason),
            None if election.role.is_current(self.number) => return Ok(()),
            None => Error::new(ErrorKind::Lost, "the term has ended"),
        };
        Err(error.with_key(election.request.key()))
    }
}

/// A leader that leads for longer than its record is kept would lose its address.
const KEPT: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
