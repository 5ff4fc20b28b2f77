//! Text for people: escapes, durations and times.

use std::fmt::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use polylock::admin::HolderInfo;
use polylock::coordination::{LastRun, Leader};
use polylock::{Label, LockUrl};
use serde_json::Value;

/// Shows text of others with the characters escaped that steer a terminal or turn the reading
/// direction.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\n' => f.write_str("\\n"),
            '\t' => f.write_str("\\t"),
            c if c.is_control() || is_invisible(c) => write!(f, "\\u{{{:x}}}", u32::from(c)),
            c => f.write_char(c),
        })
    }
}

/// Bidirectional controls, line separators, what has no width (`Default_Ignorable_Code_Point` of Unicode), and
/// blanks that look like a space or like nothing.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{a0}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{1680}'
            | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2000}'..='\u{200f}'
            | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}' | '\u{2800}' | '\u{3000}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Escaped text as a value of its own.
pub(crate) fn escaped(text: &str) -> String {
    Escaped(text).to_string()
}

/// A JSON value on a line. Its text has the same characters escaped as [`Escaped`], in the way of JSON, so the
/// value is the same.
pub(crate) fn json_line(value: &Value) -> String {
    let mut line = String::new();
    for c in value.to_string().chars() {
        // JSON itself has none of them outside of its strings.
        if c.is_control() || is_invisible(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                line += &format!("\\u{unit:04x}");
            }
        } else {
            line.push(c);
        }
    }
    line + "\n"
}

/// The name of a file that the caller gave, not escaped; `***` if it may be a URL with a password.
pub(crate) fn path_text(path: &Path) -> String {
    let name = path.to_string_lossy();
    match LockUrl::may_be_url(&name) {
        true => "***".to_owned(),
        false => name.into_owned(),
    }
}

pub(crate) fn names<'k>(keys: impl IntoIterator<Item = &'k str>) -> String {
    let keys: Vec<_> = keys.into_iter().map(escaped).collect();
    keys.join(", ")
}

/// Text as a word that can be pasted into a shell.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@%+,=".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", escaped(text).replace('\'', r"'\''"))
}

