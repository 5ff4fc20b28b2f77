//! Handlers that store their response in the transaction of its effect, on every database.

mod bank;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use polylock_core::memory::{Memory, Reachable};
use polylock_tower::idempotency::{IdempotencyLayer, KeyScope, PendingResponse, Put, SqlResponses};
use polylock_tower::{Locker, WhenUnavailable};
use tokio::sync::Barrier;
use tower::{Layer as _, service_fn};

use self::bank::Bank;
use super::support::{Handler, Layered, post};
use crate::support::{Said, send};

/// A bank, and the responses in its database.
struct Branch<B> {
    bank: B,
    responses: SqlResponses,
    /// Where handlers wait for each other, in their transactions.
    meet: Arc<Barrier>,
}

/// What a handler does after its charge; requests ask for it by their body.
#[derive(Clone, Copy)]
enum Then {
    Commit,
    /// And does all of it again, as after a commit without a reply.
    CommitAgain,
    /// And says that it failed.
    Fail,
    /// And goes on as if nothing was.
    RollBack,
}

async fn effect_and_response_are_there_both_or_not_at_all<B: Bank>(url: &str) {
    let branch = Branch::<B>::open(url, 1).await;
    let service = branch.service(Reachable::Connected, false);
    assert_eq!(send(&service, charge("a", "commit")).await.body, "paid");
    assert_replayed(&send(&service, charge("a", "commit")).await);
    for _ in 0..2 {
        assert_eq!(send(&service, charge("b", "fail")).await.status, 503);
    }
    assert_eq!(branch.bank.charges().await, 1);
    // Where the layer stores as well, it stores what the handler says after a rollback.
    let service = branch.service(Reachable::Connected, true);
    for replayed in [false, true] {
        let seen = send(&service, charge("c", "roll back")).await;
        assert_eq!(
            (&seen.body[..], seen.is_replayed()),
            ("rolled back", replayed)
        );
    }
    assert_eq!(branch.bank.charges().await, 1);
}

/// Also without a lock, where there is no fencing token.
async fn the_layer_takes_what_the_handler_has_stored_for_its_own<B: Bank>(url: &str) {
    let branch = Branch::<B>::open(url, 1).await;
    for (locks, key) in [(Reachable::Connected, "a"), (Reachable::Cut, "b")] {
        let service = branch.service(locks, true);
        let first = send(&service, charge(key, "commit")).await;
        assert_eq!((first.status, &first.body[..]), (200, "paid"));
        assert!(!first.is_replayed());
        assert_replayed(&send(&service, charge(key, "commit")).await);
    }
    assert_eq!(branch.bank.charges().await, 2);
}

async fn a_transaction_whose_commit_had_no_reply_pays_once<B: Bank>(url: &str) {
    let branch = Branch::<B>::open(url, 1).await;
    let service = branch.service(Reachable::Connected, true);
    let first = send(&service, charge("a", "commit again")).await;
    assert_eq!((&first.body[..], first.is_replayed()), ("paid", false));
    assert_eq!(branch.bank.charges().await, 1);
    assert_replayed(&send(&service, charge("a", "commit again")).await);
    assert_eq!(branch.bank.charges().await, 1);
}

/// Their locks know nothing of each other, and have given the same token.
async fn of_two_at_once_one_pays_and_both_get_its_response<B: Bank>(url: &str) {
    let branch = Branch::<B>::open(url, 2).await;
    let services = [(); 2].map(|()| branch.service(Reachable::Connected, true));
    let [one, other] = &services;
    let (one, other) = tokio::join!(
        send(one, charge("a", "commit")),
        send(other, charge("a", "commit"))
    );
    assert_eq!((&one.body[..], &other.body[..]), ("paid", "paid"));
    assert_ne!(one.is_replayed(), other.is_replayed());
    assert_eq!(branch.bank.charges().await, 1);
}

fn assert_replayed(seen: &Said) {
    assert_eq!((&seen.body[..], seen.is_replayed()), ("paid", true));
}

fn charge(key: &str, then: &'static str) -> Request<Full<Bytes>> {
    post(key).map(|_| Full::from(then))
}

impl<B: Bank> Branch<B> {
    async fn open(url: &str, handlers: usize) -> Self {
        Self {
            responses: SqlResponses::connect(url).await.expect("it runs"),
            bank: B::open(url).await,
            meet: Arc::new(Barrier::new(handlers)),
        }
    }

    /// With locks of its own.
    fn service(&self, locks: Reachable, layer_stores: bool) -> Layered {
        let memory = Memory::new();
        memory.faults().set_reachable(locks);
        let locker = Locker::builder(Arc::new(memory), "pay");
        let locker = locker.when_unavailable(WhenUnavailable::Bypass).build();
        let locker = locker.expect("memory serves this");
        let store = Arc::new(self.responses.clone());
        let layer = IdempotencyLayer::new(locker, store, KeyScope::shared())
            .expect("the locker has no permits")
            .with_stored(move |status, _| layer_stores && status.is_success());
        let (bank, meet) = (self.bank.clone(), Arc::clone(&self.meet));
        let responses = self.responses.clone();
        let handler = move |request: Request<Full<Bytes>>| {
            let (bank, responses, meet) = (bank.clone(), responses.clone(), Arc::clone(&meet));
            async move {
                let (head, body) = request.into_parts();
                let pending: &PendingResponse =
                    head.extensions.get().expect("the layer puts it there");
                let is_locked = locks == Reachable::Connected;
                assert_eq!(pending.fencing_token.is_some(), is_locked);
                let then = match &body.collect().await.expect("a body").to_bytes()[..] {
                    b"commit" => Then::Commit,
                    b"commit again" => Then::CommitAgain,
                    b"fail" => Then::Fail,
                    _ => Then::RollBack,
                };
                let paid = Response::new(Bytes::from("paid"));
                let mut put = bank.charge(&responses, pending, &paid, &meet, then).await;
                if matches!(then, Then::CommitAgain) {
                    assert_eq!(put, Put::Stored);
                    put = bank.charge(&responses, pending, &paid, &meet, then).await;
                }
                Ok::<_, Infallible>(match (put, then) {
                    (Put::Stored, Then::Commit) | (Put::Refused, Then::CommitAgain) => {
                        paid.map(Full::from)
                    }
                    (_, Then::Fail) => {
                        let failed = Response::builder().status(StatusCode::SERVICE_UNAVAILABLE);
                        failed.body(Full::default()).expect("a response")
                    }
                    _ => Response::new(Full::from("rolled back")),
                })
            }
        };
        layer.layer(Handler::new(service_fn(handler)))
    }
}

const TIME: Duration = Duration::from_secs(4);

/// Each test on each database.
macro_rules! on_each {
    ($name:ident, $bank:ident: $($test:ident)*) => {
        mod $name {
            $(#[tokio::test]
            async fn $test() {
                let (url, _directory) = super::bank::$name();
                super::$test::<super::bank::$bank>(&url).await;
            })*
        }
    };
    ($($name:ident, $bank:ident;)*) => { $(
        on_each! { $name, $bank:
            effect_and_response_are_there_both_or_not_at_all
            the_layer_takes_what_the_handler_has_stored_for_its_own
            a_transaction_whose_commit_had_no_reply_pays_once
            of_two_at_once_one_pays_and_both_get_its_response
        }
    )* };
}
on_each! { sqlite, SqliteBank; postgres, PostgresBank; mariadb, MariaDbBank; }
