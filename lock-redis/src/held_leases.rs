//! The leases that this process holds, to find one that is broken, or to check all of them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use polylock_core::engine::{Engine, LeaseId};
use polylock_core::{LeaseControl, LostReason};

use crate::locked;
use crate::quorum::is_too_few;
use crate::topology::Topology;

/// Leases on one server, or on a majority of several nodes.
#[derive(Debug)]
pub(crate) struct HeldRedisLeases {
    engine: Engine,
    leases: Mutex<KnownLeases>,
    nodes: usize,
    /// Of each node, whether its messages about broken locks were requested: one of the constants below.
    messages: Vec<AtomicU8>,
    /// The last check for each node. A connection that breaks again and again must not delay the check after
    /// a gap of another node.
    last_checks: Mutex<HashMap<usize, GapCheck>>,
}

const NOT_REQUESTED: u8 = 0;
/// A task requests them.
const REQUESTING: u8 = 1;
/// A task requests them, and some may have been lost meanwhile.
const REQUESTING_AGAIN: u8 = 2;
/// Requested, and not interrupted since.
const REQUESTED: u8 = 3;
/// Some may have been lost since the last request.
const INTERRUPTED: u8 = 4;

/// Time between two attempts to subscribe to the messages about broken locks.
const SUBSCRIBE_BACKOFF: Duration = Duration::from_secs(1);

/// When the last check after a gap of one node ran, or when the next one is due.
#[derive(Clone, Copy, Debug)]
struct GapCheck {
    at: Instant,
    /// How many before it each came soon after the one before.
    repeated: u32,
}

impl GapCheck {
    fn first(at: Instant) -> Self {
        Self { at, repeated: 0 }
    }

    /// Min time until the next one. A connection that breaks again and again, such as one to a server
    /// that is too slow or was demoted, would otherwise cause as many renewals.
    fn interval(self) -> Duration {
        CHECK_INTERVAL * 2_u32.pow(self.repeated.saturating_sub(2).min(MAX_DOUBLINGS))
    }
}

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Up to 8 s.
const MAX_DOUBLINGS: u32 = 3;

#[derive(Debug, Default)]
struct KnownLeases {
    held: HashMap<LeaseId, HeldRedisLease>,
    /// The last breaks of leases that are not held, each with the node that reported it. The message may come
    /// before the grant is processed, as when the runtime of the caller is blocked.
    early_breaks: VecDeque<(LeaseId, usize)>,
}

/// The messages about the locks of all clients count.
const MAX_EARLY_BREAKS: usize = 128;

/// A lease that this process holds.
#[derive(Clone, Debug)]
struct HeldRedisLease {
    control: LeaseControl,
    /// Its token, and the start of the hold, if the server may not know them.
    unconfirmed: Option<(u64, Instant)>,
    /// The nodes that reported the lock as broken.
    broken_by: Vec<usize>,
}

impl HeldRedisLeases {
    /// Leases on this many servers.
    pub(crate) fn on(nodes: usize, engine: &Engine) -> Self {
        Self {
            engine: engine.clone(),
            leases: Mutex::default(),
            nodes,
            messages: (0..nodes).map(|_| AtomicU8::new(NOT_REQUESTED)).collect(),
            last_checks: Mutex::default(),
        }
    }

    /// Requests the messages of a node about broken locks, in the background and until the node replies.
    /// Called after each grant; only the first one and the next one after an interruption send anything.
    /// Without the messages, the next renewal reports the loss.
    pub(crate) fn listen(self: &Arc<Self>, node: usize, topology: &Arc<dyn Topology>) {
        let begin = |state| match state {
            NOT_REQUESTED | INTERRUPTED => Some(REQUESTING),
            _ => None,
        };
        // Only reads, usually: a write takes the cache line from the other threads.
        let Ok(before) = self.change_messages(node, begin) else {
            return;
        };
        // A break before the next subscription was not published to this client.
        let mut has_gap = before == INTERRUPTED;
        // Ends with the client.
        let topology = Arc::downgrade(topology);
        let held_leases = Arc::clone(self);
        self.engine.spawn_service(async move {
            while let Some(topology) = topology.upgrade() {
                if topology.channel().await.is_ok() {
                    // Only now: a break before this shows in a renewal, and a later one is published.
                    if has_gap {
                        held_leases.check_soon(node);
                    }
                    let end = |state| (state == REQUESTING).then_some(REQUESTED);
                    if held_leases.change_messages(node, end).is_ok() {
                        return;
                    }
                    held_leases.messages[node].store(REQUESTING, Ordering::Relaxed);
                }
                has_gap = true;
                drop(topology);
                tokio::time::sleep(SUBSCRIBE_BACKOFF).await;
            }
        });
    }

