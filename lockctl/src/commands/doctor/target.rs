//! One lock service, from the URL to locks that are tried.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use polylock::{DistributedLock, Error, ErrorKind, HealthCheck, LockUrl, Registry};

use super::report::Report;
use super::round_trip;
use super::timing::{Advice, Asked, DEFAULT_SESSION_TIMEOUT};
use super::tls;
use super::trial::{self, Pair, Scratch};
use crate::commands::SHUTDOWN;
use crate::text::human;

/// Checks the service of a URL; `ttl` is the length of lease that its round trips are judged for.
pub(super) async fn check(text: &str, ttl: Duration) -> Report {
    let registry = polylock::compiled_in();
    let url = match registry.backend_url(text) {
        Ok(url) => url,
        Err(error) => {
            // Of a URL that cannot be read, the place of its secrets is not known.
            let shown = LockUrl::parse(text).map_or_else(
                |_| "a URL that cannot be read".to_owned(),
                |url| url.to_string(),
            );
            let mut report = Report::new(shown, None);
            report.add(fault(&error, "url"));
            return report;
        }
    };
    let mut report = Report::new(shown(text), Some(url.scheme().to_owned()));
    match bounded(registry.check_health(text)).await {
        Ok(checks) => checks.into_iter().for_each(|check| report.add(check)),
        Err(error) => {
            report.add(of_connecting(&error, &url).await);
            return report;
        }
    }
    match bounded(connect(&registry, text, &url)).await {
        Ok([first, second]) => {
            let pair = Pair {
                first: &*first,
                second: &*second,
            };
            let session_timeout = url.params().duration("session-timeout").ok().flatten();
            let asked = Asked {
                ttl,
                session_timeout: session_timeout.unwrap_or(DEFAULT_SESSION_TIMEOUT),
            };
            try_locks(&mut report, pair, asked).await;
            first.shutdown(SHUTDOWN).await;
            second.shutdown(SHUTDOWN).await;
        }
        // A check has reported the reason.
        Err(_) if report.has_error() => {}
        Err(error) => report.add(of_connecting(&error, &url).await),
    }
    report
}

fn shown(text: &str) -> String {
    LockUrl::parse(text).map_or_else(|_| String::new(), |url| url.to_string())
}

async fn connect(
    registry: &Registry,
    text: &str,
    url: &LockUrl,
) -> Result<[Arc<dyn DistributedLock>; 2], Error> {
    let first = registry.connect(text).await?;
    // Two connections to an unnamed store have nothing in common.
    let is_private = url.scheme() == "memory" && url.path().is_empty();
    let second = match is_private {
        true => Arc::clone(&first),
        false => registry.connect(text).await?,
    };
    Ok([first, second])
}

async fn try_locks(report: &mut Report, pair: Pair<'_>, asked: Asked) {
    let scratch = Scratch::new();
    let key = scratch.key("round-trip");
    let measured = round_trip::measure(pair.first, pair.second, &key);
    match bounded(measured).await {
        Ok(round_trips) => {
            let advice = Advice::of(&round_trips, pair.first.capabilities().bound);
            report.add(advice.check(asked, &round_trips));
            report.round_trips = Some(round_trips);
            report.advice = Some(advice);
        }
        // What cannot be acquired cannot be contended for; a check may have reported the reason.
        Err(error) => {
            if !report.has_error() {
                report.add(fault(&error, "round-trip"));
            }
            return;
        }
    }
    match tokio::time::timeout(CHECK_TIMEOUT, trial::try_all(pair, &scratch)).await {
        Ok(checks) => checks.into_iter().for_each(|check| report.add(check)),
        Err(_) => report.add(fault(&silent(), "exclusion")),
    }
}

