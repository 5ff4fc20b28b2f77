//! Releases, and the withdrawal of votes.

use polylock_core::Released;
use redis::Value;

use crate::error::RedisFailure;
use crate::keys::RedisKeys;
use crate::reply::{self, QueueTicket};
use crate::script::{RELEASE, WITHDRAW};
use crate::server::{RedisHolder, Server};
use crate::topology::Unanswered;

/// What a release did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReleaseReply {
    /// The id did not hold the lock; its place in the queue, if it had one, is deleted.
    Nothing,
    Lock,
    /// A waiter holds the lock now.
    Granted,
}

impl Server {
    /// Releases the lock, or leaves its queue.
    pub(crate) async fn release(
        &self,
        keys: &RedisKeys,
        holder: &RedisHolder,
        ticket: Option<&QueueTicket>,
    ) -> Result<ReleaseReply, RedisFailure> {
        let ticket = ticket.map_or("", |ticket| &**ticket);
        let args = [holder.id(), ticket.as_bytes()];
        match self.run(&RELEASE, keys, &args).await? {
            Value::Int(0) => Ok(ReleaseReply::Nothing),
            Value::Int(1) => Ok(ReleaseReply::Lock),
            Value::Int(2) => Ok(ReleaseReply::Granted),
            reply => Err(reply::strange(&reply)),
        }
    }

    /// Releases the lock behind a request for it that has no reply, if the connection still works.
    pub(crate) async fn release_behind(
        &self,
        unanswered: Unanswered,
        keys: &RedisKeys,
        holder: &RedisHolder,
    ) {
        let (keys, args) = (keys.all(), [holder.id(), b""]);
        let released = unanswered.run_behind(&RELEASE, &keys, &args, self.timeout);
        released.await;
    }

    /// Withdraws a vote.
    pub(crate) async fn withdraw(
        &self,
        keys: &RedisKeys,
        holder: &RedisHolder,
    ) -> Result<Released, RedisFailure> {
        let reply = self.run(&WITHDRAW, keys, &[holder.id()]).await?;
        Ok(if reply::flag(&reply)? {
            Released::Clean
        } else {
            Released::AlreadyLost
        })
    }
}
