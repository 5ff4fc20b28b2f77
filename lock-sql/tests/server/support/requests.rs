use lock_core::memory::Request;
use lock_testkit::proxy::Command;

use super::Mode;

/// Which request a statement is.
pub(crate) fn of(command: &Command, mode: Mode) -> Option<Request> {
    if !command.is("EXECUTE") && !command.is("QUERY") {
        return None;
    }
    let text = command.arg(1);
    let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
    match mode {
        Mode::Lease | Mode::Observer => {
            if has(&["beat = l.beat + 1"]) {
                Some(Request::Renew)
            } else if has(&["SET id = NULL", "SET l.id = NULL"]) {
                Some(Request::Release)
            } else if has(&["GREATEST(l.last_token + 1"]) && has(&["label = "]) {
                Some(Request::Acquire)
            } else {
                None
            }
        }
        // The number that is selected with a row that is locked.
        Mode::Row if has(&["7205759"]) => Some(Request::Acquire),
        Mode::Row if text.starts_with("ROLLBACK") => Some(Request::Release),
        Mode::Advisory if has(&["polylock.got", "@polylock_got"]) => Some(Request::Acquire),
        Mode::Advisory if has(&["pg_advisory_unlock", "RELEASE_LOCK"]) => Some(Request::Release),
        Mode::Advisory | Mode::Row => None,
    }
}
