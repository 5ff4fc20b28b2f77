//! Locks that are held until the body of the response has been sent.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, StreamBody};
use lock_tower::{BodyError, HoldUntil, KeyLockLayer, LockBody, OnLost};
use tokio::sync::mpsc;
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::support::{Scene, post, settle, stored};
use crate::support::InTime as _;

type Part = Result<Frame<Bytes>, Infallible>;
type Parts = mpsc::UnboundedSender<Part>;

/// A response whose body the test sends.
async fn streamed(
    layer: KeyLockLayer,
) -> (
    Parts,
    LockBody<impl http_body::Body<Data = Bytes, Error = Infallible>>,
) {
    let (parts, body) = mpsc::unbounded_channel::<Part>();
    let body = std::sync::Arc::new(std::sync::Mutex::new(Some(body)));
    let inner = service_fn(move |_: Request<String>| {
        let body = body.lock().ok().and_then(|mut body| body.take());
        let mut body = body.expect("one request is sent");
        let stream = futures_util::stream::poll_fn(move |cx| body.poll_recv(cx));
        async { Ok::<_, Infallible>(Response::new(StreamBody::new(stream))) }
    });
    let response = layer.layer(inner).oneshot(post("/a")).answered().await;
    let response = response.expect("the handler does not fail");
    assert_eq!(response.status(), 200);
    (parts, response.into_body())
}

fn until_end(scene: &Scene) -> KeyLockLayer {
    let max = Duration::from_secs(10);
    scene.layer().with_hold(HoldUntil::BodyEnd { max })
}

