//! Names are bytes, whatever the server takes for the same text.

use std::sync::Arc;

use lock_core::{DistributedLock, ErrorKind, Wait};
use lock_testkit::servers::{MariaDbOptions, MariaDbServer};

use crate::server::support::{Mode, Site, request};

/// A server that compares text loosely, and cuts what is too long instead of refusing it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lax_server_tells_names_apart() {
    let options = MariaDbOptions::new()
        .with_config("sql_mode", "")
        .with_config("character_set_server", "latin1")
        .with_config("collation_server", "latin1_general_ci");
    let server = Arc::new(MariaDbServer::start(options));
    server.sql("ALTER DATABASE test CHARACTER SET latin1 COLLATE latin1_general_ci");
    for mode in [Mode::Row, Mode::Lease, Mode::Advisory] {
        names_that_look_alike_are_locks_of_their_own(Site::mariadb(&server, mode)).await;
    }
}

/// Each of them is a lock of its own.
async fn names_that_look_alike_are_locks_of_their_own(site: Site) {
    let long = "x".repeat(255);
    let names = [
        "Job",
        "job",
        "jobe",
        "job\u{e9}",
        "jobe\u{301}",
        "x",
        "x ",
        "x  ",
        "\u{df}",
        "ss",
        "\u{ff21}",
        "a\u{200d}",
        "a",
        "%",
        "_",
        "\\",
        "'; DROP TABLE polylock_locks; --",
        "\u{1f512}",
        "\u{1f513}",
        &format!("{long}a"),
        &format!("{long}b"),
        &long,
    ];
    let (here, there) = (site.open().await, site.open().await);
    let mut guards = Vec::new();
    for name in names {
        let one = request(name).with_wait(Wait::Never);
        let granted = here.acquire(&one).await;
        guards.push(granted.unwrap_or_else(|e| panic!("{name:?} is somebody else's: {e}")));
    }
    for name in names {
        let one = request(name).with_wait(Wait::Never);
        let error = there.acquire(&one).await.expect_err("two hold a lock");
        assert_eq!(error.kind(), ErrorKind::Contended, "{name:?}: {error}");
    }
    let listed = there.admin().expect("there is one").list("").await;
    let mut listed: Vec<_> = listed
        .expect("it answers")
        .iter()
        .map(|lock| lock.key.as_str().to_owned())
        .collect();
    let mut sorted = names.map(str::to_owned).to_vec();
    sorted.sort();
    listed.sort();
    assert_eq!(listed, sorted);
    for guard in guards {
        guard.release().await.expect("it is released");
    }
}
