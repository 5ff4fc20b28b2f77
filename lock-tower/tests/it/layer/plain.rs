//! Services whose requests are not HTTP.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use polylock_tower::plain::{CallError, CallLockLayer};
use polylock_tower::{HeldLock, KeyError, Keys, Locker, Reason};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::support::{InTime as _, Rejections, Scene};

struct Job {
    account: String,
    held: Option<HeldLock>,
}

fn job(account: &str) -> Job {
    let account = account.to_owned();
    Job {
        account,
        held: None,
    }
}

fn layer(locker: Locker) -> CallLockLayer<Job> {
    let keys = |job: &Job| match job.account.as_str() {
        "" => Ok(Keys::Skip),
        "nobody" => Err(KeyError::Missing("there is no account".to_owned())),
        account => Ok(Keys::one(account)),
    };
    CallLockLayer::new(locker, keys, |job, held| job.held = Some(held))
}

#[tokio::test(start_paused = true)]
async fn calls_with_one_key_run_one_at_a_time() {
    let service = layer(Scene::new().locker()).layer(service_fn(async |job: Job| {
        job.held.expect("attached").ensure_held().unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok::<_, Infallible>(job.account.len())
    }));
    let began = tokio::time::Instant::now();
    let calls = ["a", "a", "bb", "a"];
    let calls = calls.map(|account| tokio::spawn(service.clone().oneshot(job(account))));
    let mut sum = 0;
    for call in calls {
        sum += call.answered().await.unwrap().unwrap();
    }
    assert_eq!(sum, 5);
    let serial = Duration::from_millis(30);
    assert_eq!(began.elapsed(), serial, "3 calls of 10 ms, one at a time");
}

#[tokio::test(start_paused = true)]
async fn errors_tell_whether_the_lock_or_the_inner_service_failed() {
    let scene = Scene::new();
    let service = layer(scene.locker()).layer(service_fn(async |job: Job| match job.held {
        Some(_) => Err::<(), _>("out of paper"),
        None => Ok(()),
    }));
    let call = async |account| service.clone().oneshot(job(account)).answered().await;
    assert!(matches!(
        call("a").await,
        Err(CallError::Inner("out of paper"))
    ));
    call("").await.unwrap();

    let _other = scene.try_elsewhere("a").await.unwrap();
    match call("a").await {
        Err(CallError::Rejected(rejection)) => assert_eq!(rejection.reason(), Reason::TimedOut),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_gets_each_rejection_once() {
    let (scene, rejections) = (Scene::new(), Arc::new(Rejections::default()));
    let locker =
        scene.locker_with(|locker| locker.rejection_observer(Arc::clone(&rejections) as _));
    let service = layer(locker).layer(service_fn(async |_: Job| Err::<(), _>("out of paper")));
    let _other = scene.try_elsewhere("a").await.unwrap();
    for account in ["a", "b", "nobody"] {
        let called = service.clone().oneshot(job(account)).answered().await;
        assert!(called.is_err(), "{account}");
    }
    let expected = ["test lock-timeout 409", "test lock-key 400"];
    assert_eq!(rejections.all(), expected);
}
