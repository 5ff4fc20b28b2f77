//! What an error of a backend says of a server, as a finding.

#[cfg(test)]
mod tests;
mod words;

use std::error::Error as StdError;

use polylock::{Error, ErrorKind, Finding};

use self::words::Words;

/// The finding that an error comes to; `doing` is the check that met it.
pub(super) fn fault(error: &Error, doing: &'static str) -> Finding {
    let what = with_causes(error);
    let check = check(error.kind(), &Words::of(&what), doing);
    let (why, way_out) = advice(check);
    Finding::error(check, what, why, way_out)
}

/// An error with what caused it, each once.
fn with_causes(error: &Error) -> String {
    let mut text = error.message().to_owned();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}

/// The check that an error belongs to, by its kind and what it says.
fn check(kind: ErrorKind, says: &Words, doing: &'static str) -> &'static str {
    let said = |phrases: &[&str]| phrases.iter().any(|phrase| says.say(phrase));
    let by_words = WORDS.iter().find(|(_, phrases)| said(phrases));
    let by_words = by_words.map(|(check, _)| *check);
    match kind {
        ErrorKind::Denied if said(LACKS_A_RIGHT) => "rights",
        ErrorKind::Denied if said(NEEDS_TLS) => "tls",
        ErrorKind::Denied if said(WRONG_LOGIN) => "login",
        ErrorKind::Denied if said(TLS) => "tls",
        ErrorKind::Denied => "rights",
        ErrorKind::InvalidConfig if doing == "url" || said(MISSPELT) => "url",
        ErrorKind::InvalidConfig => by_words.unwrap_or("url"),
        // One that is silent or not understood may lack TLS, or speak it: it can be asked.
        ErrorKind::Foreign | ErrorKind::Protocol | ErrorKind::Unavailable => {
            by_words.filter(|check| *check != "tls").unwrap_or(doing)
        }
        _ => doing,
    }
}

const MISSPELT: &[&str] = &["unknown parameter", "unknown scheme"];

/// How servers say that a user may not do something, as opposed to being nobody.
const LACKS_A_RIGHT: &[&str] = &[
    "acl",
    "command denied",
    "denies a",
    "denies access",
    "no permission",
    "no permissions",
    "permission denied",
    "to database",
];

const NEEDS_TLS: &[&str] = &["client certificate", "without tls"];

const WRONG_LOGIN: &[&str] = &[
    "access denied for user",
    "asks for a login",
    "asks for a user",
    "authentication",
    "does not exist",
    "not allowed to connect",
    "not permitted to log in",
    "password",
    "refuses this user",
];

const TLS: &[&str] = &[
    "certificate",
    "pg_hba.conf",
    "ssl",
    "tls",
    "trust",
    "trusted",
];

/// What errors speak of that are about the state of a server.
const WORDS: &[(&str, &[&str])] = &[
    ("pooler", &["pooler in the path", "pooler is in the path"]),
    (
        "cluster",
        &[
            "in a cluster",
            "is no cluster",
            "the cluster has no master",
            "the cluster is down",
        ],
    ),
    ("filesystem", &["file system", "its journal is"]),
    ("rights", &["database file is read-only"]),
    (
        "replica",
        &[
            "a replica",
            "innodb_read_only",
            "read-only",
            "read_only",
            "standby",
            "super_read_only",
        ],
    ),
    (
        "table",
        &[
            "no table",
            "table has a row",
            "table has layout",
            "table its schema",
            "table may be",
        ],
    ),
    ("tls", &["certificate", "tls"]),
];

/// Why it matters, and the way out.
fn advice(check: &str) -> (&'static str, &'static str) {
    match check {
        "cluster" => (
            "a server of a cluster has a part of the keys only",
            "use redis-cluster:// for a cluster and redis:// for a server of its own; CLUSTER \
             NODES says which masters of a cluster fail",
        ),
        "filesystem" => (
            "locks in SQLite need a file system of this machine that can lock files and share \
             memory",
            "put the file on a local disk, or use a server",
        ),
        "login" => (
            "without a login there are no locks",
            "correct user and password in the URL, or let the server take this user from this \
             host; a character that means something in a URL is escaped, such as %40 for @",
        ),
        "pooler" => (
            "a lock that lives with a connection is left with the pooler, which gives the \
             connection to somebody else",
            "name the server itself, or a pooler with session pooling, or use mode=lease",
        ),
        "replica" => (
            "a server that takes no writes gives no locks",
            "name the primary, or whoever knows it",
        ),
        "rights" => (
            "an operation that the user lacks a right for fails when it is needed, which may be a \
             release",
            "give the user the rights that the documentation of the backend lists",
        ),
        "table" => (
            "locks are kept in a table",
            "create the database and the table: `lockctl schema print` shows the statements, \
             `lockctl schema apply` carries them out; table=NAME names another one where this one \
             is somebody else's",
        ),
        "tls" => (
            "without TLS that both sides agree on there is no connection",
            "use the scheme or the parameter for TLS if the server takes it, and only then; name \
             the authority that has signed its certificate",
        ),
        "url" => (
            "nothing can be connected to, and a parameter that is not known is not heeded",
            "correct the URL; the documentation of the backend lists its parameters",
        ),
        _ => (
            "what answers there is no server that takes locks, or not at the moment",
            "look at the port in the URL and at the log of the server",
        ),
    }
}
