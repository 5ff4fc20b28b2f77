use lock_core::engine::{Entropy, SeededEntropy};
use lock_history::{Access, Hold, Violation, check_holds};

use super::super::token::{Agreement, Raised};
use super::super::votes::{Decision, Votes};
use super::node::Node;

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Whether a token has to be on record with a majority before it counts.
    pub(super) records: bool,
    /// Whether all are readers; else all are writers.
    pub(super) shared: bool,
}

/// Some clients that acquire and release, one message at a time.
pub(super) struct History {
    rules: Rules,
    chance: SeededEntropy,
    now: u64,
    nodes: Vec<Node>,
    clients: Vec<Option<Attempt>>,
    /// Votes that nobody waits for any more, and that may still arrive.
    stray: Vec<(u64, usize, u64)>,
    guards: Vec<Hold>,
}

struct Attempt {
    id: u64,
    began: u64,
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
    Holding,
    Raising,
    Releasing,
}

const TTL: u64 = 1_000;
const STEPS: usize = 800;
const CLIENTS: usize = 4;

impl History {
    pub(super) fn new(seed: u64, rules: Rules) -> Self {
        let chance = SeededEntropy::new(seed);
        let nodes = 3 + (seed % 4) as usize;
        Self {
            rules,
            chance,
            now: 0,
            nodes: (0..nodes).map(|_| Node::default()).collect(),
            clients: (0..CLIENTS).map(|_| None).collect(),
            stray: Vec::new(),
            guards: Vec::new(),
        }
    }

    /// The guards that there were, in the order of their grants, and what is wrong with them.
    pub(super) fn run(mut self) -> (Vec<Hold>, Vec<Violation>) {
        for id in 1..=STEPS as u64 {
            self.now += self.below(TTL / 25);
            let client = self.below(CLIENTS as u64) as usize;
            let attempt = match self.clients[client].take() {
                Some(attempt) => self.step(attempt),
                None => Some(self.begin(id)),
            };
            self.clients[client] = attempt;
            if !self.stray.is_empty() && self.below(4) == 0 {
                let at = self.below(self.stray.len() as u64) as usize;
                let (id, node, until) = self.stray.swap_remove(at);
                // A lease counts from when the node grants it, which is later than it was sent.
                let until = until.max(self.now + TTL);
                self.nodes[node].vote(id, self.rules.shared, self.now, until);
            }
        }
        let wrong = check_holds(self.guards.iter().copied());
        (self.guards, wrong)
    }

    fn begin(&mut self, id: u64) -> Attempt {
        let count = self.nodes.len();
        Attempt {
            id,
            began: self.now,
            phase: Phase::Asking,
            missing: (0..count).collect(),
            votes: Votes::new(count),
            agreement: Agreement::new(count, 0),
            raising: 0,
        }
    }

    /// One message, or the end of a hold; `None` when the client is done.
    fn step(&mut self, mut attempt: Attempt) -> Option<Attempt> {
        if attempt.phase == Phase::Holding {
            return match self.below(10) {
                // It dies, and its lease runs out.
                0 => None,
                1..4 => Some(self.giving_back(attempt)),
                _ => Some(attempt),
            };
        }
        if attempt.missing.is_empty() {
            return None;
        }
        let at = self.below(attempt.missing.len() as u64) as usize;
        let node = attempt.missing.swap_remove(at);
        let (request_lost, reply_lost) = (self.below(16) == 0, self.below(16) == 0);
        let lost = request_lost || reply_lost;
        match attempt.phase {
            Phase::Asking => {
                let (until, shared) = (self.now + TTL, self.rules.shared);
                let granted = (!request_lost)
                    .then(|| self.nodes[node].vote(attempt.id, shared, self.now, until))
                    .flatten();
                attempt.votes.add((!lost).then_some(granted.is_some()));
                if let Some(token) = granted.filter(|_| !lost) {
                    attempt.agreement.recorded(node, token);
                }
                Some(match attempt.votes.election() {
                    Decision::Open => attempt,
                    Decision::No | Decision::Unknown => self.giving_back(attempt),
                    Decision::Yes => {
                        let late = std::mem::take(&mut attempt.missing).into_iter();
                        let id = attempt.id;
                        self.stray.extend(late.map(|node| (id, node, until)));
                        self.settle(attempt)
                    }
                })
            }
            Phase::Raising => {
                let (id, token) = (attempt.id, attempt.raising);
                let raised = (!request_lost)
                    .then(|| self.nodes[node].raise(id, token, self.rules.shared, self.now));
                match raised.filter(|_| !lost) {
                    Some(Raised::Done) => attempt.agreement.recorded(node, token),
                    Some(Raised::Overtaken(last)) => attempt.agreement.overtaken(last),
                    _ => {}
                }
                let is_over = attempt.missing.is_empty() && attempt.agreement.token == token;
                let goes_on = !attempt.missing.is_empty() && !attempt.agreement.is_reached();
                Some(
                    match (goes_on, is_over && !attempt.agreement.is_reached()) {
                        (true, _) => attempt,
                        (false, true) => self.giving_back(attempt),
                        (false, false) => self.settle(attempt),
                    },
                )
            }
            Phase::Holding => Some(attempt),
            Phase::Releasing => {
                if !request_lost {
                    self.nodes[node].release(attempt.id);
                }
                Some(attempt)
            }
        }
    }

    fn settle(&mut self, mut attempt: Attempt) -> Attempt {
        if self.rules.records && !attempt.agreement.is_reached() {
            let all = 0..self.nodes.len();
            attempt.missing = all.filter(|n| attempt.agreement.is_behind(*n)).collect();
            attempt.phase = Phase::Raising;
            attempt.raising = attempt.agreement.token;
            return attempt;
        }
        let until = attempt.began + TTL - TTL / 10;
        if until <= self.now {
            return self.giving_back(attempt);
        }
        let access = match self.rules.shared {
            true => Access::Shared,
            false => Access::Exclusive,
        };
        let guard = Hold::new(attempt.id, self.now, until).with_access(access);
        let token = attempt.agreement.token;
        self.guards
            .push(guard.with_requested(attempt.began).with_token(token));
        attempt.phase = Phase::Holding;
        attempt
    }

    fn giving_back(&mut self, mut attempt: Attempt) -> Attempt {
        let mut guards = self.guards.iter_mut();
        if let Some(guard) = guards.find(|guard| guard.holder == attempt.id) {
            guard.until = guard.until.min(self.now);
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
