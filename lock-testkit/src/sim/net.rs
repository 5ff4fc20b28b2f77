//! The network between processes, store and resource: every message is an event in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::fault::Fault;
use super::log::Log;
use super::plan::Weather;
use super::rng::Rng;
use super::world::World;
use crate::lock;

/// Messages under way, and what happens to them.
#[derive(Debug)]
pub(crate) struct Net {
    queue: Mutex<Queue>,
    posted: Notify,
    routes: Mutex<Routes>,
}

#[derive(Default)]
struct Queue {
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
    cut_off: BTreeSet<(usize, Direction)>,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Direction {
    FromStore,
    ToStore,
}

/// Time that a message takes in fair weather.
const TRANSIT: Duration = Duration::from_millis(3);

impl Net {
    pub(crate) fn new(seed: u64, weather: Weather) -> Self {
        let rng = Rng::stream(seed, "net", 0);
        let routes = Routes {
            rng,
            weather,
            cut_off: BTreeSet::new(),
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

    /// Delivers what was posted, without end.
    pub(crate) async fn run(world: Arc<World>) {
        let net = &world.net;
        loop {
            while let Some(parcel) = net.due(world.now()) {
                parcel();
            }
            let next = lock(&net.queue)
                .parcels
                .first_key_value()
                .map(|((at, _), _)| *at);
            let posted = net.posted.notified();
            match next {
                Some(at) => drop(timeout(at.saturating_sub(world.now()), posted).await),
                None => posted.await,
            }
        }
    }

    fn due(&self, now: Duration) -> Option<Parcel> {
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

    pub(crate) fn cut(&self, process: usize, direction: Direction) {
        lock(&self.routes).cut_off.insert((process, direction));
    }

    pub(crate) fn mend(&self, process: usize, direction: Direction) {
        lock(&self.routes).cut_off.remove(&(process, direction));
    }

    pub(super) fn passes(&self, process: usize, direction: Direction) -> bool {
        !lock(&self.routes).cut_off.contains(&(process, direction))
    }

    /// Draws what happens to a request and its reply.
    pub(super) fn draw(&self, log: &Log) -> Fate {
        lock(&self.routes).draw(log)
    }

    /// Draws how long a pushed grant takes; `None` if it is lost.
    pub(super) fn draw_push(&self, log: &Log) -> Option<Duration> {
        let mut routes = lock(&self.routes);
        let Weather {
            lost_push, late, ..
        } = routes.weather;
        if routes.weather.is_fair() {
            return Some(TRANSIT);
        }
        if routes.rng.chance(lost_push) {
            log.fault(Fault::LostPush);
            return None;
        }
        let late = routes.rng.chance(late);
        if late {
            log.fault(Fault::LateReply);
        }
        Some(routes.delay(late))
    }
}

/// What happens to one request and its reply.
pub(super) struct Fate {
    /// When its copies arrive.
    pub(super) request: Vec<Duration>,
    pub(super) reply: Return,
}

/// What becomes of a reply.
#[derive(Clone, Copy)]
pub(super) enum Return {
    After(Duration),
    Lost,
    /// The connection breaks in its place.
    Reset(Duration),
}

impl Routes {
    fn draw(&mut self, log: &Log) -> Fate {
        let weather = self.weather;
        let mut fate = Fate {
            request: vec![TRANSIT],
            reply: Return::After(TRANSIT),
        };
        if weather.is_fair() {
            return fate;
        }
        let mut meets = |per_mille, fault| {
            let met = self.rng.chance(per_mille);
            if met {
                log.fault(fault);
            }
            met
        };
        let doubled = meets(weather.doubled, Fault::DoubledRequest);
        let late_request = meets(weather.late, Fault::LateRequest);
        let late_reply = meets(weather.late, Fault::LateReply);
        let lost_request = meets(weather.lost_request, Fault::LostRequest);
        let lost_reply = meets(weather.lost_reply, Fault::LostReply);
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

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("under_way", &self.parcels.len())
            .finish_non_exhaustive()
    }
}