    /// Changes the state of a node, unless `next` is `None`; returns the one before.
    fn change_messages(&self, node: usize, next: impl Fn(u8) -> Option<u8>) -> Result<u8, u8> {
        self.messages[node].fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
    }

    /// `unconfirmed` is the token if the server may not know it yet. If the lease was broken before, it is lost.
    pub(crate) fn attach(&self, id: LeaseId, control: LeaseControl, unconfirmed: Option<u64>) {
        let mut known = locked(&self.leases);
        let early = known
            .early_breaks
            .iter()
            .filter(|(broken, _)| *broken == id);
        let mut broken_by: Vec<_> = early.map(|(_, node)| *node).collect();
        if let Some(former) = known.held.get(&id) {
            // It passes to the next holder in this process, and the former one had ended already.
            broken_by.extend(&former.broken_by);
        }
        broken_by.sort_unstable();
        broken_by.dedup();
        let broken = is_too_few(self.nodes, broken_by.len()).then(|| control.clone());
        let held = HeldRedisLease {
            control,
            unconfirmed: unconfirmed.map(|token| (token, Instant::now())),
            broken_by,
        };
        known.held.insert(id, held);
        drop(known);
        if let Some(control) = broken {
            control.lose(LostReason::Broken);
        }
    }

    /// What the server may not know of a lease: `<token>|<held for (ms)>`.
    pub(crate) fn unconfirmed(&self, id: LeaseId) -> Option<String> {
        let (token, since) = locked(&self.leases).held.get(&id)?.unconfirmed?;
        Some(format!("{token}|{}", since.elapsed().as_millis()))
    }

    /// The server knows it now.
    pub(crate) fn confirm(&self, id: LeaseId) {
        if let Some(held) = locked(&self.leases).held.get_mut(&id) {
            held.unconfirmed = None;
        }
    }

    pub(crate) fn detach(&self, id: LeaseId) {
        locked(&self.leases).held.remove(&id);
    }

    /// Handles a message `broken|<id>` of a node; returns false for other messages. The message is
    /// trusted: a client that may publish on this channel may also break locks.
    pub(crate) fn broken(&self, payload: &[u8], node: usize) -> bool {
        let Some(id) = payload.strip_prefix(b"broken|") else {
            return false;
        };
        let id = std::str::from_utf8(id).ok().and_then(LeaseId::from_hex);
        let found = id.and_then(|id| {
            let mut known = locked(&self.leases);
            let Some(held) = known.held.get_mut(&id) else {
                known.early_breaks.push_back((id, node));
                if known.early_breaks.len() > MAX_EARLY_BREAKS {
                    known.early_breaks.pop_front();
                }
                return None;
            };
            if !held.broken_by.contains(&node) {
                held.broken_by.push(node);
            }
            Some((held.control.clone(), held.broken_by.len()))
        });
        match found {
            Some((control, by)) if is_too_few(self.nodes, by) => control.lose(LostReason::Broken),
            // Other nodes may still have the lease, or send nothing: a renewal decides.
            Some((control, _)) => control.check(),
            None => {}
        }
        true
    }

    /// The server says that a lease is lost.
    pub(crate) fn lost(&self, id: LeaseId, reason: LostReason) {
        let held = locked(&self.leases).held.get(&id).cloned();
        if let Some(HeldRedisLease { control, .. }) = held {
            control.lose(reason);
        }
    }

    /// Renews all leases now: the new master may not know them.
    pub(crate) fn check_after_failover(&self, node: usize) {
        self.record_check(node, Instant::now());
        self.check();
    }

    fn check(&self) {
        let all: Vec<_> = locked(&self.leases).held.values().cloned().collect();
        for HeldRedisLease { control, .. } in all {
            control.check();
        }
    }

    /// Renews all leases with automatic renewal after messages of a node may have been missed.
    pub(crate) fn check_after_gap(self: &Arc<Self>, node: usize) {
        // First: a lease that is attached too late for this check requests the messages again.
        let interrupt = |state| match state {
            REQUESTING => Some(REQUESTING_AGAIN),
            REQUESTED => Some(INTERRUPTED),
            _ => None,
        };
        // Otherwise it is known.
        self.change_messages(node, interrupt).ok();
        self.check_soon(node);
    }

