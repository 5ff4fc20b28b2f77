use super::permission_probe::ClockOffset;
use super::*;

fn serving(address: &str) -> (String, Answer) {
    let version = Some("3.8.0".to_owned());
    (address.to_owned(), Answer::Serving(version))
}

fn offset(min: Duration) -> Option<ClockOffset> {
    let max = min + Duration::from_micros(300);
    Some(ClockOffset { min, max })
}

fn at_start() -> HealthFacts {
    HealthFacts {
        asked: Duration::from_secs(20),
        granted: Duration::from_secs(20),
        access: Access::Creator,
        is_open: false,
        members: Some(Members::Voters(3)),
        visit: None,
    }
}

fn visited() -> HealthFacts {
    HealthFacts {
        visit: Some(Visit {
            answers: Answers(vec![serving("a:1"), serving("b:1")]),
            root: "/locks".to_owned(),
            probe: PermissionProbe {
                clock: offset(Duration::ZERO),
                ..PermissionProbe::default()
            },
        }),
        ..at_start()
    }
}

fn visit(facts: &mut HealthFacts) -> &mut Visit {
    facts.visit.as_mut().expect("it is visited")
}

fn checks(facts: &HealthFacts) -> Vec<HealthCheck> {
    HealthRule::check_all(RULES, facts)
}

fn faults(facts: &HealthFacts) -> Vec<HealthCheck> {
    let mut found = checks(facts);
    found.retain(HealthCheck::is_fault);
    found
}

fn short(facts: &mut HealthFacts, asked: Duration) {
    (facts.granted, facts.asked) = (Duration::from_millis(3_999), asked);
}

fn electing(facts: &mut HealthFacts, address: &str) {
    let answers = &mut visit(facts).answers.0;
    answers.push((address.to_owned(), Answer::Electing));
}

type Change = fn(&mut HealthFacts);

/// Faults that a start finds as well as a visit.
const AT_START: [(Change, &str, &str); 5] = [
    (
        |f| f.members = Some(Members::Unlisted),
        "version",
        "older than ZooKeeper 3.5",
    ),
    (
        |f| f.members = Some(Members::Voters(1)),
        "ensemble",
        "three servers",
    ),
    (
        |f| f.members = Some(Members::Voters(4)),
        "ensemble",
        "4 servers that vote",
    ),
    (
        |f| short(f, Duration::from_secs(20)),
        "session-timeout",
        "is 3.999s, not the requested 20s",
    ),
    (|f| f.is_open = true, "access", "a user and a password"),
];

#[test]
fn each_fault_is_found_by_itself() {
    let on_visit: [(Change, &str, Status, &str); 7] = [
        (
            |f| short(f, Duration::from_millis(3_999)),
            "session-timeout",
            Status::Warning,
            "garbage collection",
        ),
        (
            |f| electing(f, "c:1"),
            "quorum",
            Status::Warning,
            "1 of 3 servers that the URL names do not serve: c:1 waits",
        ),
        (
            |f| visit(f).probe.root = RootState::Denied,
            "root",
            Status::Error,
            "/locks is missing",
        ),
        (
            |f| visit(f).probe.denied = Some(ProbeStep::Create),
            "rights",
            Status::Error,
            "create nodes in /locks",
        ),
        (
            |f| visit(f).probe.denied = Some(ProbeStep::Contend),
            "rights",
            Status::Error,
            "it has made",
        ),
        (
            |f| visit(f).probe.denied = Some(ProbeStep::List),
            "rights",
            Status::Warning,
            "cannot be listed",
        ),
        (
            |f| visit(f).probe.denied = Some(ProbeStep::Delete),
            "rights",
            Status::Warning,
            "delete nodes in /locks",
        ),
    ];
    let start = AT_START.map(|(change, check, says)| (change, check, Status::Warning, says));
    let start = start
        .iter()
        .flat_map(|case| [(at_start(), case), (visited(), case)]);
    let cases = start.chain(on_visit.iter().map(|case| (visited(), case)));
    for (mut facts, (change, check, status, says)) in cases {
        change(&mut facts);
        let found = faults(&facts);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].id, found[0].status), (*check, *status));
        assert!(found[0].to_string().contains(says), "{}", found[0]);
    }
}

#[test]
fn what_is_harmless_is_no_fault() {
    let cases: [Change; 6] = [
        |_| {},
        |f| f.members = Some(Members::Voters(5)),
        |f| f.members = None,
        |f| visit(f).probe.root = RootState::Created,
        |f| visit(f).probe.clock = offset(Duration::from_secs(3_600)),
        |f| visit(f).probe.clock = None,
    ];
    for change in cases {
        let mut facts = visited();
        change(&mut facts);
        assert_eq!(faults(&facts), []);
    }
    // A start does not know how long an election takes.
    let mut facts = at_start();
    short(&mut facts, Duration::from_millis(3_999));
    assert_eq!(faults(&facts), []);
    let found = checks(&visited());
    assert_eq!(found[0].summary, "the servers are ZooKeeper 3.8.0");
    let clock = found.last().expect("there are some");
    assert!(clock.summary.ends_with("to within 1 ms"), "{clock}");
}

#[test]
fn what_is_not_told_is_not_checked() {
    for (mut facts, expected) in [
        (at_start(), &["version", "ensemble"][..]),
        (visited(), &["ensemble"]),
    ] {
        facts.members = None;
        let found = checks(&facts);
        let unknown = found.iter().filter(|f| f.status == Status::NotChecked);
        let unknown: Vec<_> = unknown.map(|health| health.id).collect();
        assert_eq!(unknown, expected);
    }
}

#[test]
fn observers_do_not_vote() {
    let text = "server.1=a:2888:3888:participant;0.0.0.0:2181\n\
                server.2=b:2888:3888:participant;0.0.0.0:2181\n\
                server.3=c:2888:3888;0.0.0.0:2181\n\
                server.4=d:2888:3888:observer;0.0.0.0:2181\nversion=100000000";
    assert_eq!(voters(text), Members::Voters(3));
    assert_eq!(voters(""), Members::Voters(1));
}
