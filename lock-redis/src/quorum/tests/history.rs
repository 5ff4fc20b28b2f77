use polylock_core::engine::{Entropy, SeededEntropy};
use polylock_history::{Access, Hold, Violation, check_holds};

use super::super::token::{Agreement, Raised};
use super::super::votes::{Decision, Vote, Votes};
use super::node::Node;

/// The rules under test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Whether a token has to be on record with a majority before it counts.
    pub(super) records: bool,
    /// Whether all are readers; else all are writers.
    pub(super) shared: bool,
    /// Whether nodes restart, and how long they do not vote afterwards: with all data, with a snapshot,
    /// or without data.
    pub(super) restarts: Option<u64>,
    /// Whether a renewal needs a majority; else any node that has the lease is enough.
    pub(super) renews_by_majority: bool,
}

/// Some clients that acquire, renew and release, one message at a time.
pub(super) struct History {
    rules: Rules,
    chance: SeededEntropy,
    now: u64,
    nodes: Vec<Node>,
    snapshots: Vec<Node>,
    clients: Vec<Option<Attempt>>,
    /// Which nodes a client cannot reach at the moment.
    cut: Vec<Vec<bool>>,
    /// Votes that no client waits for, and that may still arrive.
    stray: Vec<(u64, usize)>,
    guards: Vec<Hold>,
}

struct Attempt {
    id: u64,
    /// When the first request of the acquisition or the renewal left.
    sent: u64,
    phase: Phase,
    /// Nodes whose answer is missing.
    missing: Vec<usize>,
    votes: Votes,
    agreement: Agreement,
    /// The token that nodes are asked to record.
    raising: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Asking,
    Raising,
    Holding,
    Renewing,
    Releasing,
}

pub(super) const TTL: u64 = 1_000;
const MARGIN: u64 = TTL / 10;
const STEPS: usize = 800;
const CLIENTS: usize = 4;

impl History {
    pub(super) fn new(seed: u64, rules: Rules) -> Self {
        let count = 3 + (seed % 4) as usize;
        let mut history = Self {
            rules,
            chance: SeededEntropy::new(seed),
            now: 0,
            nodes: Vec::new(),
            snapshots: Vec::new(),
            clients: (0..CLIENTS).map(|_| None).collect(),
            cut: vec![vec![false; count]; CLIENTS],
            stray: Vec::new(),
            guards: Vec::new(),
        };
        for _ in 0..count {
            // A node that forgets its tokens goes on at its clock.
            let clock = rules.restarts.map(|_| history.below(TTL * 100));
            history.nodes.push(Node::new(clock));
        }
        history.snapshots = history.nodes.clone();
        history
    }

    /// All guards in the order of their grants, and the violations among them.
    pub(super) fn run(mut self) -> (Vec<Hold>, Vec<Violation>) {
        for id in 1..=STEPS as u64 {
            self.now += self.below(TTL / 25);
            self.disturb();
            let client = self.below(CLIENTS as u64) as usize;
            let attempt = match self.clients[client].take() {
                Some(attempt) => self.step(client, attempt),
                None => Some(self.begin(id)),
            };
            self.clients[client] = attempt;
            if !self.stray.is_empty() && self.below(4) == 0 {
                let at = self.below(self.stray.len() as u64) as usize;
                let (id, node) = self.stray.swap_remove(at);
                let (now, until) = (self.now, self.now + TTL);
                self.nodes[node].vote(id, self.rules.shared, None, now, until);
            }
        }
        let wrong = check_holds(self.guards.iter().copied());
        (self.guards, wrong)
    }

    /// Cuts clients off, writes snapshots and restarts nodes.
    fn disturb(&mut self) {
        if self.below(50) == 0 {
            let mut cut = std::mem::take(&mut self.cut);
            let links = cut.iter_mut().flatten();
            links.for_each(|is_cut| *is_cut = self.below(4) == 0);
            self.cut = cut;
        }
        let node = self.below(self.nodes.len() as u64) as usize;
        match (self.rules.restarts, self.below(120)) {
            (Some(_), 0..4) => self.snapshots[node] = self.nodes[node].clone(),
            (Some(delay), 4) => {
                let snapshot = match self.below(3) {
                    0 => self.nodes[node].clone(),
                    1 => self.snapshots[node].clone(),
                    _ => self.nodes[node].forgotten(),
                };
                self.nodes[node].restart(snapshot, self.now + delay);
            }
            _ => {}
        }
    }

    fn begin(&mut self, id: u64) -> Attempt {
        let count = self.nodes.len();
        Attempt {
            id,
            sent: self.now,
            phase: Phase::Asking,
            missing: (0..count).collect(),
            votes: Votes::new(count),
            agreement: Agreement::new(count, 0),
            raising: 0,
        }
    }

