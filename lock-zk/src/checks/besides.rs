//! What an ensemble is like, beyond the checks of every start. Pure.

use std::time::Duration;

use lock_core::HealthCheck;

use super::scratch::{Root, Step, Tried};
use crate::diagnose_connect::{Answer, Answers};

/// What was seen in a session, and of each server that the URL names.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) answers: Answers,
    pub(super) granted: Duration,
    pub(super) root: String,
    pub(super) scratch: Tried,
}

/// Adds what each check shows to what the checks of every start have.
pub(super) fn added(mut found: Vec<HealthCheck>, visit: &Visit) -> Vec<HealthCheck> {
    let better = [version(visit), session_timeout(visit)];
    for health in better.into_iter().flatten() {
        let same = |known: &&mut HealthCheck| known.id == health.id && !known.is_fault();
        if let Some(known) = found.iter_mut().find(same) {
            *known = health;
        }
    }
    found.extend([quorum(visit), root(visit)]);
    found.extend([rights(visit), clock(visit)].into_iter().flatten());
    found
}

/// What the servers say themselves, where their list says only the least.
fn version(visit: &Visit) -> Option<HealthCheck> {
    let versions = visit
        .answers
        .0
        .iter()
        .filter_map(|(_, answer)| match answer {
            Answer::Serving(version) => version.as_deref(),
            _ => None,
        });
    let mut versions: Vec<&str> = versions.collect();
    versions.sort_unstable();
    versions.dedup();
    let what = format!("the servers are ZooKeeper {}", versions.join(" and "));
    (!versions.is_empty()).then(|| HealthCheck::ok("version", what))
}

fn session_timeout(visit: &Visit) -> Option<HealthCheck> {
    (visit.granted < SHORT).then(|| {
        HealthCheck::warning(
            "session-timeout",
            format!("the session time-out is {:?}", visit.granted),
            "a pause of the process or of a server, such as for garbage collection, and the \
             election of a leader cost all locks",
            "ask for a session-timeout of 10s or more, 4s at least",
        )
    })
}

/// The least that servers grant unless configured.
const SHORT: Duration = Duration::from_secs(4);

fn quorum(visit: &Visit) -> HealthCheck {
    let named = &visit.answers.0;
    let serves = |answer: &Answer| matches!(answer, Answer::Serving(_));
    let others: Vec<String> = named
        .iter()
        .filter(|(_, answer)| !serves(answer))
        .map(|(address, answer)| format!("{address} {answer}"))
        .collect();
    if others.is_empty() {
        return HealthCheck::ok("quorum", "every server that the URL names serves");
    }
    HealthCheck::warning(
        "quorum",
        format!(
            "{} of {} servers that the URL names do not serve: {}",
            others.len(),
            named.len(),
            others.join("; ")
        ),
        "the ensemble carries the loss of so many fewer",
        "bring them back, or name those that there are",
    )
}

fn root(visit: &Visit) -> HealthCheck {
    let root = &visit.root;
    match visit.scratch.root {
        Root::There => HealthCheck::ok("root", format!("the root {root} is there")),
        Root::Made => HealthCheck::ok("root", format!("the root {root} was missing, and is made")),
        Root::Denied => HealthCheck::error(
            "root",
            format!("the root {root} is missing, and this user may not make it"),
            "nothing can be acquired",
            "make it with an access control list that lets this user create, read and delete, or \
             name another path",
        ),
    }
}

fn rights(visit: &Visit) -> Option<HealthCheck> {
    let root = &visit.root;
    if visit.scratch.root == Root::Denied {
        return None;
    }
    let error = |what: String| {
        Some(HealthCheck::error(
            "rights",
            what,
            "locks are refused; a wrong password of auth=digest shows like this as well",
            format!("let this user create, read and delete in {root}, see getAcl of zkCli.sh"),
        ))
    };
    match visit.scratch.denied {
        None => Some(HealthCheck::ok(
            "rights",
            "this user may do all that locks need",
        )),
        Some(Step::Create) => error(format!("this user may not create nodes in {root}")),
        Some(Step::Contend) => error("this user may not use the nodes that it has made".to_owned()),
        Some(Step::List) => Some(HealthCheck::warning(
            "rights",
            format!("this user may not read {root}"),
            "locks work, and cannot be listed",
            format!("let this user read {root}"),
        )),
        Some(Step::Delete) => Some(HealthCheck::warning(
            "rights",
            format!("this user may not delete nodes in {root}"),
            "a directory whose sequence numbers are used up cannot begin again",
            format!("let this user delete in {root}"),
        )),
    }
}

