//! One lock service, from the URL to locks that are tried.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use polylock::{DistributedLock, Error, ErrorKind, HealthCheck, LockUrl, Registry};

use super::report::DoctorReport;
use super::round_trip::{self, Advice, DEFAULT_SESSION_TIMEOUT};
use super::trial::{self, Pair, Scratch};
use crate::commands::app::SHUTDOWN;
use crate::output::human;

/// Checks the service of a URL; `ttl` is the length of lease that its round trips are judged for.
pub(super) async fn check(text: &str, ttl: Duration) -> DoctorReport {
    let registry = polylock::compiled_in();
    // The position of the secrets in an invalid URL is unknown.
    let shown = LockUrl::parse(text).map_or_else(
        |_| "a URL that cannot be read".to_owned(),
        |url| url.to_string(),
    );
    let url = match registry.backend_url(text) {
        Ok(url) => url,
        Err(error) => {
            let mut report = DoctorReport::new(shown, None);
            report.checks.push(fault(&error, "url"));
            return report;
        }
    };
    let mut report = DoctorReport::new(shown, Some(url.scheme().to_owned()));
    match bounded(registry.check_health(text)).await {
        Ok(checks) => report.checks.extend(checks),
        Err(error) => {
            report.checks.push(fault(&error, "connect"));
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
            let session_timeout = session_timeout.unwrap_or(DEFAULT_SESSION_TIMEOUT);
            try_locks(&mut report, pair, ttl, session_timeout).await;
            first.shutdown(SHUTDOWN).await;
            second.shutdown(SHUTDOWN).await;
        }
        // A check has reported the reason.
        Err(_) if report.explains_refusal() => {}
        Err(error) => report.checks.push(fault(&error, "connect")),
    }
    report
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

async fn try_locks(
    report: &mut DoctorReport,
    pair: Pair<'_>,
    ttl: Duration,
    session_timeout: Duration,
) {
    let scratch = Scratch::new();
    let key = scratch.key("round-trip");
    let measured = round_trip::measure(pair.first, pair.second, &key);
    match bounded(measured).await {
        Ok(round_trips) => {
            let advice = Advice::of(round_trips, pair.first.capabilities().bound);
            report.checks.push(advice.check(ttl, session_timeout));
            report.advice = Some(advice);
        }
        // A lock that cannot be acquired has no contention; a check may have reported the reason.
        Err(error) => {
            if !report.explains_refusal() {
                report.checks.push(fault(&error, "round-trip"));
            }
            return;
        }
    }
    match tokio::time::timeout(CHECK_TIMEOUT, trial::try_all(pair, &scratch)).await {
        Ok(checks) => report.checks.extend(checks),
        Err(_) => report.checks.push(fault(&silent(), "exclusion")),
    }
}

/// An error of a backend as a health check; `doing` is the check that met it.
pub(super) fn fault(error: &Error, doing: &'static str) -> HealthCheck {
    let id = match error.kind() {
        ErrorKind::InvalidConfig => "url",
        _ => doing,
    };
    HealthCheck::error(
        id,
        with_causes(error),
        "nothing can be locked, or not at the moment",
        "start the server, or correct the URL, its user and its password; the page of the backend \
         lists parameters and rights",
    )
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

pub(super) async fn bounded<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
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
    fn an_error_belongs_to_its_check_and_its_causes_are_named_once() {
        for (kind, message, id) in [
            (ErrorKind::Unavailable, "cannot connect: refused", "connect"),
            (ErrorKind::Denied, "cannot connect", "connect"),
            (ErrorKind::InvalidConfig, "cannot connect", "url"),
        ] {
            let error = Error::new(kind, message).with_source(io::Error::other("refused"));
            let found = fault(&error, "connect");
            assert_eq!((found.id, &*found.summary), (id, "cannot connect: refused"));
        }
    }
}
