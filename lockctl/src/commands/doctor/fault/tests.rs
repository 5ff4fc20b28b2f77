use std::io;

use super::*;

/// Checks rows of a kind, the check that it is, and the message; a row goes on in indented lines.
#[track_caller]
fn assert_checks(rows: &str) {
    for row in rows.trim().replace("\n    ", " ").lines() {
        let (kind, rest) = row.split_once(' ').expect("a kind");
        let (check, message) = rest.trim_start().split_once(' ').expect("a check");
        let kind = match kind {
            "Denied" => ErrorKind::Denied,
            "InvalidConfig" => ErrorKind::InvalidConfig,
            "Protocol" => ErrorKind::Protocol,
            "Unavailable" => ErrorKind::Unavailable,
            "Unsupported" => ErrorKind::Unsupported,
            _ => panic!("no kind: {row}"),
        };
        let message = message.trim_start().to_owned();
        let found = fault(&Error::new(kind, message.clone()), "reach");
        assert_eq!((found.check, found.what.as_ref()), (check, &*message));
    }
}

#[test]
fn errors_are_told_apart_by_kind_and_words() {
    assert_checks(
        r#"
Denied        login   a:1 refuses this user or password
Denied        login   a:1 asks for a user or a password, and the URL has none
Denied        rights  a:1 denies a command or a key to this user: see the list of ACL rules
Denied        rights  the server refuses this user: permission denied for schema public
Denied        login   the server refuses this user: password authentication failed for user "app"
Denied        login   the server refuses this user, or takes it by TLS only: then write tls=on:
    1045: Access denied for user 'app'@'localhost' (using password: YES)
Denied        rights  the server refuses this user: Access denied for user 'app'@'%' to database
    'shop'
Denied        rights  INSERT command denied to user 'app'@'localhost'
Denied        tls     the TLS handshake with a:1 failed: it speaks no TLS, or its certificate is
    not trusted
Denied        tls     no server opens a session: a:1 and this client do not trust each other
Denied        login   ZooKeeper refuses this user or password, or asks for a login and the URL has
    none
Denied        rights  ZooKeeper denies access to a node: its access control list
InvalidConfig url     unknown parameter "tabel", did you mean "table"?
InvalidConfig cluster a:1 is in a cluster and does not have this key
InvalidConfig tls     the server speaks no TLS, and tls=on asks for it
InvalidConfig table   the table, its schema or the database does not exist
Unavailable   replica a:1 is a replica, which takes no writes: name its master
Unavailable   replica read_only is on: it takes no writes
Unavailable   reach   a:1 did not answer within 5s
Protocol      reach   a:1 answered something that is not understood
Unsupported   reach   permits are not supported here
"#,
    );
    let wrong = Error::new(ErrorKind::InvalidConfig, "unknown parameter \"cluster\"");
    assert_eq!(fault(&wrong, "url").check, "url");
}

#[test]
fn names_of_hosts_files_and_users_say_nothing() {
    assert_checks(
        r#"
Unavailable   reach   tls-proxy:6379 did not answer within 5s
Unavailable   reach   cannot connect to standby.db.internal:6379
Unavailable   reach   the connection to recovery-redis:6379 broke
Unavailable   reach   standby:6379 did not answer within 5s
Unavailable   reach   table-locks:6379 did not answer within 5s
Unavailable   reach   /run/standby/tls.sock did not answer within 5s
Protocol      reach   certificate:1 says what is not acceptable
Unavailable   reach   no master named "standby" can be reached by the sentinels
Unavailable   replica standby:6379 is a replica, which takes no writes: name its master
Denied        tls     the TLS handshake with password-cache:6379 failed: it speaks no TLS
Denied        login   the server refuses this user: role "command denied" does not exist
InvalidConfig url     the table name "tls" has other characters than letters, digits and
    underscores
"#,
    );
}

#[test]
fn a_server_that_takes_nothing_for_now_is_not_taken_for_something_else() {
    assert_checks(
        r#"
Unavailable   reach   the cluster did not answer within 5s
Unavailable   cluster the cluster has no master for slot 7: CLUSTER NODES says which one fails
Unavailable   cluster a:1 is in a cluster that is down: CLUSTER INFO and CLUSTER NODES say which
    masters fail
Unavailable   reach   the server starts, stops or recovers
Unavailable   reach   a:1 cannot save its data and takes no writes (MISCONF): its log says why
Unavailable   reach   the server is out of disk space or memory: 1114: The table 't' is full
Unavailable   reach   no server opens a session: a:1 closes connections: it has maxClientCnxns of
    them, takes TLS only, or is no ZooKeeper
Unavailable   rights  the database file "/l.db" is read-only
Protocol      table   table "polylock_locks" has layout 7, and this version knows layout 1
Protocol      table   the server refused a statement, the table may be somebody else's
InvalidConfig pooler  a transaction pooler is in the path: it gives the session of an advisory
    lock to others
Denied        tls     the server takes no such connection without TLS, write tls=on: no
    pg_hba.conf entry for host "::1", user "app", database "shop", no encryption
Denied        tls     the server refuses this user: connection requires a valid client certificate
Denied        login   the server refuses this user: no pg_hba.conf entry for host "::1", user
    "app", database "shop", SSL encryption
Denied        login   the server refuses this user: Host 'a' is not allowed to connect to this
    server
"#,
    );
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
