//! Locks that are held until the body of the response has been sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use polylock_tower::{BodyError, HoldUntil, KeyLockLayer, LockBody, Locker, OnLost};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tower::{Layer as _, service_fn};

use crate::support::{InTime as _, Scene, by_path, head, key_of, post, settle};

type Part = Result<Frame<Bytes>, Infallible>;
type Streamed<B> = (mpsc::UnboundedSender<Part>, LockBody<B>);

const MAX: Duration = Duration::from_secs(10);

/// A response whose body the test sends.
async fn streamed(
    layer: KeyLockLayer,
) -> Streamed<impl http_body::Body<Data = Bytes, Error = Infallible>> {
    streamed_as(layer, "text/plain").await
}

async fn streamed_as(
    layer: KeyLockLayer,
    content_type: &'static str,
) -> Streamed<impl http_body::Body<Data = Bytes, Error = Infallible>> {
    let (parts, body) = mpsc::unbounded_channel::<Part>();
    let body = Arc::new(Mutex::new(Some(body)));
    let service = layer.layer(service_fn(move |_: Request<String>| {
        let body = body.lock().ok().and_then(|mut body| body.take());
        let mut body = body.expect("one request is sent");
        let stream = futures_util::stream::poll_fn(move |cx| body.poll_recv(cx));
        let mut response = Response::new(StreamBody::new(stream));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        async { Ok::<_, Infallible>(response) }
    }));
    let response = head(&service, post("/a")).await;
    assert_eq!(response.status(), 200);
    (parts, response.into_body())
}

fn until_end(scene: &Scene) -> KeyLockLayer {
    scene.layer().with_hold(HoldUntil::BodyEnd { max: MAX })
}

fn data(text: &'static str) -> Part {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

/// The next frame of a body that has one.
async fn next<B: http_body::Body + Unpin>(body: &mut B) -> Result<Frame<B::Data>, B::Error> {
    let frame = body.frame().in_time("a frame").await;
    frame.expect("the body does not end yet")
}

async fn ends<B: http_body::Body + Unpin>(body: &mut B) -> bool {
    body.frame().in_time("the end").await.is_none()
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_held_until_the_last_frame() {
    // Without a limit, the body takes less than any lock may be held for.
    let endless = (Duration::MAX, Locker::DEFAULT_MAX_HOLD / 2);
    for (max, takes) in [(MAX, Duration::ZERO), endless] {
        let scene = Scene::new();
        let hold = HoldUntil::BodyEnd { max };
        let (parts, mut body) = streamed(scene.layer().with_hold(hold)).await;
        sleep(takes).await;
        parts.send(data("one")).unwrap();
        next(&mut body).await.unwrap();
        assert!(!scene.is_free("/a").await, "{hold:?}");
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "3".parse().unwrap());
        parts.send(Ok(Frame::trailers(trailers))).unwrap();
        let frame = next(&mut body).await.unwrap();
        assert_eq!(frame.trailers_ref().unwrap()["x-sum"], "3");
        drop(parts);
        assert!(ends(&mut body).await, "{hold:?}");
        settle().await;
        assert!(scene.is_free("/a").await, "{hold:?}");
    }
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
    sleep(MAX - Duration::from_millis(1)).await;
    assert!(!scene.is_free("/a").await);
    // The body is not polled.
    sleep(Duration::from_millis(2)).await;
    settle().await;
    assert!(scene.is_free("/a").await);
    let error = next(&mut body).await.unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&BodyError::TooSlow(MAX)));
    assert!(ends(&mut body).await);
    assert!(parts.is_closed(), "the inner body is gone");
}

/// The waker of a task that cannot be woken.
struct Broken;