    /// Renews all leases with automatic renewal: at once, or an interval after the last such check for this
    /// node. The interval grows while gaps keep coming.
    fn check_soon(self: &Arc<Self>, node: usize) {
        if locked(&self.leases).held.is_empty() {
            return;
        }
        let now = Instant::now();
        let Some(due) = self.next_check(node, now) else {
            return;
        };
        let pause = due.saturating_duration_since(now);
        if pause.is_zero() {
            self.check();
            return;
        }
        let held_leases = Arc::clone(self);
        self.engine.spawn_service(async move {
            tokio::time::sleep(pause).await;
            held_leases.check();
        });
    }

    /// Records a check that runs now: the closed connections of a failover are gaps, too. One that is to
    /// come stays.
    fn record_check(&self, node: usize, now: Instant) {
        let mut checks = locked(&self.last_checks);
        if checks.get(&node).is_none_or(|last| last.at <= now) {
            checks.insert(node, GapCheck::first(now));
        }
    }

    /// When a check after a gap of a node is due; `None` if one for this node is to come anyway.
    fn next_check(&self, node: usize, now: Instant) -> Option<Instant> {
        let mut checks = locked(&self.last_checks);
        let check = match checks.get(&node) {
            Some(last) if last.at > now => return None,
            Some(&last) if now < last.at + last.interval() * 2 => {
                let repeated = last.repeated + 1;
                let next = GapCheck { repeated, ..last };
                let at = now.max(last.at + next.interval());
                GapCheck { at, repeated }
            }
            _ => GapCheck::first(now),
        };
        checks.insert(node, check);
        Some(check.at)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use async_trait::async_trait;
    use polylock_core::{
        AcquireRequest, ErrorKind, FencingToken, Grant, Lease, LeaseState, Liveness, LockGuard,
        LockKey, Released, RenewalRequest, Renewer, Result,
    };

    use super::*;
    use crate::lock::EventForwarder;
    use crate::topology::ConnectionEvents;

    /// A lease that is always held.
    #[derive(Debug)]
    struct Held {
        id: LeaseId,
        held_leases: Arc<HeldRedisLeases>,
        renewals: Arc<Renewals>,
    }

    /// How many renewals there were.
    #[derive(Debug, Default)]
    struct Renewals(AtomicUsize);

    #[async_trait]
    impl Renewer for Renewals {
        async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
            self.0.fetch_add(due.len(), Ordering::SeqCst);
            due.iter().map(|_| Ok(LeaseState::Held)).collect()
        }
    }

    #[async_trait]
    impl Lease for Held {
        fn liveness(&self) -> Liveness {
            Liveness::Renewed {
                id: self.id,
                renewer: Arc::clone(&self.renewals) as _,
            }
        }

        fn attach(&self, control: LeaseControl) {
            self.held_leases.attach(self.id, control, None);
        }

        async fn hand_over(&self) -> Result<Option<FencingToken>> {
            Ok(None)
        }

        async fn downgrade(&self) -> Result<()> {
            Ok(())
        }

        async fn release(&self) -> Result<Released> {
            Ok(Released::Clean)
        }
    }

    /// Grants a lease. The first automatic renewal is due long after the test.
    fn grant(
        engine: &Engine,
        id: LeaseId,
        held_leases: &Arc<HeldRedisLeases>,
        renewals: &Arc<Renewals>,
    ) -> Result<LockGuard> {
        let lease = Arc::new(Held {
            id,
            held_leases: Arc::clone(held_leases),
            renewals: Arc::clone(renewals),
        });
        let key = LockKey::new("a").unwrap();
        let request = AcquireRequest::new(key).with_ttl(AcquireRequest::MAX_TTL);
        let pending = engine.pending(request.key(), lease, request.ttl());
        pending.granted(&request, Grant::new(engine.now(), None))
    }

    fn message(id: LeaseId) -> Vec<u8> {
        format!("broken|{}", id.to_hex()).into_bytes()
    }

    #[tokio::test]
    async fn a_break_that_is_published_before_its_grant_is_processed_ends_the_lease() {
        let engine = Engine::of_this_process("redlock");
        let (held_leases, renewals) = (Arc::new(HeldRedisLeases::on(3, &engine)), Arc::default());
        let (id, other) = (engine.lease_id(), engine.lease_id());
        held_leases.broken(&message(id), 0);
        let guard = grant(&engine, id, &held_leases, &renewals).expect("a majority may have it");
        guard.release().await.unwrap();
        for node in [1, 2] {
            held_leases.broken(&message(id), node);
        }
        let guard = grant(&engine, other, &held_leases, &renewals);
        guard
            .expect("another lease was broken")
            .release()
            .await
            .unwrap();
        let error = grant(&engine, id, &held_leases, &renewals).expect_err("it is broken");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }

