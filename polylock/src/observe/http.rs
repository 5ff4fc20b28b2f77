//! Requests of HTTP that did not get their lock.

use lock_tower::{RefusedRequest, RejectionObserver};

use super::measure::{Measurement, Value};
use super::metric::Metric;

#[cfg(feature = "metrics")]
impl RejectionObserver for super::MetricsObserver {
    fn refused(&self, refused: &RefusedRequest<'_>) {
        self.record(&measurement(refused, 1));
    }

    fn announced(&self, possible: &RefusedRequest<'_>) {
        self.record(&measurement(possible, 0));
    }
}

#[cfg(feature = "otel")]
impl RejectionObserver for super::OtelObserver {
    fn refused(&self, refused: &RefusedRequest<'_>) {
        self.record(&measurement(refused, 1));
    }

    fn announced(&self, possible: &RefusedRequest<'_>) {
        self.record(&measurement(possible, 0));
    }
}

fn measurement<'a>(refused: &RefusedRequest<'a>, count: u64) -> Measurement<'a> {
    let words = [status(refused.status.as_u16()), refused.reason, ""];
    Measurement::new(
        Metric::HttpRejections,
        Value::Count(count),
        refused.class,
        words,
    )
}

/// A label for the status; `other` for one that is rarely an answer to a request without its lock.
fn status(code: u16) -> &'static str {
    match code {
        200 => "200",
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        408 => "408",
        409 => "409",
        413 => "413",
        422 => "422",
        423 => "423",
        425 => "425",
        429 => "429",
        500 => "500",
        502 => "502",
        503 => "503",
        504 => "504",
        _ => "other",
    }
}
