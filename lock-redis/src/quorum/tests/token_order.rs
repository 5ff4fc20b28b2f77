//! Histories of nodes that forget their tokens while their clocks are late.
//!
//! The client is the real one, in virtual time. Only the nodes and the network are a model.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join;
use lock_testkit::sim::Rng;
use polylock_core::engine::{Engine, LeaseId};
use polylock_core::{AcquireRequest, LockKey};
use polylock_history::{Hold, Violation, check_holds};
use redis::Value;
use tokio::time::{Instant, sleep};

use super::super::NAME;
use super::super::acquire::{QuorumBackoff, QuorumOutcome};
use super::super::clock::ServerClock;
use super::super::lease::QuorumAcquisition;
use super::super::node::{Quorum, QuorumNode};
use super::super::token::Raised;
use super::super::votes::Vote;
use super::node::Node;
use crate::config::RedisConfig;
use crate::error::RedisFailure;
use crate::held_leases::HeldRedisLeases;
use crate::keys::{RedisKeys, TokenCounter};
use crate::locked;
use crate::script::{AGREE, Script, VOTE, WITHDRAW};
use crate::server::{RedisHolder, Server};
use crate::topology::{Call, CallKind, Done, RedisNode, Topology};

/// What keeps tokens from going back.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// Whether a client whose voters have late clocks waits for the other nodes.
    waits: bool,
    /// Whether a node that has another holder tells its last token.
    tells_if_held: bool,
    /// Whether a node that does not vote yet tells its last token.
    tells_if_rejoining: bool,
}

/// Those of the backend.
const RULES: Rules = Rules {
    waits: true,
    tells_if_held: true,
    tells_if_rejoining: true,
};

/// Enough to detect each missing rule.
const HISTORIES: u64 = 50;
const ROUNDS: u64 = 10;

/// In milliseconds, as all times below.
const TTL: u64 = 2_000;
const MARGIN: u64 = TTL / 10;
/// How long after its request a client waits for the other nodes, at a ttl of two seconds.
const GRACE: u64 = 500;
const TIMEOUT: u64 = 1_000;
/// How long a slow reply takes at most: longer than a client waits.
const SLOWEST: u64 = 800;
/// Competing clients begin within this time.
const SPREAD: u64 = 800;

/// An hour, in microseconds, as tokens.
const HOUR: u64 = 3_600_000_000;
/// The right time at the beginning of a history.
const BEGIN: u64 = 2 * HOUR;

/// The token that a client proposes at a time.
fn proposal_at(now: u64) -> u64 {
    BEGIN + now * 1_000
}

/// The nodes, and the network to them.
#[derive(Debug)]
struct Ensemble {
    rules: Rules,
    start: Instant,
    random: Mutex<Rng>,
    nodes: Mutex<Vec<Node>>,
    /// For each attempt, the last tokens that nodes had before their replies, and when these arrived.
    told: Mutex<HashMap<u64, Vec<(u64, u64)>>>,
}

impl Ensemble {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn below(&self, end: u64) -> u64 {
        locked(&self.random).below(end)
    }

    fn set_clocks(&self) {
        for node in locked(&self.nodes).iter_mut() {
            node.clock = Some(BEGIN);
        }
    }

    /// Restarts all nodes. Only one keeps its data, and most clocks are late afterwards.
    fn lose_power(&self) {
        let now = self.now();
        let mut nodes = locked(&self.nodes);
        let keeps = locked(&self.random).index(nodes.len());
        for (number, node) in nodes.iter_mut().enumerate() {
            if self.below(16) > 0 {
                node.clock = Some(BEGIN - HOUR);
            }
            let data = match number == keeps {
                true => node.clone(),
                false => node.forgotten(),
            };
            node.restart(data, now + TTL + self.below(TTL * 3 / 2));
        }
    }

    /// A client gets the votes of some nodes, and dies.
    fn vote_for_nobody(&self, id: u64) {
        let now = self.now();
        for node in locked(&self.nodes).iter_mut() {
            if self.below(4) == 0 {
                node.vote(id, false, Some(proposal_at(now)), now, now + TTL);
            }
        }
    }

    /// The reply of `vote.lua`.
    fn reply(&self, vote: &Vote) -> Value {
        let refusal = |word: &str, detail, last, tells| {
            let last = if tells { last } else { 0 };
            Value::Array(vec![text(word), detail, int(last)])
        };
        match *vote {
            Vote::Granted(token) => int(token),
            Vote::Held { last, .. } => {
                refusal("held", Value::Int(-1), last, self.rules.tells_if_held)
            }
            Vote::Rejoining { last, .. } => refusal(
                "rejoining",
                text("run"),
                last,
                self.rules.tells_if_rejoining,
            ),
        }
    }
}

fn text(word: &str) -> Value {
    Value::BulkString(word.as_bytes().to_vec())
}