    #[tokio::test]
    async fn a_break_between_two_holders_of_a_lease_ends_it_for_the_second() {
        let (engine, renewals) = (Engine::of_this_process("redis"), Arc::default());
        let held_leases = Arc::new(HeldRedisLeases::on(1, &engine));
        let id = engine.lease_id();
        let first = grant(&engine, id, &held_leases, &renewals);
        first.expect("it is held").abandon();
        held_leases.broken(&message(id), 0);
        let error = grant(&engine, id, &held_leases, &renewals).expect_err("it is broken");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }

    #[test]
    fn only_the_last_breaks_of_other_leases_are_remembered() {
        let engine = Engine::of_this_process("redis");
        let held_leases = HeldRedisLeases::on(1, &engine);
        let last = engine.lease_id();
        let others = (0..2 * MAX_EARLY_BREAKS).map(|_| engine.lease_id());
        for id in others.chain([last]) {
            held_leases.broken(&message(id), 0);
        }
        let known = locked(&held_leases.leases);
        assert_eq!(known.early_breaks.len(), MAX_EARLY_BREAKS);
        assert_eq!(known.early_breaks.back(), Some(&(last, 0)));
    }

    #[test]
    fn gaps_in_short_order_cause_one_check_and_a_later_one() {
        let leases = HeldRedisLeases::on(1, &Engine::of_this_process("redis"));
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        for (gap, due) in [
            (0, Some(0)),
            (10, Some(1_000)),
            (20, None),
            (999, None),
            (1_001, Some(2_000)),
            (5_000, Some(5_000)),
        ] {
            assert_eq!(
                leases.next_check(0, at(gap)),
                due.map(at),
                "a gap after {gap} ms"
            );
        }
    }

    #[test]
    fn the_gaps_of_a_failover_cause_no_check_of_its_node_at_once() {
        let leases = HeldRedisLeases::on(3, &Engine::of_this_process("redis"));
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        leases.record_check(0, at(0));
        assert_eq!(leases.next_check(1, at(0)), Some(at(0)), "another node");
        assert_eq!(leases.next_check(0, at(10)), Some(at(1_000)));
        // The one that is to come is not forgotten.
        leases.record_check(0, at(20));
        assert_eq!(leases.next_check(0, at(30)), None);
        assert_eq!(leases.next_check(0, at(20_000)), Some(at(20_000)));
    }

    #[test]
    fn gaps_that_do_not_end_cause_a_check_in_8_s() {
        let leases = HeldRedisLeases::on(1, &Engine::of_this_process("redis"));
        let start = Instant::now();
        let seconds = |n| start + Duration::from_secs(n);
        let mut checks = Vec::new();
        for n in 0..60 {
            checks.extend(leases.next_check(0, seconds(n)));
        }
        let expected = [0, 1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64].map(seconds);
        assert_eq!(checks, expected);
        // After a quiet time, at once.
        assert_eq!(leases.next_check(0, seconds(90)), Some(seconds(90)));
    }

    #[test]
    fn a_node_with_many_gaps_delays_no_check_of_another() {
        let leases = HeldRedisLeases::on(3, &Engine::of_this_process("redis"));
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        for n in 0..=16 {
            leases.next_check(0, at(n * 1_000));
        }
        for (node, gap, due) in [
            (0, 17_000, None),
            (1, 17_000, Some(17_000)),
            (2, 17_010, Some(17_010)),
            (1, 17_020, Some(18_000)),
            // Nor does another one bring its own forward.
            (0, 17_030, None),
            (0, 24_010, Some(32_000)),
            (1, 24_010, Some(24_010)),
        ] {
            let found = leases.next_check(node, at(gap));
            assert_eq!(found, due.map(at), "node {node} at {gap}");
        }
    }

    #[tokio::test]
    async fn a_gap_of_any_node_renews_the_leases_although_the_checks_of_others_are_due_later() {
        let engine = Engine::of_this_process("redlock");
        for node in 0..3 {
            let held_leases = Arc::new(HeldRedisLeases::on(3, &engine));
            let renewals = Arc::<Renewals>::default();
            let guard = grant(&engine, engine.lease_id(), &held_leases, &renewals);
            let guard = guard.unwrap();
            let later = GapCheck::first(Instant::now() + Duration::from_secs(3_600));
            let others = (0..3).filter(|other| *other != node);
            *locked(&held_leases.last_checks) = others.map(|other| (other, later)).collect();
            let events = EventForwarder {
                node,
                notifications: Arc::default(),
                held_leases,
            };
            events.on_gap();
            lock_testkit::locks::until("a renewal", async || renewals.0.load(Ordering::SeqCst) > 0)
                .await;
            guard.release().await.unwrap();
        }
    }
}
