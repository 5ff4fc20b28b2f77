//! The handle: which backend has the locks of a class, and how they are requested.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylock::config::{Config, ConfigErrors, ConfiguredLocks, Loader, Locks, Requirement, Scope};
use polylock::layers::{Event, Observer};
use polylock::prelude::*;

use super::{loader, parse};

const FILE: &str = "
default = 'near'
[backend.near]
url = 'memory:'
wait = 'never'
[backend.far]
url = 'memory:'
[backend.unused]
url = 'memory:'
[class.pay]
backend = 'far'
ttl = '2m'
wait = '20ms'
min-hold = '0s'
max-hold = 'forever'
[class.ship]
";

#[tokio::test]
async fn classes_have_their_backends_and_their_settings() {
    let locks = parse(FILE).unwrap().connect().await.unwrap();
    let pay = locks.class("pay").unwrap();
    let request = pay.apply(polylock::AcquireRequest::new(LockKey::new("k").unwrap()));
    assert_eq!(request.ttl(), Duration::from_secs(120));
    assert_eq!(request.wait(), Wait::AtMost(Duration::from_millis(20)));
    assert_eq!((request.max_hold(), request.class()), (None, Some("pay")));

    // A store for each URL, and one connection for the classes that share it.
    let paid = pay.lock("k").await.unwrap();
    let near = locks.default_backend().unwrap().lock("k").await.unwrap();
    let refused = locks.class("ship").unwrap().lock("k").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Contended);
    let refused = locks.backend("far").unwrap().try_lock("k").await.unwrap();
    assert!(refused.is_none());
    let began = tokio::time::Instant::now();
    let refused = pay.lock("k").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Contended);
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "the default wait is 30 s"
    );
    assert!(paid.is_held() && near.is_held());

    let both = pay.lock_all(["b", "a"]).await.unwrap();
    assert_eq!(both.guards().len(), 2);
    both.release().await.unwrap();
    paid.release().await.unwrap();
    let within = pay.lock_within("k", Duration::from_secs(1)).await.unwrap();
    within.release().await.unwrap();
    assert!(locks.shutdown(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_ticket_is_adopted_as_its_class_says() {
    let locks = parse(FILE).unwrap().connect().await.unwrap();
    let (pay, ship) = (locks.class("pay").unwrap(), locks.class("ship").unwrap());
    assert_eq!((pay.class(), ship.class()), (Some("pay"), Some("ship")));
    let held = pay.request("k").min_hold(Duration::from_secs(2 * 3_600));
    let ticket = held.acquire().await.unwrap().into_ticket().unwrap();
    let error = ship.adopt(&ticket).await.expect_err("it is another store");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let adopted = pay.adopt(&ticket).await.unwrap();
    assert!(adopted.fencing_token() > ticket.fencing_token());
    assert!(pay.try_lock("k").await.unwrap().is_none(), "it is held");
    let left = ticket.min_hold();
    assert!(
        left > Duration::from_secs(3_600),
        "beyond the max hold: {left:?}"
    );
    drop(adopted);
}

#[cfg(feature = "tower")]
#[tokio::test]
async fn a_locker_of_requests_waits_as_its_class_says() {
    use polylock::tower::{Locker, Reason};

    let locks = parse(FILE).unwrap().connect().await.unwrap();
    for (class, reason) in [("pay", Reason::TimedOut), ("ship", Reason::Busy)] {
        let class = locks.class(class).unwrap();
        let locker = class.locker("accounts").build().unwrap();
        let _held = locker.lock("7").await.unwrap();
        let began = tokio::time::Instant::now();
        assert_eq!(locker.lock("7").await.unwrap_err().reason(), reason);
        let waited = began.elapsed();
        assert!(waited < Locker::DEFAULT_WAIT, "refused after {waited:?}");
        let another = class
            .locker("accounts")
            .wait(Duration::from_millis(1))
            .build();
        let refused = another.unwrap().lock("7").await.unwrap_err();
        assert_eq!(refused.reason(), Reason::TimedOut);
    }
}

#[cfg(feature = "tower")]
#[tokio::test]
async fn a_locker_without_a_wait_in_the_configuration_waits_as_lockers_do() {
    use polylock::tower::{Locker, Reason};

    let locks = parse("backend.main.url = 'memory:'\n[class.pay]\n").unwrap();
    let locks = locks.connect().await.unwrap();
    let locker = locks.class("pay").unwrap().locker("accounts");
    let locker = locker.build().unwrap();
    let _held = locker.lock("7").await.unwrap();
    let began = tokio::time::Instant::now();
    let refused = locker.lock("7").await.unwrap_err();
    assert_eq!(refused.reason(), Reason::TimedOut);
    let waited = began.elapsed();
    // A request without a locker waits for 30 seconds.
    let expected = Locker::DEFAULT_WAIT..Duration::from_secs(30);
    assert!(expected.contains(&waited), "refused after {waited:?}");
}

#[test]
fn the_handles_go_wherever_tasks_go() {
    fn goes<T: Send + Sync + 'static>() {}
    fn is_sent(_: impl Send) {}

    goes::<Config>();
    goes::<ConfiguredLocks>();
    goes::<Loader>();
    goes::<Locks>();
    goes::<ConfigErrors>();
    is_sent(parse(FILE).unwrap().connect());
}

#[tokio::test]
async fn what_is_not_there_is_told_with_what_was_meant() {
    let locks = parse(FILE).unwrap().connect().await.unwrap();
    let open: Vec<_> = locks.backends().collect();
    assert_eq!(open, ["far", "near"]);
    let table = [
        (
            locks.class("pya"),
            "no class \"pya\", did you mean \"pay\"?",
        ),
        (
            locks.backend("naer"),
            "no backend \"naer\", did you mean \"near\"?",
        ),
        (
            locks.backend("unused"),
            "the backend \"unused\" is not open",
        ),
    ];
    for (result, expected) in table {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.message().contains(expected), "{error}");
    }
    let two = "backend.a.url = 'memory:'\nbackend.b.url = 'memory:'\n[class.x]\nbackend = 'a'\n";
    let locks = parse(two).unwrap().connect().await.unwrap();
    let error = locks.default_backend().unwrap_err();
    assert!(
        error.message().starts_with("there is no default backend"),
        "{error}"
    );
}

#[tokio::test]
async fn the_scope_says_what_is_opened() {
    let table = [
        (Scope::Program, vec!["far", "near"]),
        (Scope::All, vec!["far", "near", "unused"]),
        (Scope::Default, vec!["near"]),
        (Scope::Class("pay".to_owned()), vec!["far"]),
    ];
    for (scope, expected) in table {
        let config = loader(&[]).with_scope(scope).parse(FILE).unwrap();
        let locks = config.connect().await.unwrap();
        assert_eq!(locks.backends().collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn demands_that_are_not_met_fail_at_the_start_all_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("locks.db");
    let text = format!(
        "[backend.main]\nurl = 'memory:'\n[backend.file]\nurl = 'sqlite:{}'\n\
         [backend.spare]\nurl = 'memory:'\n\
         [class.first]\nbackend = 'file'\nrequire = ['fair', 'push', 'strong-fencing']\n\
         [class.second]\nbackend = 'file'\nrequire = ['push']\n\
         [class.third]\nbackend = 'main'\nrequire = ['fair', 'push', 'strong-fencing']\n",
        file.display()
    );
    let config = parse(&text).unwrap();
    let error = config.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        error.message(),
        "the class \"first\" requires fair, push, which sqlite of its backend \"file\" does not \
         have (backends that have all it requires: main; not asked, because nothing uses them: \
         spare); the class \"second\" requires push, which sqlite of its backend \"file\" does not \
         have (backends that have all it requires: main; not asked, because nothing uses them: \
         spare)"
    );
    let third = &config.classes()[2];
    let expected = [
        Requirement::Fair,
        Requirement::Push,
        Requirement::StrongFencing,
    ];
    assert_eq!(third.require, expected);
}

#[tokio::test]
async fn a_ttl_that_is_too_short_for_its_backend_fails_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("locks.db");
    let text = format!(
        "[backend.main]\nurl = 'memory:'\nttl = '500ms'\n\
         [backend.file]\nurl = 'sqlite:{}'\nttl = '700ms'\n\
         [class.first]\nbackend = 'file'\n\
         [class.second]\nbackend = 'file'\nttl = '999ms'\n\
         [class.third]\nbackend = 'file'\nttl = '1s'\n",
        file.display()
    );
    let error = parse(&text).unwrap().connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert_eq!(
        error.message(),
        "the ttl of the backend \"file\" must be 1s or more on sqlite, not 700ms; the ttl of the class \
         \"second\" must be 1s or more on sqlite, not 999ms"
    );
}

#[tokio::test]
async fn a_class_that_demands_fencing_fails_on_a_backend_without() {
    // Tokens of two stores in memory cannot be compared, so that a move has none.
    let file = "[backend.old]\nurl = 'memory:'\n[backend.new]\nurl = 'memory:'\n\
                migrate-from = 'old'\n[class.plain]\nbackend = 'old'\nrequire = ['fencing']\n\
                [class.moved]\nbackend = 'new'\nrequire = ['fencing']\n";
    let error = parse(file).unwrap().connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        error.message(),
        "the class \"moved\" requires fencing, which memory of its backend \"new\" does not have \
         (backends that have all it requires: old)"
    );
}

