//! The network between processes and store: what is under way, and what happens to each message.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use polylock_core::memory;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::fault::SimFault;
use super::log::SimLog;
use super::message::SimRequest;
use super::plan::Weather;
use super::rng::Rng;
use crate::lock;

/// Messages under way, and what happens to them.
#[derive(Debug)]
pub(crate) struct Net {
    queue: Mutex<ParcelQueue>,
    posted: Notify,
    routes: Mutex<Routes>,
}

#[derive(Default)]
struct ParcelQueue {
    /// By the time of arrival, and among equals by the order of sending.
    parcels: BTreeMap<(Duration, u64), Parcel>,
    sent: u64,
}

/// What a message does where it arrives.
type Parcel = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
struct Routes {
    rng: Rng,
    weather: Weather,
    /// Processes whose requests do not arrive, and those that get no replies.
    cut_off: BTreeSet<(usize, MessageDirection)>,
    planned: VecDeque<(memory::Request, memory::Fault)>,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum MessageDirection {
    FromStore,
    ToStore,
}

/// Time that a message takes without a fault.
const TRANSIT: Duration = Duration::from_millis(3);

impl Net {
    pub(crate) fn new(seed: u64, weather: Weather) -> Self {
        let rng = Rng::stream(seed, "net", 0);
        let routes = Routes {
            rng,
            weather,
            cut_off: BTreeSet::new(),
            planned: VecDeque::new(),
        };
        Self {
            queue: Mutex::default(),
            posted: Notify::new(),
            routes: Mutex::new(routes),
        }
    }

    /// Lets `parcel` arrive at a time.
    pub(crate) fn post(&self, at: Duration, parcel: impl FnOnce() + Send + 'static) {
        let mut queue = lock(&self.queue);
        queue.sent += 1;
        let key = (at, queue.sent);
        let first = queue
            .parcels
            .first_key_value()
            .is_none_or(|(first, _)| key < *first);
        queue.parcels.insert(key, Box::new(parcel));
        if first {
            self.posted.notify_one();
        }
    }

    /// Returns when a parcel may be due, at `now` or later.
    pub(super) async fn wait(&self, now: Duration) {
        let next = lock(&self.queue)
            .parcels
            .first_key_value()
            .map(|((at, _), _)| *at);
        let posted = self.posted.notified();
        match next {
            Some(at) => drop(timeout(at.saturating_sub(now), posted).await),
            None => posted.await,
        }
    }

    /// The next parcel that has arrived by `now`.
    pub(super) fn due(&self, now: Duration) -> Option<Parcel> {
        let mut queue = lock(&self.queue);
        let first = queue
            .parcels
            .first_entry()
            .filter(|first| first.key().0 <= now);
        first.map(|first| first.remove())
    }

    /// Drops what is under way.
    pub(crate) fn clear(&self) {
        drop(std::mem::take(&mut lock(&self.queue).parcels));
    }

    /// From here on nothing is lost, late or doubled, and messages arrive in their order.
    pub(crate) fn calm_down(&self) {
        let mut routes = lock(&self.routes);
        routes.weather = Weather::default();
        routes.cut_off.clear();
    }

    /// Plans a fault for the next request of this kind that has none planned.
    pub(crate) fn plan(&self, request: memory::Request, fault: memory::Fault) {
        lock(&self.routes).planned.push_back((request, fault));
    }

    /// How many planned faults have met no request yet.
    pub(crate) fn pending(&self) -> usize {
        lock(&self.routes).planned.len()
    }

    pub(crate) fn cut(&self, process: usize, direction: MessageDirection) {
        lock(&self.routes).cut_off.insert((process, direction));
    }

    pub(crate) fn mend(&self, process: usize, direction: MessageDirection) {
        lock(&self.routes).cut_off.remove(&(process, direction));
    }

    pub(super) fn passes(&self, process: usize, direction: MessageDirection) -> bool {
        !lock(&self.routes).cut_off.contains(&(process, direction))
    }

