//! Statuses, timeouts and content types of gRPC.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response};

use super::{Reason, Rejection};

/// Answers a call: the status is in the head, and there is no body.
pub(super) fn answer(content_type: &'static str, rejection: &Rejection) -> Response<Bytes> {
    let mut response = without_body(rejection);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Numbers of the gRPC protocol.
fn code(reason: Reason) -> i32 {
    match reason {
        Reason::BodyTooLarge
        | Reason::BodyUnreadable
        | Reason::IdempotencyKeyInvalid
        | Reason::IdempotencyKeyMissing
        | Reason::IdempotencyKeyReused
        | Reason::InvalidKey => 3, // INVALID_ARGUMENT
        Reason::ResponseNotKept => 6, // ALREADY_EXISTS
        Reason::QueueFull => 8,       // RESOURCE_EXHAUSTED
        Reason::Busy | Reason::Lost | Reason::TimedOut => 10, // ABORTED
        Reason::Misconfigured => 13,  // INTERNAL
        Reason::StoreUnavailable | Reason::Unavailable => 14, // UNAVAILABLE
    }
}

/// Whether the body of a response is a stream of gRPC messages, which ends with trailers. gRPC-Web has its
/// trailers in the body.
pub(crate) fn has_trailers(response: &HeaderMap) -> bool {
    response.get(CONTENT_TYPE).and_then(content_type) == Some(GRPC)
}

/// The end of a stream that is cut off.
pub(crate) fn trailers(rejection: &Rejection) -> HeaderMap {
    let mut headers = without_body(rejection).into_parts().0.headers;
    headers.remove(CONTENT_TYPE);
    headers
}

/// The end of a stream that took too long.
pub(crate) fn late_trailers(message: &str) -> HeaderMap {
    status(4, message) // DEADLINE_EXCEEDED
}

#[cfg(not(feature = "tonic"))]
fn without_body(rejection: &Rejection) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.headers_mut() = status(code(rejection.reason()), &rejection.to_string());
    response
}

fn status(code: i32, message: &str) -> HeaderMap {
    let message = percent_encoding::utf8_percent_encode(message, ESCAPED).to_string();
    let message = HeaderValue::try_from(message).expect("BUG: what is no header is escaped");
    let mut headers = HeaderMap::new();
    headers.insert("grpc-status", code.into());
    headers.insert("grpc-message", message);
    headers
}

/// Characters that a message must escape: the percent sign, and all but printable ASCII.
const ESCAPED: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS.add(b'%');

const GRPC: &str = "application/grpc";

#[cfg(feature = "tonic")]
fn without_body(rejection: &Rejection) -> Response<Bytes> {
    tonic::Status::from(rejection).into_http()
}

#[cfg(feature = "tonic")]
mod status {
    use std::collections::HashMap;

    use tonic::{Code, Status};
    use tonic_types::{ErrorDetails, StatusExt as _};

    use crate::held_lock::NotHeld;
    use crate::rejection::{Reason, Rejection};

    /// Includes `RetryInfo` if a retry is worthwhile, and `ErrorInfo` whose reason is [`Reason::as_str`] in
    /// capitals, `LOCK_BUSY`, in the domain `polylock`.
    impl From<&Rejection> for Status {
        fn from(rejection: &Rejection) -> Self {
            let reason = rejection.reason();
            let mut details = ErrorDetails::new();
            details.set_error_info(name(reason), "polylock", HashMap::new());
            if let Some(after) = rejection.retry_after() {
                details.set_retry_info(Some(after));
            }
            let code = Code::from_i32(super::code(reason));
            Self::with_error_details(code, rejection.to_string(), details)
        }
    }

    /// `ErrorInfo` asks for names of this form.
    fn name(reason: Reason) -> String {
        reason.as_str().to_ascii_uppercase().replace('-', "_")
    }

    /// For handlers that acquire their lock with a [`Locker`](crate::Locker).
    impl From<Rejection> for Status {
        fn from(rejection: Rejection) -> Self {
            Self::from(&rejection)
        }
    }

