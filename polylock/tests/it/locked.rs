//! Functions that run under a lock.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use polylock::admin::LockAdmin;
use polylock::engine::Engine;
use polylock::memory::{Fault, Memory, Request};
use polylock::prelude::*;
use polylock::{LostReason, locked};
use tokio::time::Instant;

type Locks = Arc<dyn DistributedLock>;

/// An error of an application.
#[derive(Debug)]
enum Failure {
    Lock(Error),
    Work(&'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl Failure {
    fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Lock(error) => Some(error.kind()),
            Self::Work(_) => None,
        }
    }
}

/// A store on the clock of the test, and a client of it.
fn store() -> (Memory, Locks) {
    let store = Memory::with_engine(Engine::on_current_runtime("memory"));
    let locks = Arc::new(store.client());
    (store, locks)
}

async fn is_free(locks: &Locks, key: &str) -> bool {
    let guard = locks.try_lock(key).await.expect("it is reached");
    guard.is_some()
}

#[locked(key = "orders/{id}", wait = "never")]
async fn ship(locks: &Locks, id: u64, how: &'static str) -> Result<u64, Failure> {
    assert!(!is_free(locks, "orders/42").await);
    match how {
        "return" => return Ok(id),
        "?" => Err(Failure::Work("out of stock"))?,
        "panic" => panic!("the work panics"),
        "hang" => std::future::pending().await,
        _ => {}
    }
    Ok(id)
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_held_by_the_body_and_free_after_it() {
    let (_, locks) = store();
    for how in ["done", "return", "?"] {
        let shipped = ship(&locks, 42, how).await;
        match shipped {
            Ok(id) => assert_eq!(id, 42),
            Err(error) => assert!(matches!(error, Failure::Work("out of stock")), "{error:?}"),
        }
        assert!(is_free(&locks, "orders/42").await, "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_held_is_an_error_of_the_function() {
    let (_, locks) = store();
    let _held = locks.lock("orders/42").await.unwrap();
    let error = ship(&locks, 42, "done").await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Contended));
    // The body expects the order 42 to be locked, as it is.
    assert_eq!(ship(&locks, 43, "done").await.unwrap(), 43, "another key");
}

#[tokio::test(start_paused = true)]
async fn the_body_stops_when_the_lock_is_lost() {
    let (store, locks) = store();
    let shipping = tokio::spawn(async move { ship(&locks, 42, "hang").await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let key = LockKey::new("orders/42").unwrap();
    store.break_lock(&key, "test").await.unwrap();
    match shipping.await.unwrap() {
        Err(Failure::Lock(error)) => assert_eq!(error.lost_reason(), Some(LostReason::Broken)),
        other => panic!("the lock is lost: {other:?}"),
    }
}

#[locked(key = "archive", max_hold = "90m")]
async fn archive(locks: &Locks, takes: Duration) -> polylock::Result<()> {
    tokio::time::sleep(takes).await;
    Ok(())
}

#[locked(key = "serve", max_hold = "forever")]
async fn serve(locks: &Locks, takes: Duration) -> polylock::Result<()> {
    tokio::time::sleep(takes).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_body_may_take_as_long_as_its_max_hold() {
    let (_, locks) = store();
    let minute = Duration::from_secs(60);
    archive(&locks, 80 * minute).await.expect("it takes less");
    let error = archive(&locks, 100 * minute)
        .await
        .expect_err("it takes more");
    assert_eq!(error.lost_reason(), Some(LostReason::MaxHold));
    serve(&locks, 100 * minute).await.expect("it has no limit");
}

#[tokio::test(start_paused = true)]
async fn a_function_that_is_dropped_or_panics_releases_its_lock() {
    let (_, locks) = store();
    let hanging = tokio::time::timeout(Duration::from_secs(1), ship(&locks, 42, "hang"));
    hanging.await.unwrap_err();
    assert!(is_free(&locks, "orders/42").await);

    let client = Arc::clone(&locks);
    let panicking = tokio::spawn(async move { ship(&client, 42, "panic").await });
    assert!(panicking.await.unwrap_err().is_panic());
    assert!(is_free(&locks, "orders/42").await);
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_released_before_the_function_returns() {
    let (store, locks) = store();
    let late = Duration::from_millis(300);
    store
        .faults()
        .plan(Request::Release, Fault::LateReply(late));
    let began = Instant::now();
    ship(&locks, 42, "done").await.unwrap();
    assert_eq!(
        began.elapsed(),
        late,
        "it waits for the reply to the release"
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_changes_no_result() {
    let (store, locks) = store();
    for fault in [Fault::LostReply, Fault::LostRequest, Fault::Silence] {
        store.faults().plan(Request::Release, fault);
        assert_eq!(ship(&locks, 42, "done").await.unwrap(), 42);
        assert!(locks.shutdown(Duration::from_secs(60)).await);
        assert!(is_free(&locks, "orders/42").await, "{fault:?}");
    }
}

struct Shop {
    locks: Locks,
    sold: Vec<String>,
}

trait Sells {
    async fn count(&self, what: &str) -> polylock::Result<usize>;
}

impl Sells for Shop {
    #[locked(key = "shop/{what}", locks = self.locks, shared, ttl = "1s")]
    async fn count(&self, what: &str) -> polylock::Result<usize> {
        let readers = self.locks.request("shop/lamp").shared().try_acquire();
        assert!(readers.await?.is_some());
        Ok(self.sold.iter().filter(|sold| *sold == what).count())
    }
}

impl Shop {
    /// Keeps its attributes, and borrows from what it is given.
    #[locked(key = format!("shop/{}", what.as_ref()), locks = self.locks, ttl = "10s", wait = "1m")]
    #[must_use = "it may be refused"]
    pub(crate) async fn sell<'a, T>(
        &'a mut self,
        what: &T,
        (count, _): (usize, ()),
        mut note: impl Display + Send,
        #[guard] guard: &LockGuard,
    ) -> polylock::Result<&'a str>
    where
        T: AsRef<str> + Sync + ?Sized,
    {
        assert_eq!(guard.key().as_str(), "shop/lamp");
        assert!(guard.fencing_token().is_some());
        let left = guard.valid_until().map(|until| until - Instant::now());
        assert_eq!(left, Some(Duration::from_secs(9)));
        let line = &mut note;
        assert_eq!(line.to_string(), "for a friend");
        let what = what.as_ref().to_owned();
        self.sold.extend(std::iter::repeat_n(what, count));
        Ok(&self.sold[0])
    }
}

#[tokio::test(start_paused = true)]
async fn methods_are_locked_with_all_that_their_signature_has() {
    let (_, locks) = store();
    let mut shop = Shop {
        locks: Arc::clone(&locks),
        sold: Vec::new(),
    };
    let selling = shop.sell("lamp", (2, ()), "for a friend");
    assert_eq!(sent(selling).await.unwrap(), "lamp");
    assert!(is_free(&locks, "shop/lamp").await);
    let (one, two) = tokio::join!(shop.count("lamp"), shop.count("lamp"));
    assert_eq!((one.unwrap(), two.unwrap()), (2, 2));
}

fn sent<T: Send>(value: T) -> T {
    value
}

struct State<T>(T);

/// The locks come by value, and in a pattern, as the handlers of a web framework get them.
#[locked(key = "cleanup", wait = "forever")]
async fn clean_up(State(locks): State<Locks>) -> Result<impl Display, Error> {
    assert!(!is_free(&locks, "cleanup").await);
    if Arc::strong_count(&locks) > 100 {
        return Ok("too many");
    }
    Ok("clean")
}

#[locked(key = "shop")]
async fn close(Shop { sold, locks }: &Shop) -> polylock::Result<usize> {
    assert!(!is_free(locks, "shop").await);
    Ok(sold.len())
}

#[tokio::test(start_paused = true)]
async fn the_parameter_may_be_part_of_a_pattern() {
    let (_, locks) = store();
    let shop = Shop {
        locks: Arc::clone(&locks),
        sold: Vec::new(),
    };
    assert_eq!(close(&shop).await.unwrap(), 0);
    let done = clean_up(State(Arc::clone(&locks))).await.unwrap();
    assert_eq!(done.to_string(), "clean");
    assert!(is_free(&locks, "cleanup").await);
}

#[locked(key = "k")]
async fn with_inner_attributes(locks: &Locks) -> polylock::Result<()> {
    //! Documents the function, as the attribute below is one of it.
    #![allow(unused)]
    let unused = 1;
    assert!(!is_free(locks, "k").await);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_body_may_begin_with_inner_attributes() {
    let (_, locks) = store();
    with_inner_attributes(&locks).await.unwrap();
    assert!(is_free(&locks, "k").await);
}

#[cfg(feature = "config")]
#[locked(key = "k")]
async fn in_a_class(locks: &polylock::config::ConfiguredLocks) -> polylock::Result<()> {
    let again = locks.lock("k").await.expect_err("it is held");
    assert_eq!(again.kind(), ErrorKind::Contended);
    Ok(())
}

#[cfg(feature = "config")]
#[tokio::test]
async fn the_locks_of_a_class_are_requested_as_the_configuration_says() {
    let config = "[backend.main]\nurl = \"memory:\"\n[class.pay]\nwait = \"never\"\n";
    let config = polylock::config::Config::parse(config).unwrap();
    let locks = config.connect().await.unwrap();
    in_a_class(locks.class("pay").unwrap()).await.unwrap();
}
