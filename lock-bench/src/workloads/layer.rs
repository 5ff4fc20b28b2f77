use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use polylock::DistributedLock;
use polylock::tower::plain::CallLockLayer;
use polylock::tower::{HeldLock, Keys, Locker};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

use super::ContenderJob;
use super::closed_loop::{FAILURE_BACKOFF, is_over};
use super::http::HttpServers;
use super::{before_last_call, stuck, together};
use crate::clock;
use crate::measure::{HoldSpan, RecordedSpans, SpanLog, Window};
use crate::report::Requests;
use crate::subject::Failure;

/// How requests reach their service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Transport {
    /// By a call of a function.
    Call,
    /// By a connection of the client over the loopback interface.
    Http,
}

/// Has clients in this process send requests to a service in this process, each with a key of its
/// own: through the layer and without it, in turn.
pub(crate) async fn serve_requests(
    locks: Arc<dyn DistributedLock>,
    job: ContenderJob,
    transport: Transport,
    window: Window,
) -> Result<RecordedSpans, Failure> {
    let ttl = job.ttl;
    let locker = Locker::builder(locks, &job.prefix)
        .wait(clock::until(window.end).max(Duration::from_millis(1)))
        .request(|request| request.with_ttl(ttl).with_max_hold(None))
        .build()?;
    let (hold, max_spans) = (job.hold, job.max_spans);
    let log = || SpanLog::new(window, max_spans);
    if transport == Transport::Http {
        let servers = HttpServers::start(locker, hold).await?;
        let clients = job
            .contenders
            .map(|number| servers.client(number, log(), window));
        return together(clients, window).await;
    }
    let plain = service_fn(move |call| serve(call, hold));
    let layer = CallLockLayer::new(
        locker,
        |call: &LayerCall| Ok(Keys::one(&*call.name)),
        |call: &mut LayerCall, held| call.held = Some(held),
    );
    let locked = layer.layer(plain);
    let clients = job
        .contenders
        .map(|number| client(number, log(), plain, locked.clone(), window));
    together(clients, window).await
}

/// A request, with what the layer puts into it.
pub(super) struct LayerCall {
    pub(super) name: Arc<str>,
    pub(super) held: Option<HeldLock>,
}

/// What the handler saw.
pub(super) struct LayerResponse {
    pub(super) token: Option<u64>,
    pub(super) began: u64,
    pub(super) ended: u64,
}

pub(super) async fn serve(call: LayerCall, hold: Duration) -> Result<LayerResponse, Infallible> {
    let began = clock::now();
    if !hold.is_zero() {
        tokio::time::sleep(hold).await;
    }
    let token = call.held.and_then(|held| held.fencing_token());
    Ok(LayerResponse {
        token: token.map(u64::from),
        began,
        ended: clock::now(),
    })
}

pub(super) async fn client<P, L>(
    number: u32,
    mut log: SpanLog,
    plain: P,
    locked: L,
    window: Window,
) -> Result<RecordedSpans, Failure>
where
    P: Service<LayerCall, Response = LayerResponse, Error: Error + 'static, Future: Send>
        + Clone
        + Send
        + Sync,
    L: Service<LayerCall, Response = LayerResponse, Error: Error + 'static, Future: Send>
        + Clone
        + Send
        + Sync,
{
    let (name, mut requests) = (Arc::<str>::from(number.to_string()), Requests::default());
    let call = || LayerCall {
        name: Arc::clone(&name),
        held: None,
    };
    clock::sleep_until(window.start).await;
    let until_end = async {
        loop {
            let requested = clock::now();
            if requested >= window.end {
                return;
            }
            let answer = locked.clone().oneshot(call()).await;
            let answered = clock::now();
            match answer {
                Ok(answer) => {
                    log.push(HoldSpan {
                        key: number,
                        contender: number,
                        token: answer.token,
                        requested,
                        acquired: answer.began,
                        releasing: answer.ended,
                        released: answered,
                    });
                    if window.has(requested) {
                        requests.with.record_ns(answered - requested);
                    }
                }
                Err(_) if is_over(window) => log.push_unserved(number, requested),
                Err(error) => {
                    log.push_failure(&Failure::of("rejected", &error));
                    tokio::time::sleep(FAILURE_BACKOFF).await;
                }
            }
            let requested = clock::now();
            match plain.clone().oneshot(call()).await {
                Ok(_) if !window.has(requested) => {}
                Ok(_) => requests.without.record_ns(clock::now() - requested),
                Err(error) => {
                    log.push_failure(&Failure::of("without the layer", &error));
                    tokio::time::sleep(FAILURE_BACKOFF).await;
                }
            }
            tokio::task::coop::consume_budget().await;
        }
    };
    if before_last_call(window, until_end).await.is_none() {
        log.push_failure(&stuck());
    }
    Ok(RecordedSpans {
        layer: Some(requests),
        ..RecordedSpans::of(number, log)
    })
}