impl Wake for Broken {
    fn wake(self: Arc<Self>) {
        panic!("the runtime of the task is gone");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_cannot_be_woken_is_cut_off() {
    let scene = Scene::new();
    let service = until_end(&scene).layer(service_fn(async |_: Request<String>| {
        let endless = futures_util::stream::pending::<Part>();
        Ok::<_, Infallible>(Response::new(StreamBody::new(endless)))
    }));
    let mut body = head(&service, post("/a")).await.into_body();
    let waker = Waker::from(Arc::new(Broken));
    let polled = Pin::new(&mut body).poll_frame(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    sleep(MAX).await;
    settle().await;
    assert!(scene.is_free("/a").await);
    let error = next(&mut body).await.unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&BodyError::TooSlow(MAX)));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_is_woken_and_cut_off_even_if_it_may_go_on_after_a_loss() {
    for on_lost in [OnLost::Cancel, OnLost::Continue] {
        let scene = Scene::new();
        let (_parts, mut body) = streamed(until_end(&scene).with_on_lost(on_lost)).await;
        if on_lost == OnLost::Continue {
            scene.break_lock("/a").await;
        }
        let began = Instant::now();
        let error = next(&mut body).await.unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&BodyError::TooSlow(MAX)));
        assert_eq!(began.elapsed(), MAX, "cut off at the max");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_lock_is_lost_ends_unless_it_may_go_on() {
    for on_lost in [OnLost::Cancel, OnLost::Continue] {
        let scene = Scene::new();
        let (parts, mut body) = streamed(until_end(&scene).with_on_lost(on_lost)).await;
        scene.break_lock("/a").await;
        // The loss is learned by the next renewal.
        sleep(Duration::from_secs(8)).await;
        settle().await;
        parts.send(data("late")).unwrap();
        match (on_lost, next(&mut body).await) {
            (OnLost::Continue, frame) => assert_eq!(frame.unwrap().data_ref().unwrap(), "late"),
            (_, frame) => {
                let error = frame.unwrap_err();
                assert!(matches!(error.downcast_ref(), Some(BodyError::Lost(_))));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_grpc_that_is_cut_off_ends_with_a_status() {
    let grpc = "application/grpc+proto";
    for (is_lost, code) in [(true, "10"), (false, "4")] {
        let scene = Scene::new();
        let (parts, mut body) = streamed_as(until_end(&scene), grpc).await;
        parts.send(data("one")).unwrap();
        assert_eq!(next(&mut body).await.unwrap().data_ref().unwrap(), "one");
        if is_lost {
            scene.break_lock("/a").await;
        }
        let trailers = next(&mut body).await.unwrap().into_trailers();
        let trailers = trailers.expect("a stream of gRPC ends with trailers");
        assert_eq!(trailers["grpc-status"], code);
        assert!(trailers.contains_key("grpc-message"), "{trailers:?}");
        assert!(!trailers.contains_key(CONTENT_TYPE), "{trailers:?}");
        assert!(ends(&mut body).await);
        assert!(parts.is_closed(), "the inner body is gone");
    }
    // Its trailers would be a frame of the body.
    let scene = Scene::new();
    let (_parts, mut body) = streamed_as(until_end(&scene), "application/grpc-web").await;
    next(&mut body).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_body_keeps_its_size_and_an_empty_one_frees_the_lock_before_the_head() {
    let scene = Scene::new();
    let empty = service_fn(async |_: Request<String>| {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let response = head(&until_end(&scene).layer(empty), post("/a")).await;
    assert!(scene.is_free("/a").await);
    assert!(response.body().is_end_stream());

    let four = service_fn(async |_: Request<String>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("four")))
    });
    let response = head(&until_end(&scene).layer(four), post("/a")).await;
    let body = response.into_body();
    assert_eq!(body.size_hint().exact(), Some(4));
    assert_eq!(body.collect().await.unwrap().to_bytes(), "four");
    settle().await;
    assert!(scene.is_free("/a").await);
}

/// A body with these frames, which panics where there is `None`.
async fn framed(
    layer: KeyLockLayer,
    frames: Vec<Option<Result<&'static str, std::io::ErrorKind>>>,
) -> LockBody<impl http_body::Body<Data = Bytes, Error = std::io::Error>> {
    let service = layer.layer(service_fn(move |_: Request<String>| {
        let mut frames = frames.clone().into_iter();
        let stream = futures_util::stream::poll_fn(move |_| {
            let frame = frames
                .next()
                .map(|frame| frame.expect("a panic in the body"));
            let frame = frame.map(|frame| frame.map_err(std::io::Error::from));
            std::task::Poll::Ready(frame.map(|data| data.map(|text| Frame::data(text.into()))))
        });
        async { Ok::<_, Infallible>(Response::new(StreamBody::new(stream))) }
    }));
    head(&service, post("/a")).await.into_body()
}

#[tokio::test(start_paused = true)]
async fn a_body_that_panics_frees_the_lock_even_if_it_is_kept() {
    let scene = Scene::new();
    let mut body = framed(
        until_end(&scene),
        vec![Some(Ok("one")), None, Some(Ok("two"))],
    )
    .await;
    next(&mut body).await.unwrap();
    let panics = std::panic::AssertUnwindSafe(next(&mut body));
    let panicked = futures_util::FutureExt::catch_unwind(panics).await;
    assert!(panicked.is_err());
    settle().await;
    assert!(scene.is_free("/a").await);
    assert!(ends(&mut body).await, "the rest would run without the lock");
}

#[tokio::test(start_paused = true)]
async fn a_body_ends_with_its_error() {
    let scene = Scene::new();
    let reset = Err(std::io::ErrorKind::ConnectionReset);
    let frames = vec![Some(Ok("one")), Some(reset), Some(Ok("two"))];
    let mut body = framed(until_end(&scene), frames).await;
    next(&mut body).await.unwrap();
    assert!(next(&mut body).await.is_err());
    settle().await;
    assert!(scene.is_free("/a").await);
    assert!(ends(&mut body).await, "the rest would run without the lock");
}

#[test]
fn layers_outside_can_answer_with_an_empty_body() {
    assert!(LockBody::<String>::default().is_end_stream());
}

/// A body that is in the middle of a frame when its time is over, on another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_is_not_free_while_the_body_runs() {
    let memory = polylock_core::memory::Memory::new();
    let locker = Locker::builder(Arc::new(memory.client()), "test").build();
    // The body is polled for the first time well before that, on a busy machine too.
    let max = Duration::from_secs(2);
    let layer = by_path(locker.unwrap()).with_hold(HoldUntil::BodyEnd { max });
    let (began, mut begins) = mpsc::unbounded_channel();
    let (end, ends) = std::sync::mpsc::channel();
    let both = Arc::new((began, Mutex::new(ends)));
    let service = layer.layer(service_fn(move |_: Request<String>| {
        let both = Arc::clone(&both);
        let stream = futures_util::stream::poll_fn(move |_| {
            let (began, ends) = &*both;
            began.send(()).expect("the test hears it");
            let ends = ends.lock().expect("one thread");
            ends.recv().expect("the test says it");
            std::task::Poll::Ready(Some(data("late")))
        });
        async { Ok::<_, Infallible>(Response::new(StreamBody::new(stream))) }
    }));
    let mut body = head(&service, post("/a")).await.into_body();
    let reader = tokio::spawn(async move { next(&mut body).await.map(drop) });
    begins.recv().in_time("the poll of the body").await.unwrap();
    // Well after its time.
    sleep(max + Duration::from_secs(1)).await;
    let acquired = polylock_core::DistributedLockExt::try_lock(&memory, key_of("/a")).await;
    let is_held = acquired.unwrap().is_none();
    end.send(()).unwrap();
    assert!(is_held, "the lock is free while the body runs");
    let error = reader.answered().await.unwrap().unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&BodyError::TooSlow(max)));
    let next = polylock_core::DistributedLockExt::lock(&memory, key_of("/a"));
    let next = next.in_time("the lock").await;
    next.unwrap().release().await.unwrap();
}