fn int(number: u64) -> Value {
    Value::Int(i64::try_from(number).expect("tokens are small"))
}

fn number(digits: &[u8], radix: u32) -> u64 {
    let digits = std::str::from_utf8(digits).expect("digits are a text");
    u64::from_str_radix(digits, radix).expect("digits are a number")
}

/// The connection to one node.
#[derive(Debug)]
struct Link {
    node: usize,
    ensemble: Arc<Ensemble>,
}

impl Link {
    /// Runs a script. For a vote, also returns the attempt and the last token of the node before it.
    fn execute(&self, script: &Script, args: &[&[u8]]) -> (Value, Option<(u64, u64)>) {
        let now = self.ensemble.now();
        let mut nodes = locked(&self.ensemble.nodes);
        let node = &mut nodes[self.node];
        if script.name == VOTE.name {
            let (id, proposal) = (number(args[1], 16), number(args[5], 10));
            let last = node.last;
            let vote = node.vote(id, false, Some(proposal), now, now + TTL);
            return (self.ensemble.reply(&vote), Some((id, last)));
        }
        if script.name == AGREE.name {
            let (id, token) = (number(args[1], 16), number(args[2], 10));
            let reply = match node.raise(id, token, false, now) {
                Raised::Done => int(1),
                Raised::NotHeld => int(0),
                Raised::Overtaken(last) => int(last),
            };
            return (reply, None);
        }
        assert_eq!(script.name, WITHDRAW.name);
        node.release(number(args[0], 16));
        // Or it had nothing, which makes no difference here.
        (int(1), None)
    }
}

#[async_trait]
impl Topology for Link {
    async fn open(&self) -> Result<(), RedisFailure> {
        Ok(())
    }

    /// One call in 24 loses its request or its reply. One reply in four is slow.
    async fn call(&self, call: Call<'_>) -> Result<Done, RedisFailure> {
        let CallKind::Script { script, args, .. } = call.kind else {
            unreachable!("a quorum runs scripts");
        };
        let ensemble = &*self.ensemble;
        let server: Arc<str> = "a:1".into();
        let there = ensemble.below(4);
        let slowest = if ensemble.below(4) == 0 { SLOWEST } else { 4 };
        let (back, loss) = (ensemble.below(slowest), ensemble.below(48));
        sleep(Duration::from_millis(there)).await;
        let reply = (loss != 0).then(|| self.execute(script, args));
        let Some((value, told)) = reply.filter(|_| loss != 1) else {
            sleep(Duration::from_millis(TIMEOUT - there)).await;
            let timeout = Duration::from_millis(TIMEOUT);
            return Err(RedisFailure::silent(&server, timeout, true));
        };
        sleep(Duration::from_millis(back)).await;
        if let Some((id, last)) = told {
            let now = ensemble.now();
            let mut all = locked(&ensemble.told);
            all.entry(id).or_default().push((last, now));
        }
        Ok(Done {
            value,
            acked: 0,
            server,
        })
    }

    async fn channel(&self) -> Result<Option<Arc<str>>, RedisFailure> {
        Ok(None)
    }

    fn subscribed(&self) -> Option<Arc<str>> {
        None
    }

    async fn masters(&self) -> Result<Vec<Arc<RedisNode>>, RedisFailure> {
        Ok(Vec::new())
    }
}

/// Clients that acquire a lock before and after its nodes lose power.
#[derive(Debug)]
struct TokenHistory {
    ensemble: Arc<Ensemble>,
    quorum: Arc<Quorum>,
    /// In the order of their grants.
    holds: Mutex<Vec<Hold>>,
}

impl TokenHistory {
    async fn run(seed: u64, rules: Rules) -> Self {
        let random = Rng::stream(seed, "tokens", 0);
        let count = [3, 5, 7][(seed % 3) as usize];
        let ensemble = Arc::new(Ensemble {
            rules,
            start: Instant::now(),
            random: Mutex::new(random),
            nodes: Mutex::new(vec![Node::new(Some(BEGIN)); count]),
            told: Mutex::default(),
        });
        let history = Self {
            quorum: Arc::new(quorum(&ensemble, count)),
            ensemble,
            holds: Mutex::default(),
        };
        for round in 0..ROUNDS {
            let id = 4 * round + 1;
            history.ensemble.set_clocks();
            history.attempt(id).await;
            sleep(Duration::from_millis(2 * TTL)).await;
            history.ensemble.lose_power();
            // The votes of some nodes are counted again.
            sleep(Duration::from_millis(2 * TTL)).await;
            history.ensemble.vote_for_nobody(id + 1);
            join(history.attempt(id + 2), history.attempt(id + 3)).await;
            sleep(Duration::from_millis(2 * TTL)).await;
        }
        history
    }

