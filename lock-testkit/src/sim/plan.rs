use std::time::Duration;

use polylock_core::{LockKey, Waiting};

use super::rng::Rng;

/// The constants of one history, drawn from its seed.
#[derive(Debug)]
pub(crate) struct SimPlan {
    pub(crate) processes: usize,
    /// Tasks that use locks in each process.
    pub(crate) workers: usize,
    pub(crate) keys: Vec<LockKey>,
    pub(crate) waiting: Waiting,
    /// Leases that operations ask for; the same one over and over lets them be handed over.
    pub(crate) ttls: Vec<Duration>,
    /// How many operations in a thousand ask for a shared lock or a permit.
    pub(crate) not_exclusive: u32,
    pub(crate) max_handovers: u32,
    /// Tokens that the store reserves for hand-overs with each grant.
    pub(crate) token_block: u64,
    /// Whether the store remembers ids that were released, and refuses them when they come late.
    pub(crate) remembers_released: bool,
    /// Whether the queue of the store is as durable as its leases.
    pub(crate) durable_queue: bool,
    /// How long a client waits for an answer.
    pub(crate) patience: Duration,
    /// How often a waiter tells the store that it is alive.
    pub(crate) beat: Duration,
    /// A waiter that is silent for this long is dead for the store.
    pub(crate) waiter_life: Duration,
    /// Whether the clocks of processes run apart.
    pub(crate) drifts: bool,
    pub(crate) store_drift: i32,
    pub(crate) weather: Weather,
    /// Longest pause between two faults of processes, of the store and of routes.
    pub(crate) calm_between_faults: Duration,
    pub(crate) faults_end: Duration,
    pub(crate) work_ends: Duration,
}

/// How many messages in a thousand meet which fault.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) doubled: u32,
    pub(crate) late: u32,
    pub(crate) lost_push: u32,
    pub(crate) lost_reply: u32,
    pub(crate) lost_request: u32,
}

/// Clocks run apart by this at most, in parts per million: 1.05 / 0.95 is just inside the tenth
/// that the margin of a lease covers.
pub(crate) const MAX_DRIFT: i32 = 50_000;

/// The leases that operations ask for.
pub(crate) const TTLS: [Duration; 4] = [
    Duration::from_millis(1000),
    Duration::from_millis(1500),
    Duration::from_millis(2000),
    Duration::from_millis(3000),
];

/// The life of a waiter in drawn plans.
pub(crate) const WAITER_LIFE: Duration = Duration::from_millis(1500);

/// Time after the faults in which their effects may still be seen: the longest delay of a message,
/// and the longest patience of a client that began to wait before.
pub(crate) const SETTLING: Duration = Duration::from_millis(3500);

impl SimPlan {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "plan", 0);
        let rng = &mut rng;
        let keys = *rng.pick(&[1, 1, 2]);
        let keys = ["key", "KEY"][..keys]
            .iter()
            .map(|name| LockKey::new(*name));
        Self {
            processes: *rng.pick(&[2, 3]),
            workers: *rng.pick(&[1, 3, 4]),
            keys: keys
                .collect::<Result<_, _>>()
                .expect("BUG: a plain name is a key"),
            ttls: if rng.chance(600) {
                vec![*rng.pick(&TTLS)]
            } else {
                TTLS.to_vec()
            },
            waiting: *rng.pick(&[Waiting::Poll, Waiting::Push]),
            not_exclusive: *rng.pick(&[0, 0, 100, 400, 900]),
            max_handovers: *rng.pick(&[0, 2, 16]),
            token_block: *rng.pick(&[1, 4, 32]),
            remembers_released: rng.chance(500),
            durable_queue: rng.chance(500),
            patience: *rng.pick(&[300, 700, 2000].map(Duration::from_millis)),
            beat: *rng.pick(&[200, 400].map(Duration::from_millis)),
            waiter_life: WAITER_LIFE,
            drifts: true,
            store_drift: drift(rng),
            weather: Weather::draw(rng),
            calm_between_faults: *rng.pick(&[600, 2000].map(Duration::from_millis)),
            faults_end: Duration::from_secs(8),
            work_ends: Duration::from_secs(15),
        }
    }
}

/// A drift for a clock; some run true.
pub(crate) fn drift(rng: &mut Rng) -> i32 {
    let most = i64::from(MAX_DRIFT);
    let drift = i64::try_from(rng.below(2 * MAX_DRIFT as u64 + 1)).unwrap_or(most) - most;
    let drift = *rng.pick(&[0, drift, drift, -most, most]);
    i32::try_from(drift).unwrap_or(0)
}

impl Weather {
    fn draw(rng: &mut Rng) -> Self {
        let mut of = |most: u64| u32::try_from(rng.below(most)).unwrap_or(0);
        Self {
            doubled: of(40),
            late: of(40),
            lost_push: of(200),
            lost_reply: of(40),
            lost_request: of(40),
        }
    }
}
