//! Names are bytes, whatever the server takes for the same text.

use std::sync::Arc;

use lock_testkit::conformance::{keys, run};
use lock_testkit::harness::Harness;
use lock_testkit::servers::{MariaDbOptions, MariaDbServer};

use crate::server::support::{Mode, Site, Store};

/// A server that compares text loosely, and cuts what is too long instead of refusing it.
#[test]
fn a_lax_server_tells_names_apart() {
    let options = MariaDbOptions::new()
        .with_config("sql_mode", "")
        .with_config("character_set_server", "latin1")
        .with_config("collation_server", "latin1_general_ci");
    let server = Arc::new(MariaDbServer::start(options));
    server.sql("ALTER DATABASE test CHARACTER SET latin1 COLLATE latin1_general_ci");
    for mode in [Mode::Row, Mode::Lease, Mode::Advisory] {
        let store = || {
            let site = Site::mariadb(&server, mode);
            Box::pin(async move { Arc::new(Store::new(site)) as Arc<dyn Harness> })
        };
        run(&[], store(), keys::hostile_names_do_not_share_a_lock);
        run(
            &[],
            store(),
            keys::names_that_look_alike_do_not_share_a_lock,
        );
        run(
            &[],
            store(),
            keys::the_longest_names_differ_in_their_last_byte,
        );
        run(&[], store(), keys::hostile_names_are_listed_exactly);
    }
}