#[derive(Debug, Default)]
struct Classes(Mutex<Vec<Option<String>>>);

impl Observer for Classes {
    fn event(&self, event: &Event<'_>) {
        let class = event.class.map(str::to_owned);
        self.0.lock().expect("no thread panics").push(class);
    }
}

#[tokio::test]
async fn an_observer_hears_of_the_classes() {
    let observer = Arc::new(Classes::default());
    let config = parse(FILE)
        .unwrap()
        .with_observer(Arc::clone(&observer) as _);
    let locks = config.connect().await.unwrap();
    let guard = locks.class("ship").unwrap().lock("k").await.unwrap();
    guard.release().await.unwrap();
    let heard = observer.0.lock().unwrap().clone();
    assert!(heard.contains(&Some("ship".to_owned())), "{heard:?}");
}

#[tokio::test]
async fn a_backend_that_is_moved_to_takes_its_locks_on_the_old_one_as_well() {
    let file = "default = 'new'\n[backend.old]\nurl = 'memory:moved-from'\n\
                [backend.new]\nurl = 'memory:moved-to'\nmigrate-from = 'old'\n";
    let config = parse(file).unwrap();
    let new = &config.backends()[1];
    assert_eq!(new.migrate_from.as_deref(), Some("old"));
    let locks = config.connect().await.unwrap();
    assert_eq!(locks.backends().collect::<Vec<_>>(), ["new"]);
    let guard = locks.default_backend().unwrap().lock("k").await.unwrap();
    for url in ["memory:moved-from", "memory:moved-to"] {
        let alone = polylock::connect(url).await.unwrap();
        assert!(alone.try_lock("k").await.unwrap().is_none(), "{url}");
    }
    guard.release().await.unwrap();
}
