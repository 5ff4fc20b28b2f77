//! Requests of HTTP that did not get their lock.

use polylock_tower::RejectedRequest;

use super::measure::{Measurement, Value};
use super::metric::Metric;

pub(super) fn measurement<'a>(rejected: &RejectedRequest<'a>, count: u64) -> Measurement<'a> {
    let words = [status(rejected.status.as_u16()), rejected.reason, ""];
    Measurement::new(
        Metric::HttpRejections,
        Value::Count(count),
        rejected.class,
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
