//! The model of a node, and the scripts that it is a model of.

use std::fmt::Write;

use lock_testkit::servers::{RedisOptions, RedisServer, Reply};

use super::super::token::Raised;
use super::super::votes;
use super::node::{Node, end};
use crate::keys::{Counter, Keys};
use crate::script::{RAISE, Script, VOTE, WITHDRAW};
use polylock_core::LockKey;

/// What a client asks a node for. Tokens count from the last one that the node has given.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// Of an id, alone or as a reader.
    Vote(u64, bool),
    Raise(u64, u64),
    Release(u64),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum AcquireReply {
    Granted(u64),
    Held,
    NotHeld,
    /// By this last token.
    Overtaken(u64),
    Raised,
    Released,
}

use self::AcquireReply::{Granted, Held, NotHeld, Overtaken, Raised as Recorded, Released};
use self::Call::{Raise, Release, Vote};

/// What is tried, and what a node answers.
const TABLE: [(&str, &[(Call, AcquireReply)]); 5] = [
    (
        "a holder records its token, and no smaller one",
        &[
            (Vote(1, false), Granted(1)),
            (Raise(1, 5), Recorded),
            (Raise(1, 5), Recorded),
            (Raise(1, 4), Overtaken(36)),
            (Raise(1, 40), Recorded),
        ],
    ),
    (
        "nobody records a token of a lock that it does not hold",
        &[
            (Raise(1, 5), NotHeld),
            (Vote(1, false), Granted(1)),
            (Vote(2, false), Held),
            (Raise(2, 50), NotHeld),
            (Release(1), Released),
            (Raise(1, 50), NotHeld),
            (Vote(2, false), Granted(33)),
        ],
    ),
    (
        "of two readers one has a token, whoever asks first",
        &[
            (Vote(1, true), Granted(1)),
            (Vote(2, true), Granted(2)),
            (Raise(1, 2), Overtaken(2)),
            (Raise(2, 2), Recorded),
            (Raise(1, 3), Recorded),
            (Raise(2, 3), Overtaken(3)),
            (Raise(2, 4), Recorded),
        ],
    ),
    (
        "a writer waits for a reader, and their tokens differ",
        &[
            (Vote(1, true), Granted(1)),
            (Vote(2, false), Held),
            (Raise(1, 7), Recorded),
            (Release(1), Released),
            (Vote(2, false), Granted(8)),
            (Raise(2, 8), Recorded),
            (Release(2), Released),
            (Vote(3, true), Granted(40)),
        ],
    ),
    (
        "a release that comes before its vote leaves nothing to get",
        &[
            (Release(1), Released),
            (Vote(1, false), Held),
            (Raise(1, 9), NotHeld),
            (Vote(2, false), Granted(1)),
        ],
    ),
];

/// Runs a case; where an answer differs from the table, says which.
fn run(calls: &[(Call, AcquireReply)], mut node: impl FnMut(Call) -> AcquireReply) -> String {
    let mut wrong = String::new();
    for (at, (call, expected)) in calls.iter().enumerate() {
        let answer = node(*call);
        if answer != *expected {
            write!(
                wrong,
                " call {at}, {call:?}, is answered {answer:?} and not {expected:?};"
            )
            .unwrap();
        }
    }
    wrong
}

#[test]
fn the_model_and_the_scripts_answer_the_same() {
    let server = RedisServer::start(RedisOptions::new());
    let mut wrong = Vec::new();
    for (at, (what, calls)) in TABLE.iter().enumerate() {
        let (mut model, mut is_shared) = (Node::default(), false);
        let of_model = run(calls, |call| ask_model(&mut model, &mut is_shared, call));
        let keys = Keys::of(&LockKey::new(format!("case-{at}")).unwrap(), Counter::Lock);
        let mut scripts = Scripts::new(&server, keys);
        let of_scripts = run(calls, |call| scripts.ask(call));
        for (whose, differs) in [("the model", of_model), ("the scripts", of_scripts)] {
            if !differs.is_empty() {
                wrong.push(format!("{whose}: {what}:{differs}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// `is_shared` is how the holders hold it: a raise does not say that.
fn ask_model(node: &mut Node, is_shared: &mut bool, call: Call) -> AcquireReply {
    const NOW: u64 = 0;
    match call {
        Vote(id, shared) => match node.vote(id, shared, NOW, NOW + 1) {
            votes::Vote::Granted(token) => {
                *is_shared = shared;
                Granted(token)
            }
            votes::Vote::Held(_) | votes::Vote::Rejoining(_) => Held,
        },
        Raise(id, token) => match node.raise(id, token, *is_shared, NOW) {
            Raised::Done => Recorded,
            Raised::NotHeld => NotHeld,
            Raised::Overtaken(last) => Overtaken(last),
        },
        Release(id) => {
            node.release(id);
            Released
        }
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
    fn new(server: &'a RedisServer, keys: Keys) -> Self {
        let time = server.command(&["TIME"]);
        let seconds = time.items()[0].text().unwrap();
        let base = (seconds.parse::<u64>().unwrap() + 3_600) * 1_000_000;
        let fence = format!("{base:016}|{}", id(0));
        let [_, name, ..] = keys.all();
        server.command(&[&b"SET"[..], name, fence.as_bytes()]);
        Self {
            server,
            keys,
            base,
            is_shared: false,
        }
    }

    fn ask(&mut self, call: Call) -> AcquireReply {
        match call {
            Vote(of, shared) => {
                let (id, mode) = (id(of), if shared { "s" } else { "x" });
                let holder = format!("{id}|");
                let args = [&id[..], &holder, mode, "60000", "0", "", "", "9e15"];
                match self.eval(&VOTE, &args) {
                    Reply::Integer(token) => {
                        self.is_shared = shared;
                        Granted(self.after_base(token))
                    }
                    _ => Held,
                }
            }
            Raise(of, token) => {
                let token = self.base + token;
                let (token, top) = (token.to_string(), end(self.is_shared, token).to_string());
                match self.eval(&RAISE, &[&id(of), &token, &top]) {
                    Reply::Integer(0) => NotHeld,
                    Reply::Integer(1) => Recorded,
                    Reply::Integer(last) => Overtaken(self.after_base(last)),
                    reply => panic!("raise.lua answers {reply:?}"),
                }
            }
            Release(of) => {
                self.eval(&WITHDRAW, &[&id(of)]);
                Released
            }
        }
    }

    fn eval(&self, script: &Script, args: &[&str]) -> Reply {
        let mut words = vec![b"EVAL".as_slice(), script.text.as_bytes(), b"4"];
        words.extend(self.keys.all());
        if script.name != WITHDRAW.name {
            words.push(b"3600000");
        }
        words.extend(args.iter().map(|arg| arg.as_bytes()));
        let reply = self.server.command(&words);
        assert!(!reply.is_error(), "{} fails: {reply:?}", script.name);
        reply
    }

    fn after_base(&self, token: i64) -> u64 {
        u64::try_from(token).unwrap() - self.base
    }
}

fn id(of: u64) -> String {
    format!("{of:032x}")
}
