//! The model of a node, and the scripts that it is a model of.

use std::collections::HashMap;

use lock_testkit::servers::{RedisOptions, RedisServer, Reply};
use lock_testkit::sim::Rng;
use polylock_core::LockKey;

use super::super::token::Raised::{self, Done, NotHeld, Overtaken};
use super::super::votes::Vote;
use super::node::{Node, end};
use crate::keys::{RedisKeys, TokenCounter};
use crate::script::{AGREE, Script, VOTE, WITHDRAW};

/// Readers and writers vote, record tokens around the last one and release, some before their votes.
#[test]
fn the_model_answers_as_the_scripts_do() {
    let server = RedisServer::start(RedisOptions::new());
    let (mut granted, mut overtaken) = (0, 0);
    for seed in 0..20 {
        let (mut random, mut model) = (Rng::stream(seed, "votes", 0), Node::default());
        let scripts = Scripts::new(&server, &format!("lock-{seed}"));
        let (mut modes, mut holders, mut early, mut last) = (HashMap::new(), Vec::new(), None, 0);
        for step in 1..=60 {
            let known: Vec<u64> = holders.iter().copied().chain(early).chain([step]).collect();
            let id = *random.pick(&known);
            let shared = *modes.entry(id).or_insert_with(|| random.chance(600));
            let is_holder = holders.contains(&id);
            // A node of the model tells readers and writers apart by the votes alone.
            let beside_writer = shared && holders.iter().any(|holder| !modes[holder]);
            match random.below(3) {
                0 if !is_holder && !beside_writer => {
                    let vote = match model.vote(id, shared, None, 0, 1) {
                        Vote::Granted(token) => Ok(token),
                        Vote::Held { last, .. } => Err(last),
                        Vote::Rejoining { .. } => unreachable!("it has not restarted"),
                    };
                    let by_script = scripts.vote(id, shared);
                    assert_eq!(
                        by_script, vote,
                        "vote({id}, shared: {shared}) by script and model, step {step} of seed {seed}"
                    );
                    if let Ok(token) = vote {
                        (granted, last) = (granted + 1, token);
                        holders.push(id);
                    }
                }
                1 => {
                    let token = (last + random.below(40)).saturating_sub(20).max(1);
                    let raised = model.raise(id, token, shared, 0);
                    let by_script = scripts.raise(id, token, shared);
                    assert_eq!(
                        by_script, raised,
                        "raise({id}, {token}, shared: {shared}) by script and model, step {step} of \
                         seed {seed}"
                    );
                    overtaken += usize::from(matches!(raised, Overtaken(_)));
                }
                _ => {
                    model.release(id);
                    scripts.release(id);
                    holders.retain(|holder| *holder != id);
                    early = Some(id).filter(|_| !is_holder).or(early);
                }
            }
        }
    }
    assert!(
        granted > 100 && overtaken > 10,
        "too few to tell: {granted} votes granted, {overtaken} tokens overtaken"
    );
}

/// A node of its own for each lock of a server.
struct Scripts<'a> {
    server: &'a RedisServer,
    keys: RedisKeys,
    /// The last token before the case, ahead of the clock, which tokens never fall behind.
    base: u64,
}

impl<'a> Scripts<'a> {
    fn new(server: &'a RedisServer, name: &str) -> Self {
        let keys = RedisKeys::of(&LockKey::new(name).unwrap(), TokenCounter::Lock);
        let time = server.command(&["TIME"]);
        let seconds = time.items()[0].text().unwrap();
        let base = (seconds.parse::<u64>().unwrap() + 3_600) * 1_000_000;
        let fence = format!("{base:016}|{}", hex(0));
        server.command(&[b"SET", keys.tokens(), fence.as_bytes()]);
        Self { server, keys, base }
    }

    fn eval(&self, script: &Script, args: &[&str]) -> Reply {
        let mut words = vec![b"EVAL".as_slice(), script.text.as_bytes(), b"4"];
        words.extend(self.keys.all());
        words.extend(args.iter().map(|arg| arg.as_bytes()));
        let reply = self.server.command(&words);
        assert!(!reply.is_error(), "{} fails: {reply:?}", script.name);
        reply
    }

    fn after_base(&self, token: i64) -> u64 {
        u64::try_from(token).unwrap() - self.base
    }
}

const RETENTION: &str = "3600000";

impl Scripts<'_> {
    /// The token, if the id gets the vote, alone or as a reader; else the last token of the node, or 0
    /// if the id has ended.
    fn vote(&self, id: u64, shared: bool) -> Result<u64, u64> {
        let (id, mode) = (hex(id), if shared { "s" } else { "x" });
        let holder = format!("{id}|");
        let limit = "9e15";
        let args = [RETENTION, &id, &holder, mode, "60000", "0", "", "", limit];
        match self.eval(&VOTE, &args) {
            Reply::Integer(token) => Ok(self.after_base(token)),
            refused => match refused.items()[..] {
                [_, _, Reply::Integer(last)] => Err(self.after_base(last)),
                _ => Err(0),
            },
        }
    }

    fn raise(&self, id: u64, token: u64, shared: bool) -> Raised {
        let token = self.base + token;
        let top = end(shared, token).to_string();
        match self.eval(&AGREE, &[RETENTION, &hex(id), &token.to_string(), &top]) {
            Reply::Integer(0) => NotHeld,
            Reply::Integer(1) => Done,
            Reply::Integer(last) => Overtaken(self.after_base(last)),
            reply => panic!("agree.lua answers {reply:?}"),
        }
    }

    fn release(&self, id: u64) {
        self.eval(&WITHDRAW, &[&hex(id)]);
    }
}

fn hex(id: u64) -> String {
    format!("{id:032x}")
}