    /// Requests votes once, and holds the lock if a majority grants it.
    async fn attempt(&self, id: u64) {
        let ensemble = &*self.ensemble;
        sleep(Duration::from_millis(ensemble.below(SPREAD))).await;
        let sent = ensemble.now();
        let ttl = Duration::from_millis(TTL);
        let request = AcquireRequest::new(LockKey::new("a").expect("it is a key"));
        let keys = Arc::new(RedisKeys::of(request.key(), TokenCounter::Lock));
        let lease = LeaseId::from_bytes(u128::from(id).to_be_bytes());
        let attempt = Arc::new(QuorumAcquisition {
            ttl,
            ..QuorumAcquisition::new(&self.quorum, keys, lease, RedisHolder::from(lease))
        });
        let grace = match ensemble.rules.waits {
            true => QuorumBackoff::new(&request).clock_grace(ttl),
            false => Duration::ZERO,
        };
        let outcome = attempt.ask_for_votes(proposal_at(sent), grace).await;
        let (from, end) = (ensemble.now(), sent + TTL - MARGIN);
        if let QuorumOutcome::Won(token) = outcome
            && from < end
        {
            let until = end.min(from + ensemble.below(TTL / 2));
            let hold = Hold::new(id, from, until).with_requested(sent);
            locked(&self.holds).push(hold.with_token(token.value()));
            sleep(Duration::from_millis(until - from)).await;
            // It dies, and its lease expires.
            if ensemble.below(4) == 0 {
                return;
            }
        }
        attempt.free_votes().await;
    }

    /// How many holders have a token that is not larger than an earlier one, although a node that remembers
    /// that one replied in time.
    fn disorders(&self) -> usize {
        let (holds, told) = (locked(&self.holds), locked(&self.ensemble.told));
        let is_disorder = |(n, hold): &(usize, &Hold)| {
            // The clock of the client is no warning of a token that is ahead of it.
            let clock = proposal_at(hold.requested);
            let told = told[&hold.holder].iter();
            let in_time = told.filter(|(last, at)| *at < hold.requested + GRACE && *last < clock);
            let last = in_time.map(|(last, _)| *last).max();
            let mut earlier = holds[..*n].iter().map(|hold| hold.token);
            earlier.any(|token| token <= last && token >= hold.token)
        };
        holds.iter().enumerate().filter(is_disorder).count()
    }

    /// How many holders exclude an earlier one that holds the lock.
    fn overlaps(&self) -> usize {
        let wrong = check_holds(locked(&self.holds).iter().copied());
        let is_overlap = |wrong: &&Violation| matches!(wrong, Violation::Overlap { .. });
        wrong.iter().filter(is_overlap).count()
    }

    /// How many tokens are below the clocks of their clients.
    fn late(&self) -> usize {
        let holds = locked(&self.holds);
        let is_late = |hold: &&Hold| hold.token < Some(proposal_at(hold.requested));
        holds.iter().filter(is_late).count()
    }
}

/// A client of the nodes of the model.
fn quorum(ensemble: &Arc<Ensemble>, count: usize) -> Quorum {
    let engine = Engine::on_current_runtime(NAME);
    let config = RedisConfig::new("a", 1);
    let node = |number| {
        let ensemble = Arc::clone(ensemble);
        let link = Link {
            node: number,
            ensemble,
        };
        Arc::new(QuorumNode {
            number,
            server: Server::new(Arc::new(link), &config).of_quorum(),
            name: format!("node {number}"),
            engine: engine.clone(),
            retention: "3600000".to_owned(),
            clock: ServerClock::default(),
            // The nodes of the model know when they vote.
            rejoin_delay: Duration::ZERO,
            run: Mutex::default(),
            watcher: Mutex::default(),
        })
    };
    Quorum {
        nodes: (0..count).map(node).collect(),
        held_leases: Arc::new(HeldRedisLeases::on(count, &engine)),
        engine,
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_any_node_reports_in_time_is_continued() {
    let mut late = 0;
    for seed in 0..HISTORIES {
        let history = TokenHistory::run(seed, RULES).await;
        let holds = &history.holds;
        assert_eq!(history.disorders(), 0, "history {seed}: {holds:?}");
        assert_eq!(history.overlaps(), 0, "history {seed}: {holds:?}");
        late += history.late();
    }
    // Each is the grant of nodes whose clocks are late.
    assert!(late > 100, "too few to tell: {late}");
}

#[tokio::test(start_paused = true)]
async fn a_token_goes_back_without_the_wait_or_what_the_others_tell() {
    for rules in [
        Rules {
            waits: false,
            ..RULES
        },
        Rules {
            tells_if_held: false,
            ..RULES
        },
        Rules {
            tells_if_rejoining: false,
            ..RULES
        },
    ] {
        let mut disorders = 0;
        for seed in 0..HISTORIES {
            disorders += TokenHistory::run(seed, rules).await.disorders();
            if disorders > 0 {
                break;
            }
        }
        assert!(disorders > 0, "{rules:?}: every token was continued");
    }
}
