//! The model of a node, and the scripts that it is a model of.

use lock_testkit::servers::{RedisOptions, RedisServer, Reply};
use polylock_core::LockKey;

use super::super::token::Raised::{self, Done, NotHeld, Overtaken};
use super::super::votes::Vote;
use super::node::{Node, end};
use crate::keys::{Counter, Keys};
use crate::script::{RAISE, Script, VOTE, WITHDRAW};

/// A node. Tokens count from the last one that it has given.
trait Voter {
    /// The token, if the id gets the vote, alone or as a reader.
    fn vote(&mut self, id: u64, shared: bool) -> Option<u64>;

    fn raise(&mut self, id: u64, token: u64) -> Raised;

    fn release(&mut self, id: u64);
}

fn a_holder_records_its_token_and_no_smaller_one(node: &mut dyn Voter) {
    assert_eq!(node.vote(1, false), Some(1));
    assert_eq!(node.raise(1, 5), Done);
    assert_eq!(node.raise(1, 5), Done);
    assert_eq!(node.raise(1, 4), Overtaken(36));
    assert_eq!(node.raise(1, 40), Done);
}

fn nobody_records_a_token_of_a_lock_that_it_does_not_hold(node: &mut dyn Voter) {
    assert_eq!(node.raise(1, 5), NotHeld);
    assert_eq!(node.vote(1, false), Some(1));
    assert_eq!(node.vote(2, false), None);
    assert_eq!(node.raise(2, 50), NotHeld);
    node.release(1);
    assert_eq!(node.raise(1, 50), NotHeld);
    assert_eq!(node.vote(2, false), Some(33));
}

fn of_two_readers_one_has_a_token_whoever_asks_first(node: &mut dyn Voter) {
    assert_eq!(node.vote(1, true), Some(1));
    assert_eq!(node.vote(2, true), Some(2));
    assert_eq!(node.raise(1, 2), Overtaken(2));
    assert_eq!(node.raise(2, 2), Done);
    assert_eq!(node.raise(1, 3), Done);
    assert_eq!(node.raise(2, 3), Overtaken(3));
    assert_eq!(node.raise(2, 4), Done);
}

fn a_writer_waits_for_a_reader_and_their_tokens_differ(node: &mut dyn Voter) {
    assert_eq!(node.vote(1, true), Some(1));
    assert_eq!(node.vote(2, false), None);
    assert_eq!(node.raise(1, 7), Done);
    node.release(1);
    assert_eq!(node.vote(2, false), Some(8));
    assert_eq!(node.raise(2, 8), Done);
    node.release(2);
    assert_eq!(node.vote(3, true), Some(40));
}

fn a_release_that_comes_before_its_vote_leaves_nothing_to_get(node: &mut dyn Voter) {
    node.release(1);
    assert_eq!(node.vote(1, false), None);
    assert_eq!(node.raise(1, 9), NotHeld);
    assert_eq!(node.vote(2, false), Some(1));
}

const CASES: [fn(&mut dyn Voter); 5] = [
    a_holder_records_its_token_and_no_smaller_one,
    nobody_records_a_token_of_a_lock_that_it_does_not_hold,
    of_two_readers_one_has_a_token_whoever_asks_first,
    a_writer_waits_for_a_reader_and_their_tokens_differ,
    a_release_that_comes_before_its_vote_leaves_nothing_to_get,
];

#[test]
fn the_model_answers_as_the_scripts_do() {
    for case in CASES {
        case(&mut Model::default());
    }
}

#[test]
fn the_scripts_answer_as_the_model_does() {
    let server = RedisServer::start(RedisOptions::new());
    for (at, case) in CASES.iter().enumerate() {
        case(&mut Scripts::new(&server, &format!("case-{at}")));
    }
}

/// How the holders hold it: a raise does not say that.
#[derive(Default)]
struct Model {
    node: Node,
    is_shared: bool,
}

impl Voter for Model {
    fn vote(&mut self, id: u64, shared: bool) -> Option<u64> {
        let Vote::Granted(token) = self.node.vote(id, shared, 0, 1) else {
            return None;
        };
        self.is_shared = shared;
        Some(token)
    }

    fn raise(&mut self, id: u64, token: u64) -> Raised {
        self.node.raise(id, token, self.is_shared, 0)
    }

    fn release(&mut self, id: u64) {
        self.node.release(id);
    }
}

/// A node of its own for each lock of a server.
struct Scripts<'a> {
    server: &'a RedisServer,
    keys: Keys,
    /// The last token before the case, ahead of the clock, which tokens never fall behind.
    base: u64,
    is_shared: bool,
}

impl<'a> Scripts<'a> {
    fn new(server: &'a RedisServer, name: &str) -> Self {
        let keys = Keys::of(&LockKey::new(name).unwrap(), Counter::Lock);
        let time = server.command(&["TIME"]);
        let seconds = time.items()[0].text().unwrap();
        let base = (seconds.parse::<u64>().unwrap() + 3_600) * 1_000_000;
        let fence = format!("{base:016}|{}", hex(0));
        server.command(&[b"SET", keys.tokens(), fence.as_bytes()]);
        Self {
            server,
            keys,
            base,
            is_shared: false,
        }
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

impl Voter for Scripts<'_> {
    fn vote(&mut self, id: u64, shared: bool) -> Option<u64> {
        let (id, mode) = (hex(id), if shared { "s" } else { "x" });
        let holder = format!("{id}|");
        let limit = "9e15";
        let args = [RETENTION, &id, &holder, mode, "60000", "0", "", "", limit];
        let Reply::Integer(token) = self.eval(&VOTE, &args) else {
            return None;
        };
        self.is_shared = shared;
        Some(self.after_base(token))
    }

    fn raise(&mut self, id: u64, token: u64) -> Raised {
        let token = self.base + token;
        let top = end(self.is_shared, token).to_string();
        match self.eval(&RAISE, &[RETENTION, &hex(id), &token.to_string(), &top]) {
            Reply::Integer(0) => NotHeld,
            Reply::Integer(1) => Done,
            Reply::Integer(last) => Overtaken(self.after_base(last)),
            reply => panic!("raise.lua answers {reply:?}"),
        }
    }

    fn release(&mut self, id: u64) {
        self.eval(&WITHDRAW, &[&hex(id)]);
    }
}

fn hex(id: u64) -> String {
    format!("{id:032x}")
}