    /// What was planned for a request and its reply, or is drawn.
    pub(super) fn fate(&self, request: &SimRequest, log: &SimLog) -> RequestFate {
        let mut routes = lock(&self.routes);
        let planned = routes.planned(request);
        planned.unwrap_or_else(|| routes.draw(log))
    }

    /// Draws how long a pushed grant takes; `None` if it is lost.
    pub(super) fn draw_push(&self, log: &SimLog) -> Option<Duration> {
        let mut routes = lock(&self.routes);
        let weather = routes.weather;
        if weather.is_fair() {
            return Some(TRANSIT);
        }
        if routes.meets(weather.lost_push, SimFault::LostPush, log) {
            return None;
        }
        let late = routes.meets(weather.late, SimFault::LateReply, log);
        Some(routes.delay(late))
    }
}

/// What happens to a request and its reply.
pub(super) struct RequestFate {
    /// When its copies arrive.
    pub(super) request: Vec<Duration>,
    pub(super) reply: Return,
}

#[derive(Clone, Copy)]
pub(super) enum Return {
    After(Duration),
    Lost,
    /// The connection breaks in its place.
    Reset(Duration),
}

impl Routes {
    /// What was planned for a request and its reply.
    fn planned(&mut self, request: &SimRequest) -> Option<RequestFate> {
        let kind = match request {
            SimRequest::Acquire(_) => memory::Request::Acquire,
            SimRequest::Release(..) => memory::Request::Release,
            SimRequest::Renew(_) => memory::Request::Renew,
        };
        let place = self.planned.iter().position(|(of, _)| *of == kind)?;
        let (_, fault) = self.planned.remove(place)?;
        let (requests, reply) = match fault {
            memory::Fault::Duplicated => (2, Return::After(TRANSIT)),
            memory::Fault::LateReply(delay) => (1, Return::After(delay)),
            memory::Fault::LostReply => (1, Return::Reset(TRANSIT)),
            _ => (0, Return::Lost),
        };
        let request = vec![TRANSIT; requests];
        Some(RequestFate { request, reply })
    }

    /// Draws what happens to a request and its reply.
    fn draw(&mut self, log: &SimLog) -> RequestFate {
        let weather = self.weather;
        let mut fate = RequestFate {
            request: vec![TRANSIT],
            reply: Return::After(TRANSIT),
        };
        if weather.is_fair() {
            return fate;
        }
        let mut meets = |per_mille, fault| self.meets(per_mille, fault, log);
        let doubled = meets(weather.doubled, SimFault::DoubledRequest);
        let late_request = meets(weather.late, SimFault::LateRequest);
        let late_reply = meets(weather.late, SimFault::LateReply);
        let lost_request = meets(weather.lost_request, SimFault::LostRequest);
        let lost_reply = meets(weather.lost_reply, SimFault::LostReply);
        fate.request = vec![self.delay(late_request)];
        if doubled {
            let later = self.delay(true);
            fate.request.push(later);
        }
        if lost_request {
            fate.request.remove(0);
        }
        fate.reply = match (lost_reply, self.rng.chance(500)) {
            (false, _) => Return::After(self.delay(late_reply)),
            (true, false) => Return::Lost,
            (true, true) => Return::Reset(self.delay(late_reply)),
        };
        fate
    }

    /// Draws whether a message meets a fault.
    fn meets(&mut self, per_mille: u32, fault: SimFault, log: &SimLog) -> bool {
        let met = self.rng.chance(per_mille);
        if met {
            log.fault(fault);
        }
        met
    }

    fn delay(&mut self, late: bool) -> Duration {
        if late {
            self.rng.millis(20, 3000)
        } else {
            self.rng.millis(1, 12)
        }
    }
}

impl Weather {
    pub(crate) fn is_fair(self) -> bool {
        self.late == 0 && self.doubled == 0 && self.lost_reply == 0 && self.lost_request == 0
    }
}

impl fmt::Debug for ParcelQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParcelQueue")
            .field("under_way", &self.parcels.len())
            .finish_non_exhaustive()
    }
}