/// No fault: sessions end by a clock that nobody can set, and tokens count transactions.
fn clock(visit: &Visit) -> Option<HealthCheck> {
    let offset = visit.scratch.clock?;
    let what = if offset.least > MOST_OFFSET {
        format!(
            "the clock of the leader differs by {} s, which changes nothing for locks",
            offset.least.as_secs()
        )
    } else {
        let within = offset.most.as_millis() + 1;
        format!("the clock of the leader agrees with this one to within {within} ms")
    };
    Some(HealthCheck::ok("clock", what))
}

const MOST_OFFSET: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use lock_core::Status;

    use super::super::scratch::Offset;
    use super::*;

    fn serving(address: &str) -> (String, Answer) {
        let version = Some("3.8.0".to_owned());
        (address.to_owned(), Answer::Serving(version))
    }

    fn offset(least: Duration) -> Option<Offset> {
        let most = least + Duration::from_micros(300);
        Some(Offset { least, most })
    }

    fn good() -> Visit {
        Visit {
            answers: Answers(vec![serving("a:1"), serving("b:1")]),
            granted: SHORT,
            root: "/locks".to_owned(),
            scratch: Tried {
                clock: offset(Duration::ZERO),
                ..Tried::default()
            },
        }
    }

    fn at_start() -> Vec<HealthCheck> {
        vec![
            HealthCheck::ok("version", "3.5 or later"),
            HealthCheck::ok("session-timeout", "as asked for"),
        ]
    }

    type Change = fn(&mut Visit);

    #[test]
    fn each_fault_is_found_by_itself() {
        let cases: [(Change, &str, Status, &str); 7] = [
            (
                |v| v.granted = Duration::from_millis(3_999),
                "session-timeout",
                Status::Warning,
                "garbage collection",
            ),
            (
                |v| v.answers.0.push(("c:1".to_owned(), Answer::Electing)),
                "quorum",
                Status::Warning,
                "1 of 3 servers that the URL names do not serve: c:1 waits",
            ),
            (
                |v| v.scratch.root = Root::Denied,
                "root",
                Status::Error,
                "/locks is missing",
            ),
            (
                |v| v.scratch.denied = Some(Step::Create),
                "rights",
                Status::Error,
                "create nodes in /locks",
            ),
            (
                |v| v.scratch.denied = Some(Step::Contend),
                "rights",
                Status::Error,
                "it has made",
            ),
            (
                |v| v.scratch.denied = Some(Step::List),
                "rights",
                Status::Warning,
                "cannot be listed",
            ),
            (
                |v| v.scratch.denied = Some(Step::Delete),
                "rights",
                Status::Warning,
                "delete in /locks",
            ),
        ];
        for (change, check, status, says) in cases {
            let mut visit = good();
            change(&mut visit);
            let mut found = added(at_start(), &visit);
            found.retain(HealthCheck::is_fault);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((found[0].id, found[0].status), (check, status));
            assert!(found[0].to_string().contains(says), "{}", found[0]);
        }
    }

    #[test]
    fn what_is_harmless_is_not_found() {
        let cases: [Change; 4] = [
            |_| {},
            |v| v.scratch.root = Root::Made,
            |v| v.scratch.clock = offset(Duration::from_secs(3_600)),
            |v| v.scratch.clock = None,
        ];
        for change in cases {
            let mut visit = good();
            change(&mut visit);
            let found = added(at_start(), &visit);
            assert!(!found.iter().any(HealthCheck::is_fault), "{found:?}");
        }
        let found = added(at_start(), &good());
        assert_eq!(found[0].summary, "the servers are ZooKeeper 3.8.0");
        let clock = found.last().expect("there are some");
        assert!(clock.summary.ends_with("to within 1 ms"), "{clock}");
    }

    #[test]
    fn a_fault_of_the_start_stands() {
        let mut visit = good();
        visit.granted = Duration::from_secs(2);
        let fault = HealthCheck::warning("session-timeout", "2s, not 30s", "why", "way out");
        let found = added(vec![fault.clone()], &visit);
        assert_eq!(found[0], fault);
        assert_eq!(found.iter().filter(|f| f.is_fault()).count(), 1);
    }
}