fn data(text: &'static str) -> Part {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_held_until_the_last_frame() {
    let scene = Scene::new();
    let (parts, mut body) = streamed(until_end(&scene)).await;
    parts.send(data("one")).unwrap();
    body.frame().in_time("a frame").await.unwrap().unwrap();
    assert!(!scene.is_free("/a").await);
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "3".parse().unwrap());
    parts.send(Ok(Frame::trailers(trailers))).unwrap();
    let frame = body.frame().in_time("a frame").await.unwrap().unwrap();
    assert_eq!(frame.trailers_ref().unwrap()["x-sum"], "3");
    drop(parts);
    assert!(body.frame().in_time("a frame").await.is_none());
    settle().await;
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn a_body_without_a_limit_holds_the_lock_for_as_long_as_it_takes() {
    let scene = Scene::new();
    let max = Duration::MAX;
    let layer = scene.layer().with_hold(HoldUntil::BodyEnd { max });
    let (parts, mut body) = streamed(layer).await;
    // Less than any lock may be held for.
    tokio::time::sleep(lock_tower::Locker::DEFAULT_MAX_HOLD / 2).await;
    parts.send(data("one")).unwrap();
    body.frame().in_time("a frame").await.unwrap().unwrap();
    assert!(!scene.is_free("/a").await);
    drop(parts);
    assert!(body.frame().in_time("a frame").await.is_none());
    settle().await;
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_dropped_frees_the_lock() {
    let scene = Scene::new();
    let (parts, body) = streamed(until_end(&scene)).await;
    parts.send(data("one")).unwrap();
    assert!(!scene.is_free("/a").await);
    drop(body);
    settle().await;
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_read_is_cut_off() {
    let scene = Scene::new();
    let (parts, mut body) = streamed(until_end(&scene)).await;
    parts.send(data("one")).unwrap();
    tokio::time::sleep(Duration::from_millis(9_999)).await;
    assert!(!scene.is_free("/a").await);
    // Nobody polls the body.
    tokio::time::sleep(Duration::from_millis(2)).await;
    settle().await;
    assert!(scene.is_free("/a").await);
    let error = body.frame().in_time("a frame").await.unwrap().unwrap_err();
    let max = Duration::from_secs(10);
    assert_eq!(error.downcast_ref(), Some(&BodyError::TooSlow(max)));
    assert!(body.frame().in_time("a frame").await.is_none());
    assert!(parts.is_closed(), "the inner body is gone");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_is_woken_and_cut_off() {
    let scene = Scene::new();
    let (_parts, mut body) = streamed(until_end(&scene)).await;
    let began = tokio::time::Instant::now();
    body.frame().in_time("a frame").await.unwrap().unwrap_err();
    assert_eq!(
        began.elapsed(),
        Duration::from_secs(10),
        "cut off at the max"
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_lock_is_lost_ends_unless_it_may_go_on() {
    for on_lost in [OnLost::Cancel, OnLost::Continue] {
        let scene = Scene::new();
        let (parts, mut body) = streamed(until_end(&scene).with_on_lost(on_lost)).await;
        scene.break_lock("/a").await;
        // The loss is learned by the next renewal.
        tokio::time::sleep(Duration::from_secs(8)).await;
        settle().await;
        parts.send(data("late")).unwrap();
        let frame = body.frame().in_time("a frame").await.unwrap();
        match on_lost {
            OnLost::Continue => assert_eq!(frame.unwrap().data_ref().unwrap(), "late"),
            _ => {
                let error = frame.unwrap_err();
                assert!(matches!(error.downcast_ref(), Some(BodyError::Lost(_))));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_body_frees_the_lock_before_the_head() {
    let scene = Scene::new();
    let inner = service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(http_body_util::Empty::<Bytes>::new()))
    });
    let response = until_end(&scene)
        .layer(inner)
        .oneshot(post("/a"))
        .answered()
        .await;
    assert!(scene.is_free("/a").await);
    assert!(response.unwrap().body().is_end_stream());
}

#[tokio::test(start_paused = true)]
async fn a_body_keeps_its_size() {
    let scene = Scene::new();
    let inner = service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new("four".to_owned()))
    });
    let response = until_end(&scene)
        .layer(inner)
        .oneshot(post("/a"))
        .answered()
        .await;
    let body = response.unwrap().into_body();
    assert_eq!(body.size_hint().exact(), Some(4));
    assert_eq!(body.collect().await.unwrap().to_bytes(), "four");
    settle().await;
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_may_go_on_after_a_loss_is_cut_off_at_its_time() {
    let scene = Scene::new();
    let layer = until_end(&scene).with_on_lost(OnLost::Continue);
    let (_parts, mut body) = streamed(layer).await;
    scene.break_lock("/a").await;
    let began = tokio::time::Instant::now();
    let error = body.frame().in_time("a frame").await.unwrap().unwrap_err();
    let max = Duration::from_secs(10);
    assert_eq!(error.downcast_ref(), Some(&BodyError::TooSlow(max)));
    assert_eq!(began.elapsed(), max, "cut off at the max");
}

#[test]
fn layers_outside_can_answer_with_an_empty_body() {
    let body = LockBody::<String>::default();
    assert!(body.is_end_stream());
}

/// A body that is in the middle of a frame when its time is over, on another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_is_not_free_while_the_body_runs() {
    let memory = lock_core::memory::Memory::new();
    let locks = std::sync::Arc::new(memory.client());
    let locker = lock_tower::Locker::builder(locks, "test").build().unwrap();
    let max = Duration::from_millis(50);
    let layer = super::support::by_path(locker).with_hold(HoldUntil::BodyEnd { max });
    let (began, mut begins) = mpsc::unbounded_channel();
    let (end, ends) = std::sync::mpsc::channel();
    let ends = std::sync::Mutex::new(ends);
    let both = std::sync::Arc::new((began, ends));
    let inner = service_fn(move |_: Request<String>| {
        let both = std::sync::Arc::clone(&both);
        let stream = futures_util::stream::poll_fn(move |_| {
            let (began, ends) = &*both;
            began.send(()).expect("the test hears it");
            ends.lock()
                .expect("one thread")
                .recv()
                .expect("the test says it");
            std::task::Poll::Ready(Some(data("late")))
        });
        async { Ok::<_, Infallible>(Response::new(StreamBody::new(stream))) }
    });
    let response = layer
        .layer(inner)
        .oneshot(post("/a"))
        .answered()
        .await
        .unwrap();
    let mut body = response.into_body();
    let reader = tokio::spawn(async move { body.frame().in_time("a frame").await });
    begins.recv().await.unwrap();
    // Well after its time.
    tokio::time::sleep(max * 4).await;
    let taken = lock_core::DistributedLockExt::try_lock(&memory, stored("/a")).await;
    assert!(
        taken.unwrap().is_none(),
        "the lock is free while the body runs"
    );
    end.send(()).unwrap();
    let error = reader.answered().await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&BodyError::TooSlow(max)));
    let next = lock_core::DistributedLockExt::lock(&memory, stored("/a")).await;
    next.unwrap().release().await.unwrap();
}
