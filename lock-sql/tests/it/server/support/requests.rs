use lock_testkit::proxy::Command;
use polylock_core::memory::Request;

use super::Mode;

/// Which request a statement is.
pub(crate) fn of(command: &Command, mode: Mode) -> Option<Request> {
    if !command.is("EXECUTE") && !command.is("QUERY") {
        return None;
    }
    let text = command.arg(1);
    let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
    match mode {
        Mode::Lease => {
            if has(&["GREATEST(d.ttl"]) {
                Some(Request::Renew)
            } else if has(&["l.id IN ("]) {
                Some(Request::Adopt)
            } else if has(&["SET id = NULL", "SET l.id = NULL"]) {
                Some(Request::Release)
            } else if has(&["GREATEST(l.last_token + 1"]) && has(&["label = "]) {
                Some(Request::Acquire)
            } else {
                None
            }
        }
        // A session prepares what it needs at its beginning.
        Mode::Row if has(&["PREPARE polylock_"]) => None,
        Mode::Row if text.starts_with("ROLLBACK") || text.ends_with("COMMIT") => {
            Some(Request::Release)
        }
        Mode::Row
            if has(&[
                "START TRANSACTION",
                "EXECUTE polylock_try",
                "EXECUTE polylock_wait",
            ]) =>
        {
            Some(Request::Acquire)
        }
        // A downgrade.
        Mode::Advisory
            if has(&["pg_advisory_lock_shared("]) && has(&["ELSE (pg_advisory_unlock"]) =>
        {
            None
        }
        Mode::Advisory if has(&["RELEASE_LOCK(", "ELSE (pg_advisory_unlock"]) => {
            Some(Request::Release)
        }
        Mode::Advisory
            if has(&["CASE GET_LOCK("])
                || text.starts_with("SELECT CASE WHEN pg_backend_pid()") =>
        {
            Some(Request::Acquire)
        }
        Mode::Advisory | Mode::Row => None,
    }
}
