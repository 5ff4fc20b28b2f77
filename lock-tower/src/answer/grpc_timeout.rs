use std::time::Duration;

use http::request::Parts;

/// The time that a gRPC client gives the call, if it says so; what it says wrongly is not said.
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
    fn the_header_is_where_it_is_looked_for() {
        let request = http::Request::post("/").header("grpc-timeout", "100m");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(grpc_timeout(&parts), Some(Duration::from_millis(100)));
        let (parts, ()) = http::Request::new(()).into_parts();
        assert_eq!(grpc_timeout(&parts), None);
    }
}
