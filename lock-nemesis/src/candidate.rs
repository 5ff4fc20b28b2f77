//! A candidate of an election: campaigns, leads for a while and resigns.

use std::io;
use std::time::Duration;

use lock_testkit::history::{Recorder, What};
use lock_testkit::sim::Rng;
use polylock::coordination::{Election, Leadership};
use polylock_core::{AcquireRequest, LockKey, LostReason, Released};
use tokio::time::{Instant, sleep, timeout};

use crate::client::{PACE, RELEASE_TIMEOUT};
use crate::register::Registers;

/// What a client process needs to stand for an election.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) election: Election,
    pub(crate) recorder: Recorder,
    pub(crate) registers: Registers,
    pub(crate) rng: Rng,
}

impl Candidate {
    /// Stands for election again and again, until the nemesis has ended.
    pub(crate) async fn campaign(&mut self) -> io::Result<()> {
        let key = LockKey::new(self.election.name()).map_err(io::Error::other)?;
        let request = AcquireRequest::new(key.clone());
        loop {
            self.registers.check()?;
            let attempt = self.recorder.attempt(&request);
            match self.election.campaign().await {
                Ok(leadership) => {
                    let token = leadership.fencing_token();
                    let id = attempt.noted(Some(token), leadership.lost().valid_until());
                    self.lead(&key, id, leadership).await?;
                }
                Err(error) => attempt.refused(&error),
            }
            sleep(self.rng.millis(10, 150)).await;
        }
    }

    /// One term, from the campaign to its loss or to the resignation.
    async fn lead(&mut self, key: &LockKey, id: u64, leadership: Leadership) -> io::Result<()> {
        let until = Instant::now() + self.rng.millis(0, MAX_TERM);
        while Instant::now() < until {
            self.registers.write(key, leadership.fencing_token())?;
            // Read the deadline before `is_held`, so that a renewal in between does not extend it.
            let valid_until = self.recorder.until(leadership.lost().valid_until());
            let leads = self.election.leads();
            if leads {
                let until = valid_until;
                self.recorder.record(key, id, What::Held { until });
            }
            if !leads || timeout(PACE, leadership.ended()).await.is_ok() {
                self.note_loss(key, id, &leadership).await;
                return Ok(());
            }
        }
        // Stamped before the check: a pause in between must not make the term longer.
        let at = self.recorder.now();
        if !self.election.leads() {
            self.note_loss(key, id, &leadership).await;
            return Ok(());
        }
        let releasing = What::Releasing { held: true };
        self.recorder.record_at(at, key, id, releasing);
        if self.rng.chance(500) {
            return Ok(());
        }
        if let Ok(released) = timeout(RELEASE_TIMEOUT, leadership.resign()).await {
            let clean = released.ok().map(|released| released == Released::Clean);
            self.recorder.record(key, id, What::Released { clean });
        }
        Ok(())
    }

    /// A term whose end the tasks of the leader do not learn in time is held after its loss.
    async fn note_loss(&self, key: &LockKey, id: u64, leadership: &Leadership) {
        let reason = leadership.lost().reason();
        let reason = reason.map_or("unknown", LostReason::as_str).to_owned();
        self.recorder.record(key, id, What::Lost { reason });
        if timeout(SIGNAL_DELAY, leadership.ended()).await.is_err() {
            self.recorder.record(key, id, What::Held { until: None });
        }
    }
}

/// The election that all client processes stand for.
pub(crate) const ELECTION: &str = "election";

/// The longest term, in milliseconds: most of them last for longer than a lease.
const MAX_TERM: u64 = 8_000;

/// How much later than its loss a term may end: what the history checker allows for a lock.
const SIGNAL_DELAY: Duration = Duration::from_millis(500);