    /// One message, or the end of a hold; `None` when the client is done.
    fn step(&mut self, client: usize, mut attempt: Attempt) -> Option<Attempt> {
        if matches!(attempt.phase, Phase::Holding | Phase::Renewing)
            && self.guard(&attempt).until <= self.now
        {
            return Some(self.give_back(attempt));
        }
        if attempt.phase == Phase::Holding {
            return match self.below(10) {
                // It dies, and its lease expires.
                0 => None,
                1..4 => Some(self.give_back(attempt)),
                4..7 => {
                    attempt.phase = Phase::Renewing;
                    attempt.sent = self.now;
                    attempt.missing = (0..self.nodes.len()).collect();
                    attempt.votes = Votes::new(self.nodes.len());
                    Some(attempt)
                }
                _ => Some(attempt),
            };
        }
        if attempt.missing.is_empty() {
            return None;
        }
        let at = self.below(attempt.missing.len() as u64) as usize;
        let node = attempt.missing.swap_remove(at);
        let is_cut = self.cut[client][node];
        let (is_sent, is_lost) = (!is_cut && self.below(16) > 0, self.below(16) == 0);
        let (id, now, shared) = (attempt.id, self.now, self.rules.shared);
        let at_node = is_sent.then(|| &mut self.nodes[node]);
        Some(match attempt.phase {
            Phase::Asking => {
                let vote = at_node.map(|node| node.vote(id, shared, None, now, now + TTL));
                attempt.votes.add(match vote.filter(|_| !is_lost) {
                    Some(Vote::Granted(token)) => {
                        attempt.agreement.recorded(node, token);
                        Some(true)
                    }
                    Some(Vote::Held { .. }) => Some(false),
                    Some(Vote::Rejoining { .. }) | None => None,
                });
                match attempt.votes.election() {
                    Decision::Open => attempt,
                    Decision::No | Decision::Unknown => self.give_back(attempt),
                    Decision::Yes => {
                        let late = std::mem::take(&mut attempt.missing).into_iter();
                        self.stray.extend(late.map(|node| (id, node)));
                        self.settle(attempt)
                    }
                }
            }
            Phase::Raising => {
                let token = attempt.raising;
                let raised = at_node.map(|node| node.raise(id, token, shared, now));
                match raised.filter(|_| !is_lost) {
                    Some(Raised::Done) => attempt.agreement.recorded(node, token),
                    Some(Raised::Overtaken(last)) => attempt.agreement.overtaken(last),
                    Some(Raised::NotHeld) | None => {}
                }
                match (attempt.agreement.is_reached(), attempt.missing.is_empty()) {
                    (false, false) => attempt,
                    (false, true) if attempt.agreement.token == token => self.give_back(attempt),
                    _ => self.settle(attempt),
                }
            }
            Phase::Renewing => {
                let held = at_node.map(|node| node.extend(id, now, now + TTL));
                let answer = held.filter(|_| !is_lost);
                attempt.votes.add(answer);
                let verdict = match (self.rules.renews_by_majority, answer) {
                    (false, Some(true)) => Decision::Yes,
                    _ => attempt.votes.verdict(),
                };
                match verdict {
                    Decision::Open => return Some(attempt),
                    Decision::No => return Some(self.give_back(attempt)),
                    Decision::Unknown => {}
                    Decision::Yes => {
                        let until = attempt.sent + TTL - MARGIN;
                        let guard = self.guard(&attempt);
                        guard.until = guard.until.max(until);
                    }
                }
                attempt.phase = Phase::Holding;
                attempt
            }
            Phase::Releasing => {
                if let Some(node) = at_node {
                    node.release(id);
                }
                attempt
            }
            Phase::Holding => attempt,
        })
    }

    fn settle(&mut self, mut attempt: Attempt) -> Attempt {
        if self.rules.records && !attempt.agreement.is_reached() {
            let all = 0..self.nodes.len();
            attempt.missing = all.filter(|n| attempt.agreement.is_behind(*n)).collect();
            attempt.phase = Phase::Raising;
            attempt.raising = attempt.agreement.token;
            return attempt;
        }
        let until = attempt.sent + TTL - MARGIN;
        if until <= self.now {
            return self.give_back(attempt);
        }
        let access = match self.rules.shared {
            true => Access::Shared,
            false => Access::Exclusive,
        };
        let guard = Hold::new(attempt.id, self.now, until).with_access(access);
        let token = attempt.agreement.token;
        self.guards
            .push(guard.with_requested(attempt.sent).with_token(token));
        attempt.phase = Phase::Holding;
        attempt
    }

    fn guard(&mut self, attempt: &Attempt) -> &mut Hold {
        let mut guards = self.guards.iter_mut();
        let guard = guards.find(|guard| guard.holder == attempt.id);
        guard.expect("a holder has a guard")
    }

    fn give_back(&mut self, mut attempt: Attempt) -> Attempt {
        if matches!(attempt.phase, Phase::Holding | Phase::Renewing) {
            let now = self.now;
            let guard = self.guard(&attempt);
            guard.until = guard.until.min(now);
        }
        attempt.phase = Phase::Releasing;
        attempt.missing = (0..self.nodes.len()).collect();
        attempt
    }

    fn below(&self, end: u64) -> u64 {
        let mut bytes = [0; 8];
        self.chance.fill(&mut bytes);
        u64::from_le_bytes(bytes) % end
    }
}
