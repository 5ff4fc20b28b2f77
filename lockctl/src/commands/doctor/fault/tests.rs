use std::io;

use super::*;

#[test]
fn errors_are_told_apart_by_kind_and_words() {
    use ErrorKind::{Denied, InvalidConfig, Protocol, Unavailable, Unsupported};
    let table = [
        (Denied, "a:1 refuses this user or password", "login"),
        (
            Denied,
            "a:1 asks for a user or a password, and the URL has none",
            "login",
        ),
        (
            Denied,
            "a:1 denies a command or a key to this user: see the list of ACL rules",
            "rights",
        ),
        (
            Denied,
            "the server refuses this user: permission denied for schema public",
            "rights",
        ),
        (
            Denied,
            "the server refuses this user: password authentication failed for user \"app\"",
            "login",
        ),
        (
            Denied,
            "the server refuses this user, or takes it by TLS only: then write tls=on: 1045: \
             Access denied for user 'app'@'localhost' (using password: YES)",
            "login",
        ),
        (
            Denied,
            "the server refuses this user: Access denied for user 'app'@'%' to database 'shop'",
            "rights",
        ),
        (
            Denied,
            "INSERT command denied to user 'app'@'localhost'",
            "rights",
        ),
        (
            Denied,
            "the TLS handshake with a:1 failed: it speaks no TLS, or its certificate is not \
             trusted",
            "tls",
        ),
        (
            Denied,
            "no server opens a session: a:1 and this client do not trust each other",
            "tls",
        ),
        (
            Denied,
            "ZooKeeper refuses this user or password, or asks for a login and the URL has none",
            "login",
        ),
        (
            Denied,
            "ZooKeeper denies access to a node: its access control list",
            "rights",
        ),
        (
            InvalidConfig,
            "unknown parameter \"tabel\", did you mean \"table\"?",
            "url",
        ),
        (
            InvalidConfig,
            "a:1 is in a cluster and does not have this key",
            "cluster",
        ),
        (
            InvalidConfig,
            "the server speaks no TLS, and tls=on asks for it",
            "tls",
        ),
        (
            InvalidConfig,
            "the table, its schema or the database does not exist",
            "table",
        ),
        (
            Unavailable,
            "a:1 is a replica, which takes no writes: name its master",
            "replica",
        ),
        (
            Unavailable,
            "read_only is on: it takes no writes",
            "replica",
        ),
        (Unavailable, "a:1 did not answer within 5s", "reach"),
        (
            Protocol,
            "a:1 answered something that is not understood",
            "reach",
        ),
        (Unsupported, "permits are not supported here", "reach"),
    ];
    for (kind, message, check) in table {
        let found = fault(&Error::new(kind, message), "reach");
        assert_eq!((found.check, found.what.as_ref()), (check, message));
    }
    let wrong = Error::new(InvalidConfig, "unknown parameter \"cluster\"");
    assert_eq!(fault(&wrong, "url").check, "url");
}

#[test]
fn causes_are_said_once() {
    let error = Error::new(ErrorKind::Unavailable, "cannot connect: refused")
        .with_source(io::Error::other("refused"));
    assert_eq!(with_causes(&error), "cannot connect: refused");
    let error = Error::new(ErrorKind::Unavailable, "cannot connect")
        .with_source(io::Error::other("refused"));
    assert_eq!(with_causes(&error), "cannot connect: refused");
}