/// A duration in its two largest units, such as `3m12s`, or in milliseconds below a second.
pub(crate) fn human(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds == 0 {
        return format!("{}ms", duration.as_millis());
    }
    let units = [
        (seconds / 86_400, "d"),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let largest = units.iter().skip_while(|(count, _)| *count == 0).take(2);
    let shown = largest.filter(|(count, _)| *count > 0);
    shown
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect()
}

/// The time since a moment, zero if the clocks differ.
pub(crate) fn age(since: SystemTime) -> Duration {
    SystemTime::now().duration_since(since).unwrap_or_default()
}

/// The holder: `etl-7c9 pid 4121`.
pub(crate) fn who(label: &Label) -> String {
    match label.pid() {
        0 => host(label),
        pid => format!("{} pid {pid}", host(label)),
    }
}

fn host(label: &Label) -> String {
    match label.host() {
        "" => "unknown host".to_owned(),
        host => escaped(host),
    }
}

/// The note of a label, without the id of a term that that of a leader begins with.
pub(super) fn note(label: &Label) -> String {
    let leader = Leader::of(HolderInfo::new(label.clone()), None);
    leader.label.note().to_owned()
}

/// The note of a label at the end of a sentence, if there is one: `, note "reindex"`.
pub(super) fn note_after(label: &Label) -> String {
    match note(label).as_str() {
        "" => String::new(),
        note => format!(", note \"{}\"", Escaped(note)),
    }
}

/// A holder while it is waited for: `etl-7c9 (pid 4121, user deploy) for 3m12s, note "reindex",
/// lease ends in 27s`.
pub(crate) fn holder_waited_for(holder: &HolderInfo) -> String {
    let label = &holder.label;
    let mut out = host(label);
    let mut details = Vec::new();
    if label.pid() != 0 {
        details.push(format!("pid {}", label.pid()));
    }
    if !label.user().is_empty() {
        details.push(format!("user {}", Escaped(label.user())));
    }
    if !details.is_empty() {
        out += &format!(" ({})", details.join(", "));
    }
    if let Some(since) = holder.since {
        out += &format!(" for {}", human(age(since)));
    }
    out += &note_after(label);
    if let Some(left) = holder.time_left {
        out += &format!(", lease ends in {}", human(left));
    }
    out
}

/// A holder in an error: `etl-7c9 pid 4121 since 03:00:00Z (3m42s), token 1841`.
pub(crate) fn holder_refusing(holder: &HolderInfo) -> String {
    let mut out = who(&holder.label);
    if let Some(since) = holder.since {
        out += &format!(" since {} ({})", clock(since), human(age(since)));
    }
    if let Some(token) = holder.token {
        out += &format!(", token {token}");
    }
    out += &note_after(&holder.label);
    out
}

/// A run in a sentence after its job: `ran at 03:00:00Z (3h12m ago) for 42s on etl-7c9 pid 4121`.
pub(crate) fn last_run_text(run: &LastRun) -> String {
    let (outcome, started) = (run.outcome.as_str(), clock(run.started));
    let (ago, took, who) = (human(age(run.started)), human(took(run)), who(&run.label));
    let mut out = format!("{outcome} at {started} ({ago} ago) for {took} on {who}");
    out += &note_after(&run.label);
    out
}

/// How long a run lasted, zero if its clock was set back.
pub(super) fn took(run: &LastRun) -> Duration {
    run.finished.duration_since(run.started).unwrap_or_default()
}

/// An address as text, whatever bytes another program has proclaimed.
pub(crate) fn address_text(address: &[u8]) -> String {
    String::from_utf8_lossy(address).into_owned()
}

/// The time of day in UTC, with the date if that is not the day of the last 12 hours.
pub(crate) fn clock(time: SystemTime) -> String {
    let stamp = timestamp(time);
    let is_recent = age(time) < Duration::from_secs(12 * 3600);
    match stamp.split_once('T') {
        Some((_, time)) if is_recent => format!("{}Z", &time[..8]),
        Some((day, time)) => format!("{day} {}Z", &time[..8]),
        None => stamp,
    }
}

/// A moment as RFC 3339 with milliseconds, in UTC.
pub(crate) fn timestamp(time: SystemTime) -> String {
    // Beyond the year 9999 the formatter gives up; no lock is that old or new.
    let longest = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let time = time.clamp(SystemTime::UNIX_EPOCH, longest);
    humantime::format_rfc3339_millis(time).to_string()
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    millis(since)
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_escaped() {
        assert_eq!(
            escaped("a\u{1b}[31m\u{202e}b\nü\u{9b}"),
            "a\\u{1b}[31m\\u{202e}b\\nü\\u{9b}"
        );
    }

    /// Two keys that look alike could be taken for each other.
    #[test]
    fn what_cannot_be_seen_is_escaped() {
        let hidden = "\u{a0}\u{34f}\u{180e}\u{2800}\u{3164}\u{fe0f}\u{e0148}";
        for c in hidden.chars() {
            let code = u32::from(c);
            assert_eq!(
                escaped(&format!("deploy{c}")),
                format!("deploy\\u{{{code:x}}}")
            );
        }
    }

    #[test]
    fn json_has_nothing_that_steers_a_terminal() {
        let note = "a\u{1b}[31m\u{7f}\u{9b}2J\\\u{202e}\n\u{e0041}ü🔒";
        let value = serde_json::json!({ "note": note, note: [1, null] });
        let line = json_line(&value);
        let text = line.strip_suffix('\n').expect("it is a line");
        assert_eq!(escaped(text), text);
        assert!(text.contains("\\u007f\\u009b2J"), "{text}");
        assert!(text.contains("\\udb40\\udc41ü🔒"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), value);
    }

    #[test]
    fn a_hint_can_be_pasted_into_a_shell() {
        assert_eq!(quoted("orders/nightly"), "orders/nightly");
        assert_eq!(quoted("it's $(rm)"), r"'it'\''s $(rm)'");
    }

    #[test]
    fn durations_have_two_units() {
        let table = [
            (0, "0ms"),
            (999, "999ms"),
            (1000, "1s"),
            (61_999, "1m1s"),
            (192_000, "3m12s"),
            (3_600_000, "1h"),
            (3_605_000, "1h"),
            (90_061_000, "1d1h"),
        ];
        for (millis, text) in table {
            assert_eq!(human(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn holders_are_named_in_one_line() {
        let label = Label::decode("host=etl-7c9&pid=4121&user=deploy&note=re%1bindex");
        let mut holder = HolderInfo::new(label);
        holder.since = Some(SystemTime::now() - Duration::from_millis(192_100));
        holder.time_left = Some(Duration::from_secs(27));
        assert_eq!(
            holder_waited_for(&holder),
            "etl-7c9 (pid 4121, user deploy) for 3m12s, note \"re\\u{1b}index\", lease ends in 27s"
        );
        assert!(holder_refusing(&holder).starts_with("etl-7c9 pid 4121 since "));
        assert!(holder_refusing(&holder).contains("Z (3m12s), note "));
    }

    #[test]
    fn a_run_is_told_in_one_line() {
        let ended = unix_ms(SystemTime::now() - Duration::from_millis(11_520_100));
        let record = format!(
            "started={}&finished={ended}&outcome=failed&host=etl-7c9&pid=4121&note=a%1bb",
            ended - 42_000
        );
        let text = last_run_text(&LastRun::decode(record.as_bytes()).unwrap());
        assert!(text.starts_with("failed at "), "{text}");
        let rest = "Z (3h12m ago) for 42s on etl-7c9 pid 4121, note \"a\\u{1b}b\"";
        assert!(text.ends_with(rest), "{text}");
    }

    #[test]
    fn times_before_and_after_all_calendars_are_printed() {
        assert_eq!(
            timestamp(SystemTime::UNIX_EPOCH),
            "1970-01-01T00:00:00.000Z"
        );
        assert!(timestamp(SystemTime::now() + Duration::from_secs(1 << 39)).starts_with("9999"));
    }
}
