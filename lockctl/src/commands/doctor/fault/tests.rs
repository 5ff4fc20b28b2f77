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
fn names_of_hosts_files_and_users_say_nothing() {
    use ErrorKind::{Denied, InvalidConfig, Protocol, Unavailable};
    for (kind, message, check) in [
        (
            Unavailable,
            "tls-proxy:6379 did not answer within 5s",
            "reach",
        ),
        (
            Unavailable,
            "cannot connect to standby.db.internal:6379",
            "reach",
        ),
        (
            Unavailable,
            "the connection to recovery-redis:6379 broke",
            "reach",
        ),
        (
            Unavailable,
            "standby:6379 did not answer within 5s",
            "reach",
        ),
        (
            Unavailable,
            "table-locks:6379 did not answer within 5s",
            "reach",
        ),
        (
            Unavailable,
            "/run/standby/tls.sock did not answer within 5s",
            "reach",
        ),
        (
            Protocol,
            "certificate:1 says what is not acceptable",
            "reach",
        ),
        (
            Unavailable,
            "no master named \"standby\" can be reached by the sentinels",
            "reach",
        ),
        (
            Unavailable,
            "standby:6379 is a replica, which takes no writes: name its master",
            "replica",
        ),
        (
            Denied,
            "the TLS handshake with password-cache:6379 failed: it speaks no TLS",
            "tls",
        ),
        (
            Denied,
            "the server refuses this user: role \"command denied\" does not exist",
            "login",
        ),
        (
            InvalidConfig,
            "the table name \"tls\" has other characters than letters, digits and underscores",
            "url",
        ),
    ] {
        let found = fault(&Error::new(kind, message), "reach");
        assert_eq!(found.check, check, "{message}");
    }
}

#[test]
fn a_server_that_takes_nothing_for_now_is_not_taken_for_something_else() {
    use ErrorKind::{Denied, InvalidConfig, Protocol, Unavailable};
    for (kind, message, check) in [
        (Unavailable, "the cluster did not answer within 5s", "reach"),
        (
            Unavailable,
            "the cluster has no master for slot 7: CLUSTER NODES says which one fails",
            "cluster",
        ),
        (
            Unavailable,
            "a:1 is in a cluster that is down: CLUSTER INFO and CLUSTER NODES say which masters \
             fail",
            "cluster",
        ),
        (Unavailable, "the server starts, stops or recovers", "reach"),
        (
            Unavailable,
            "a:1 cannot save its data and takes no writes (MISCONF): its log says why",
            "reach",
        ),
        (
            Unavailable,
            "the server is out of disk space or memory: 1114: The table 't' is full",
            "reach",
        ),
        (
            Unavailable,
            "no server opens a session: a:1 closes connections: it has maxClientCnxns of them, \
             takes TLS only, or is no ZooKeeper",
            "reach",
        ),
        (
            Unavailable,
            "the database file \"/l.db\" is read-only",
            "rights",
        ),
        (
            Protocol,
            "table \"polylock_locks\" has layout 7, and this version knows layout 1",
            "table",
        ),
        (
            Protocol,
            "the server refused a statement, the table may be somebody else's",
            "table",
        ),
        (
            InvalidConfig,
            "a transaction pooler is in the path: it gives the session of an advisory lock to \
             others",
            "pooler",
        ),
        (
            Denied,
            "the server takes no such connection without TLS, write tls=on: no pg_hba.conf entry \
             for host \"::1\", user \"app\", database \"shop\", no encryption",
            "tls",
        ),
        (
            Denied,
            "the server refuses this user: connection requires a valid client certificate",
            "tls",
        ),
        (
            Denied,
            "the server refuses this user: no pg_hba.conf entry for host \"::1\", user \"app\", \
             database \"shop\", SSL encryption",
            "login",
        ),
        (
            Denied,
            "the server refuses this user: Host 'a' is not allowed to connect to this server",
            "login",
        ),
    ] {
        let found = fault(&Error::new(kind, message), "reach");
        assert_eq!(found.check, check, "{message}");
    }
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