    /// For handlers that check their lock.
    impl From<NotHeld> for Status {
        fn from(not_held: NotHeld) -> Self {
            Self::from(&Rejection::from(not_held))
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn codes_are_the_ones_of_the_table() {
            let cases = [
                (Reason::Busy, Code::Aborted, "LOCK_BUSY"),
                (Reason::InvalidKey, Code::InvalidArgument, "LOCK_KEY"),
                (Reason::Lost, Code::Aborted, "LOCK_LOST"),
                (Reason::Misconfigured, Code::Internal, "LOCK_MISCONFIGURED"),
                (
                    Reason::QueueFull,
                    Code::ResourceExhausted,
                    "LOCK_QUEUE_FULL",
                ),
                (Reason::TimedOut, Code::Aborted, "LOCK_TIMEOUT"),
                (Reason::Unavailable, Code::Unavailable, "LOCK_UNAVAILABLE"),
            ];
            for (reason, code, name) in cases {
                let status = Status::from(Rejection::new(reason));
                assert_eq!(status.code(), code, "{reason:?}");
                let info = status.get_details_error_info().unwrap();
                assert_eq!((&*info.reason, &*info.domain), (name, "polylock"));
            }
        }
    }
}

/// gRPC-Web clients check the content type, and would not read a status under that of gRPC. The content
/// type of the request is not echoed: a client can put any text into it.
pub(super) fn content_type(sent: &HeaderValue) -> Option<&'static str> {
    let text = sent.as_bytes().to_ascii_lowercase();
    let rest = text.strip_prefix(b"application/grpc")?;
    let (rest, answer) = [
        (b"-web-text".as_slice(), "application/grpc-web-text+proto"),
        (b"-web", "application/grpc-web+proto"),
        (b"", GRPC),
    ]
    .into_iter()
    .find_map(|(kind, answer)| Some((rest.strip_prefix(kind)?, answer)))?;
    matches!(rest.first(), None | Some(b'+' | b';' | b' ')).then_some(answer)
}

/// The deadline of a gRPC call; `None` without one or with a malformed one.
pub(crate) fn grpc_timeout(parts: &Parts) -> Option<Duration> {
    parse(parts.headers.get("grpc-timeout")?.as_bytes())
}

/// Up to eight digits and a unit, says the protocol; eight digits of hours are far from the limits
/// of the numbers here.
fn parse(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if !(1..=8).contains(&digits.len()) {
        return None;
    }
    let number = digits.iter().try_fold(0, |number: u64, digit| {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        Some(number * 10 + u64::from(digit))
    })?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 60 * 60),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_to_its_greatest_number() {
        let cases = [
            ("1H", Duration::from_secs(3600)),
            ("99999999H", Duration::from_secs(99_999_999 * 3600)),
            ("2M", Duration::from_secs(120)),
            ("99999999M", Duration::from_secs(99_999_999 * 60)),
            ("3S", Duration::from_secs(3)),
            ("250m", Duration::from_millis(250)),
            ("99999999u", Duration::from_micros(99_999_999)),
            ("00000007n", Duration::from_nanos(7)),
            ("0S", Duration::ZERO),
        ];
        for (text, time) in cases {
            assert_eq!(parse(text.as_bytes()), Some(time), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_timeout_is_none() {
        let cases = [
            "",
            "S",
            "1",
            "100",
            "999999999S",
            "-1S",
            "+1S",
            "1.5S",
            " 1S",
            "1S ",
            "1 S",
            "1s",
            "1h",
            "1ms",
            "0x1S",
            "\u{661}S",
            "\u{b5}",
            "1\u{b5}",
        ];
        for text in cases {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(b"1\xff"), None);
    }

    #[test]
    fn content_types_tell_calls_from_requests() {
        let cases = [
            ("application/grpc", Some("application/grpc")),
            ("application/grpc+proto", Some("application/grpc")),
            ("Application/gRPC;q=1", Some("application/grpc")),
            ("application/grpc-web", Some("application/grpc-web+proto")),
            (
                "application/grpc-web+json",
                Some("application/grpc-web+proto"),
            ),
            (
                "application/grpc-web-text",
                Some("application/grpc-web-text+proto"),
            ),
            ("application/grpcs", None),
            ("application/grpc-webs", None),
            ("application/json", None),
            ("", None),
        ];
        for (sent, answered) in cases {
            let found = content_type(&HeaderValue::from_static(sent));
            assert_eq!(found, answered, "{sent}");
        }
    }
}
