//! One lock service, from the URL to locks that are tried.

use std::sync::Arc;
use std::time::Duration;

use polylock::{DistributedLock, Error, ErrorKind, Finding, LockUrl, Registry};

use super::fault::fault;
use super::reach::{first_asked_for_tls, reach};
use super::report::Report;
use super::round_trip;
use super::service::{begins_with_tls, is_private, needed, places, session_timeout};
use super::terms::{Advice, Asked};
use super::trial::{self, Pair, Scratch};
use crate::commands::SHUTDOWN;
use crate::text::human;

/// Looks at the service of a URL; `ttl` is the length of lease that its round trips are judged for.
pub(super) async fn examine(text: &str, ttl: Duration) -> Report {
    let registry = polylock::compiled_in();
    let url = match registry.backend_url(text) {
        Ok(url) => url,
        Err(error) => return unreadable(text, &error),
    };
    let mut report = Report::new(shown(text), Some(url.scheme().to_owned()));
    let places = places(&url);
    for found in reach(&places, needed(&url)).await {
        report.add(found);
    }
    if report.has_error() {
        return report;
    }
    match bounded(registry.examine(text)).await {
        Ok(found) => found.into_iter().for_each(|finding| report.add(finding)),
        Err(error) => {
            report.add_once(of_connecting(&error, &url).await);
            return report;
        }
    }
    match bounded(connect(&registry, text, &url)).await {
        Ok([first, second]) => {
            accepted(&mut report, &url);
            let pair = Pair {
                first: &*first,
                second: &*second,
            };
            let session_timeout = session_timeout(&url);
            let asked = Asked {
                ttl,
                session_timeout,
            };
            try_locks(&mut report, pair, asked).await;
            first.shutdown(SHUTDOWN).await;
            second.shutdown(SHUTDOWN).await;
        }
        // What is wrong is said already, or was not looked for.
        Err(error) if !report.has_error() => report.add_once(of_connecting(&error, &url).await),
        Err(_) => {}
    }
    report
}

/// The report on a URL that nothing can be made of.
fn unreadable(text: &str, error: &Error) -> Report {
    let mut report = Report::new(shown(text), None);
    report.add(fault(error, "url"));
    report
}

/// The URL without secrets; if it cannot be read, nobody knows where they are.
fn shown(text: &str) -> String {
    LockUrl::parse(text).map_or_else(
        |_| "a URL that cannot be read".to_owned(),
        |url| url.to_string(),
    )
}

async fn connect(
    registry: &Registry,
    text: &str,
    url: &LockUrl,
) -> Result<[Arc<dyn DistributedLock>; 2], Error> {
    let first = registry.connect(text).await?;
    let second = match is_private(url) {
        true => Arc::clone(&first),
        false => registry.connect(text).await?,
    };
    Ok([first, second])
}

/// Says that the login is in order, unless the backend has.
fn accepted(report: &mut Report, url: &LockUrl) {
    if url.hosts().is_empty() || report.has("login") {
        return;
    }
    let what = match url.username() {
        Some(name) => format!("the server takes the user {name}"),
        None => "the server opens connections to this client".to_owned(),
    };
    report.add_to_the_way(Finding::good("login", what));
}

/// What is wrong with a connection that cannot be made although somebody listens.
async fn of_connecting(error: &Error, url: &LockUrl) -> Finding {
    let found = fault(error, "reach");
    if found.check != "reach" || !begins_with_tls(url.scheme()) {
        return found;
    }
    let places = places(url);
    let Some((place, is_tls)) = first_asked_for_tls(&places).await else {
        return found;
    };
    let is_secure = url.scheme() == "rediss" || url.params().bool("tls").ok() == Some(Some(true));
    match (is_secure, is_tls) {
        (false, true) => Finding::error(
            "tls",
            format!(
                "{place} speaks TLS, and the URL does not ask for it ({})",
                found.what
            ),
            "the server understands nothing that is said without TLS",
            "write tls=on, or rediss:// for one server of Redis",
        ),
        (true, false) => Finding::error(
            "tls",
            format!("{place} does not answer when TLS begins ({})", found.what),
            "without TLS that both sides speak there is no connection",
            "leave TLS out if the server has none at this port, else look at its log",
        ),
        (false, false) | (true, true) => found,
    }
}

async fn try_locks(report: &mut Report, pair: Pair<'_>, asked: Asked) {
    let scratch = Scratch::new();
    let key = scratch.key("round-trip");
    let measured = round_trip::measure(pair.first, pair.second, &key);
    match bounded(measured).await {
        Ok(round_trips) => {
            let advice = Advice::of(&round_trips, pair.first.capabilities().bound);
            report.add(advice.finding(asked, &round_trips));
            report.round_trips = Some(round_trips);
            report.advice = Some(advice);
        }
        // What cannot be acquired cannot be contended for.
        Err(error) => {
            report.add_once(fault(&error, "round-trip"));
            return;
        }
    }
    let tried = tokio::time::timeout(PATIENCE, trial::try_all(pair, &scratch)).await;
    match tried {
        Ok(found) => found.into_iter().for_each(|finding| report.add(finding)),
        Err(_) => report.add(fault(&silent(), "exclusion")),
    }
}

/// Waits for an answer of a backend, but not for ever.
async fn bounded<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let answer = tokio::time::timeout(PATIENCE, Box::pin(work)).await;
    answer.unwrap_or_else(|_| Err(silent()))
}

fn silent() -> Error {
    let message = format!("there is no answer within {}", human(PATIENCE));
    Error::new(ErrorKind::Unavailable, message)
}

/// Longer than the time-outs of the backends, which say what they waited for.
const PATIENCE: Duration = Duration::from_secs(30);
