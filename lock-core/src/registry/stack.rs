use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::event::Observer;
use crate::layers::{LocalQueue, Observe, Prefix, check_namespace};
use crate::lock::DistributedLock;
use crate::url::LockUrl;

/// What the parameters of a URL say about the layers.
#[derive(Debug)]
pub(super) struct Stack {
    namespace: String,
    has_queue: bool,
    max_handovers: Option<u32>,
    handover_time: Option<Duration>,
    max_waiters: Option<usize>,
}

impl Stack {
    /// The usual layers.
    pub(super) fn new(namespace: &str) -> Result<Self> {
        if !namespace.is_empty() {
            check_namespace(namespace)?;
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            has_queue: true,
            max_handovers: None,
            handover_time: None,
            max_waiters: None,
        })
    }

    /// Reads the parameters of the layers, and gives the URL without them for the backend.
    pub(super) fn of(url: &LockUrl, default_namespace: &str) -> Result<(Self, LockUrl)> {
        let mut params = url.params();
        let namespace = params.string("namespace").unwrap_or(default_namespace);
        let usual = Self::new(namespace)?;
        let has_queue = params.bool("local-queue")?.unwrap_or(true);
        let max_handovers = params.integer("max-handovers", 0..=MAX_HANDOVERS)?;
        let handover_time = params.duration("handover-time")?;
        if handover_time.is_some_and(|time| time > MAX_HANDOVER_TIME) {
            return Err(Error::config("handover-time is at most 60s"));
        }
        let max_waiters = params.integer("max-waiters", 1..=MAX_WAITERS)?;
        if !has_queue
            && (max_handovers.is_some() || handover_time.is_some() || max_waiters.is_some())
        {
            return Err(Error::config(
                "handover-time, max-handovers and max-waiters need local-queue=on",
            ));
        }
        let url = url.without(params.leave()).within(namespace);
        let stack = Self {
            has_queue,
            max_handovers,
            handover_time,
            max_waiters,
            ..usual
        };
        Ok((stack, url))
    }

    /// The same with a local queue, whatever the URL says.
    pub(super) fn with_queue(self) -> Self {
        Self {
            has_queue: true,
            ..self
        }
    }

    /// Puts the layers over a backend.
    pub(super) fn over(
        self,
        mut locks: Arc<dyn DistributedLock>,
        observer: Option<&Arc<dyn Observer>>,
    ) -> Result<Arc<dyn DistributedLock>> {
        if !self.namespace.is_empty() {
            locks = Arc::new(Prefix::new(locks, &self.namespace)?);
        }
        if self.has_queue {
            let mut queue = LocalQueue::new(locks);
            if let Some(max) = self.max_handovers {
                queue = queue.with_max_handovers(max);
            }
            if let Some(time) = self.handover_time {
                queue = queue.with_handover_time(time);
            }
            if let Some(max) = self.max_waiters {
                queue = queue.with_max_waiters(max);
            }
            locks = Arc::new(queue);
        }
        let observe = Observe::new(locks);
        Ok(Arc::new(match observer {
            Some(observer) => observe.with_observer(Arc::clone(observer)),
            None => observe,
        }))
    }
}

/// More would keep other processes out for longer than any lease.
const MAX_HANDOVERS: u32 = 1_000_000;
/// A lease that stays in one process for longer starves the others.
const MAX_HANDOVER_TIME: Duration = Duration::from_secs(60);
/// More would take gigabytes of memory for one key.
const MAX_WAITERS: usize = 1_000_000;
