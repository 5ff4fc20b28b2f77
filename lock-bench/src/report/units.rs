//! Numbers for people: three digits and a unit.

/// A duration of so many nanoseconds, such as `12.3 us`.
#[must_use]
pub fn duration(nanos: f64) -> String {
    let steps = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
    let fits = |step: &&(f64, &str)| nanos >= step.0 * 0.9995;
    match steps.iter().find(fits) {
        Some((size, unit)) => format!("{} {unit}", number(nanos / size)),
        None => format!("{} ns", number(nanos)),
    }
}

/// A number with three digits, and with commas between thousands from a thousand on.
#[must_use]
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 || size == 0.0 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    let mut text = format!("{value:.decimals$}");
    if decimals == 0 {
        let first = usize::from(value < 0.0) + 1;
        let mut at = text.len();
        while at > first + 2 {
            at -= 3;
            text.insert(at, ',');
        }
    }
    text
}

/// A change against what was, such as `+4.2 %`.
#[must_use]
pub fn change(share: f64) -> String {
    match share.is_finite() {
        true => format!("{:+.1} %", share * 100.0),
        false => "from 0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_the_largest_unit_that_fits() {
        for (value, text) in [
            (0.0, "0"),
            (0.123_4, "0.12"),
            (9.999, "10.0"),
            (99.96, "100"),
            (1_234_567.0, "1,234,567"),
            (-123_456.0, "-123,456"),
        ] {
            assert_eq!(number(value), text);
        }
        for (nanos, text) in [
            (1.0, "1.00 ns"),
            (999.9, "1.00 us"),
            (12_345.0, "12.3 us"),
            (2_500_000_000.0, "2.50 s"),
        ] {
            assert_eq!(duration(nanos), text);
        }
        for (share, text) in [
            (-0.1, "-10.0 %"),
            (0.042, "+4.2 %"),
            (f64::INFINITY, "from 0"),
        ] {
            assert_eq!(change(share), text);
        }
    }
}
