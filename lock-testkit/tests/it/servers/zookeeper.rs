//! What a private ZooKeeper server can be asked for.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lock_testkit::servers::{ClientCertificate, ServerCertificate, TlsFiles};
use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};

use crate::proxy_zookeeper::client::{self, Client, Frame, PERSISTENT};

#[test]
fn a_server_answers_words() {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    assert_eq!(server.four_letter("ruok"), "imok");
    assert_eq!(server.mode().as_deref(), Some("standalone"));
    assert_eq!(server.mntr("zk_watch_count"), Some(0));
    assert_eq!(server.mntr("zk_no_such_value"), None);
    assert_eq!(server.url(), format!("zk://127.0.0.1:{}", server.port()));
}

#[test]
fn options_reach_the_server() {
    let options = ZooKeeperOptions::new()
        .with_config("tickTime", "300")
        .with_config("dataLogDir", "{dir}/log-of-data")
        .with_property("zookeeper.globalOutstandingLimit", "77")
        .with_sasl_user("locks", "secret")
        .with_file("note", "at {dir}");
    let server = ZooKeeperServer::start(options);
    let dir = server.dir().display().to_string();
    let conf = server.four_letter("conf");
    assert!(conf.contains("tickTime=300\n"), "{conf}");
    assert!(conf.contains(&format!("dataLogDir={dir}/log-of-data")));
    let envi = server.four_letter("envi");
    assert!(envi.contains("java.version"), "{envi}");
    let read = |name| std::fs::read_to_string(server.dir().join(name)).expect("a file");
    assert_eq!(read("note"), format!("at {dir}"));
    assert!(read("jaas.conf").contains("user_locks=\"secret\""));
}

#[test]
fn a_server_with_tls_has_a_port_of_each_kind() {
    let files = TlsFiles::new(ServerCertificate::Valid);
    let options = ZooKeeperOptions::new().with_tls(&files, ClientCertificate::Required);
    let server = ZooKeeperServer::start(options);
    assert_ne!(server.secure_port(), server.port());
    TcpStream::connect(("127.0.0.1", server.secure_port())).expect("it listens");
    assert_eq!(server.four_letter("ruok"), "imok");
}

#[test]
fn the_clock_of_a_server_can_be_wrong_and_jump() {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new().with_clock());
    assert_eq!(hours_ahead(&server, "/first"), 0);
    for hours in [1, -1] {
        server.set_clock_offset(hours * 3600);
        let deadline = Instant::now() + Duration::from_secs(10);
        let ahead = (0..).map(|count| hours_ahead(&server, &format!("/{hours}-{count}")));
        for ahead in ahead.take_while(|ahead| *ahead != hours) {
            assert!(Instant::now() < deadline, "{ahead} hours ahead");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn hours_ahead(server: &ZooKeeperServer, path: &str) -> i64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    let ahead = create(server, path) - i64::try_from(now.as_millis()).expect("a time");
    // To the nearest.
    (ahead + 1_800_000).div_euclid(3_600_000)
}

/// Creates a node, and returns the time in milliseconds that the server gives it.
pub(super) fn create(server: &ZooKeeperServer, path: &str) -> i64 {
    let mut client = Client::open(server.port()).expect("the server answers");
    let node = client::create(path, PERSISTENT);
    client.send(CREATE_WITH_STAT, &node).expect("sent");
    let Frame::Reply(_, 0, answer) = client.receive().expect("an answer") else {
        panic!("{path} is not created");
    };
    // Behind the path and two transaction ids.
    let time = &answer[4 + path.len() + 16..][..8];
    i64::from_be_bytes(time.try_into().expect("8 bytes"))
}

const CREATE_WITH_STAT: i32 = 15;
