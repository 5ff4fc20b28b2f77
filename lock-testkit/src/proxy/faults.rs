use std::fmt;
use std::sync::{Arc, Mutex};

use polylock_core::memory::{Fault, Reachable, Request};

use super::{Command, Fate, Planned, Proxy, ReplyOrder, Then};
use crate::lock;

/// The proxies of one store as what the conformance suite asks for: an implementation of
/// [`Faults`](crate::harness::Faults) passes `plan`, `pending` and `set_reachable` on to it.
///
/// A script that the server does not know is answered with `NOSCRIPT` and sent again; a fault that
/// meets the first of the two has no effect on the store. Load the scripts first.
///
/// In front of `ZooKeeper` every fault but [`Fault::LateReply`] ends the connection, and none the
/// session: the client resumes it on another one, where what is sent again is a request of its own.
/// Say of one request only of those that are pipelined that it is an acquisition, or a second fault
/// meets its companion. A client that gives up a silent connection does so after a part of its
/// session time-out, so [`with_silence`](Self::with_silence) is of use there.
pub struct FaultPlan {
    proxies: Vec<Proxy>,
    classify: Arc<Classifier>,
    across: Across,
    silence: Then,
    /// What [`plan`](Self::plan) has planned, each for one server or for several.
    planned: Mutex<Vec<Vec<Planned>>>,
}

/// The servers that a fault meets if a store has several.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Across {
    /// The next request of its kind at whichever server.
    Any,
    /// The next request of its kind at each server.
    Each,
}

impl FaultPlan {
    /// Says by a classifier which commands are which requests.
    pub fn new(
        proxies: Vec<Proxy>,
        across: Across,
        classify: impl Fn(&Command) -> Option<Request> + Send + Sync + 'static,
    ) -> Self {
        Self {
            proxies,
            classify: Arc::new(classify),
            across,
            silence: Then::Silent,
            planned: Mutex::default(),
        }
    }

    /// Sets how a connection with [`Fault::Silence`] ends. By default it is silent until the client
    /// closes it; other requests on it get no reply either.
    #[must_use]
    pub fn with_silence(mut self, silence: Then) -> Self {
        self.silence = silence;
        self
    }

    /// The proxies, in the order in which they were given.
    pub fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }

    /// Plans a fault for the next request of this kind that has none planned.
    pub fn plan(&self, request: Request, fault: Fault) {
        let fate = match fault {
            Fault::Duplicated => Fate::Duplicated {
                after: std::time::Duration::ZERO,
                answer: ReplyOrder::Second,
            },
            Fault::LateReply(delay) => Fate::LateReply(delay),
            Fault::LostReply => Fate::LostReply(Then::Cut),
            Fault::LostRequest => Fate::LostRequest(Then::Cut),
            Fault::Silence => Fate::LostRequest(self.silence),
            other => panic!("no fate for {other:?}"),
        };
        let planned = || {
            let classify = Arc::clone(&self.classify);
            Planned::once(move |command| classify(command) == Some(request), fate)
        };
        let planned = match self.across {
            Across::Any => {
                let planned = planned();
                self.proxies.iter().for_each(|proxy| proxy.add(&planned));
                vec![planned]
            }
            Across::Each => {
                let each = self.proxies.iter().map(|proxy| {
                    let planned = planned();
                    proxy.add(&planned);
                    planned
                });
                each.collect()
            }
        };
        lock(&self.planned).push(planned);
    }

    /// How many of them have met no request yet, at any server.
    pub fn pending(&self) -> usize {
        let mut planned = lock(&self.planned);
        planned.retain(|servers| servers.iter().all(|planned| planned.struck() == 0));
        planned.len()
    }

    /// Cuts off or reconnects all servers.
    pub fn set_reachable(&self, reachable: Reachable) {
        for proxy in &self.proxies {
            proxy.set_reachable(reachable);
        }
    }
}

impl fmt::Debug for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultPlan")
            .field("proxies", &self.proxies)
            .field("across", &self.across)
            .finish_non_exhaustive()
    }
}

type Classifier = dyn Fn(&Command) -> Option<Request> + Send + Sync;
