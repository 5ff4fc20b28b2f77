//! Watching how old the nodes get, and telling them.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lock_core::engine::is_mutant;
use redis::Value;

use super::node::Node;
use crate::error::Failure;
use crate::keys::AGE_KEY;
use crate::link::Call;
use crate::reply;
use crate::script::AGE;

impl Node {
    /// Tells the node for how long this client knows its run to be up, and asks for how long others
    /// do.
    pub(super) async fn compare_ages(&self) -> Result<(), Failure> {
        if is_mutant("quorum-wall-clock") {
            return self.believe_uptime().await;
        }
        // Before it is sent, so that the age is true whenever it arrives.
        let now = self.engine.now();
        let (run, age) = match self.seen() {
            Some(seen) => (Arc::clone(seen.run_id()), seen.age(now).as_millis()),
            None => ("".into(), 0),
        };
        let (run, age) = self.ask_for_age(&run, age).await?;
        self.saw(&run, age);
        Ok(())
    }

    /// Begins to count the age of the node.
    pub(super) async fn see(&self) {
        if self.rejoin_delay.is_zero() {
            return;
        }
        if let Err(failure) = self.compare_ages().await {
            tracing::debug!(
                server = self.name,
                ?failure,
                "the age of a node is not known"
            );
        }
    }

    /// For how long clients know the run of the node to be up, which stores nothing.
    pub(super) async fn known_age(&self) -> Result<Duration, Failure> {
        Ok(self.ask_for_age("", 0).await?.1)
    }

    async fn ask_for_age(&self, run: &str, age: u128) -> Result<(String, Duration), Failure> {
        let age = age.to_string();
        let call = Call {
            script: &AGE,
            keys: &[AGE_KEY.as_bytes()],
            args: &[run.as_bytes(), age.as_bytes()],
        };
        let reply = self.server.link.call(call).await?;
        let read = || {
            let Value::Array(parts) = &reply else {
                return None;
            };
            let [run, Value::Int(age)] = &parts[..] else {
                return None;
            };
            let age = Duration::from_millis(u64::try_from(*age).ok()?);
            Some((reply::text(run)?.to_owned(), age))
        };
        read().ok_or_else(|| reply::strange(&reply))
    }

    /// Compares ages now and then until the node is old enough, so that clients that come and go do
    /// not have to wait for as long.
    pub(super) fn watch(self: &Arc<Self>) {
        if self.rejoin_delay.is_zero() || self.is_watched.swap(true, Ordering::AcqRel) {
            return;
        }
        let watching = Watching(Arc::downgrade(self));
        let pause = (self.rejoin_delay / 8).min(MAX_PAUSE);
        // A node that is gone is watched again when it answers.
        let until = self.engine.now() + 2 * self.rejoin_delay;
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let Some(node) = watching.0.upgrade() else {
                    return;
                };
                let was_old = node.left().is_zero();
                let is_old = match node.compare_ages().await {
                    Ok(()) => was_old && node.left().is_zero(),
                    Err(failure) => !failure.is_retryable(),
                };
                if is_old || node.engine.now() > until {
                    return;
                }
            }
        });
    }

    /// What a client does that trusts the clock of the server.
    async fn believe_uptime(&self) -> Result<(), Failure> {
        let mut info = redis::cmd("INFO");
        for said in self.server.link.on_each_master(info.arg("server")).await? {
            let text: String = redis::from_redis_value(said.value).unwrap_or_default();
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            let fields: HashMap<_, _> = lines.collect();
            let uptime = fields.get("uptime_in_seconds").map(|n| n.parse::<u64>());
            if let (Some(run), Some(Ok(secs))) = (fields.get("run_id"), uptime) {
                self.saw(run, Duration::from_secs(secs.saturating_sub(1)));
            }
        }
        Ok(())
    }
}

/// Ends together with the task that watches, even if that is dropped.
struct Watching(Weak<Node>);

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(node) = self.0.upgrade() {
            node.is_watched.store(false, Ordering::Release);
        }
    }
}

/// Time between two comparisons: what a client that ends has seen since the last one is lost.
const MAX_PAUSE: Duration = Duration::from_secs(1);