/// The error of a connection; says so if only one side speaks TLS.
async fn of_connecting(error: &Error, url: &LockUrl) -> HealthCheck {
    let found = fault(error, "connect");
    let is_secure = url.scheme() == "rediss" || url.params().bool("tls").ok() == Some(Some(true));
    if found.id != "connect" {
        return found;
    }
    match (tls::first_answer(url).await, is_secure) {
        (Some((host, true)), false) => HealthCheck::error(
            "tls",
            format!(
                "{host} speaks TLS, and the URL does not ask for it ({})",
                found.summary
            ),
            "the server understands nothing without TLS",
            "write tls=on, or rediss:// for one server of Redis",
        ),
        (Some((host, false)), true) => HealthCheck::error(
            "tls",
            format!("{host} does not answer when TLS begins ({})", found.summary),
            "there is no connection",
            "leave TLS out if the server has none at this port, else read its log",
        ),
        _ => found,
    }
}

/// An error of a backend as a health check; `doing` is the check that met it.
pub(super) fn fault(error: &Error, doing: &'static str) -> HealthCheck {
    let summary = with_causes(error);
    let of_tls = [
        "TLS handshake",
        "certificate",
        "no TLS",
        "not trust",
        "without TLS",
    ];
    let is_tls = of_tls.iter().any(|words| summary.contains(words));
    let (id, impact, fix) = match error.kind() {
        ErrorKind::Denied | ErrorKind::InvalidConfig if is_tls => (
            "tls",
            "there is no connection without TLS that both sides agree on",
            "ask for TLS if the server has it, and only then (rediss://, tls=on); name the \
             authority of its certificate by tls-ca-file",
        ),
        ErrorKind::Denied if ["connect", "url"].contains(&doing) => (
            "login",
            "the server lets nobody in",
            "correct user and password in the URL, or let the server accept this user from this \
             host; escape special characters, such as %40 for @",
        ),
        ErrorKind::Denied => (
            "rights",
            "locks that need this right are refused",
            "give the user the rights that the page of the backend lists",
        ),
        ErrorKind::InvalidConfig => (
            "url",
            "there is no connection",
            "correct the URL; the page of the backend lists its parameters",
        ),
        _ => (
            doing,
            "nothing can be locked, or not at the moment",
            "start the server, correct host and port in the URL, open the port in firewalls, or read \
             the log of the server",
        ),
    };
    HealthCheck::error(id, summary, impact, fix)
}

/// An error with its causes, each once.
fn with_causes(error: &Error) -> String {
    let mut text = error.message().to_owned();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

async fn bounded<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let answer = tokio::time::timeout(CHECK_TIMEOUT, Box::pin(work)).await;
    answer.unwrap_or_else(|_| Err(silent()))
}

fn silent() -> Error {
    let message = format!("timed out after {}", human(CHECK_TIMEOUT));
    Error::new(ErrorKind::Unavailable, message)
}

/// Longer than the timeouts of the backends, whose errors say more.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_error_belongs_to_the_check_of_its_kind() {
        for (kind, doing, message, id) in [
            (
                ErrorKind::Denied,
                "connect",
                "a:1 refuses this user or password",
                "login",
            ),
            (
                ErrorKind::Denied,
                "connect",
                "the TLS handshake with a:1 failed",
                "tls",
            ),
            (
                ErrorKind::Denied,
                "connect",
                "a:1 and this client do not trust each other",
                "tls",
            ),
            (
                ErrorKind::Denied,
                "round-trip",
                "no permission for a command",
                "rights",
            ),
            (
                ErrorKind::InvalidConfig,
                "url",
                "unknown parameter \"tabel\"",
                "url",
            ),
            (
                ErrorKind::InvalidConfig,
                "connect",
                "the server has no TLS",
                "tls",
            ),
            (
                ErrorKind::Unavailable,
                "connect",
                "tls-proxy:6379: timed out after 5s",
                "connect",
            ),
            (
                ErrorKind::Unsupported,
                "exclusion",
                "permits are not supported",
                "exclusion",
            ),
        ] {
            let found = fault(&Error::new(kind, message), doing);
            assert_eq!((found.id, &*found.summary), (id, message));
        }
    }

    #[test]
    fn causes_are_named_once() {
        for message in ["cannot connect: refused", "cannot connect"] {
            let error = Error::new(ErrorKind::Unavailable, message)
                .with_source(io::Error::other("refused"));
            assert_eq!(with_causes(&error), "cannot connect: refused");
        }
    }
}
