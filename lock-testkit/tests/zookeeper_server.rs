//! Private ZooKeeper servers: they start, obey, and end with whoever started them.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lock_testkit::servers::{ClientCertificate, ServerCertificate, TlsFiles};
use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};

#[test]
fn a_server_starts_answers_and_ends() {
    let begun = Instant::now();
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    println!("serves after {:?}", begun.elapsed());
    assert_eq!(server.four_letter("ruok"), "imok");
    assert_eq!(server.mode().as_deref(), Some("standalone"));
    assert_eq!(server.mntr("zk_watch_count"), Some(0));
    assert_eq!(server.mntr("zk_no_such_value"), None);
    assert_eq!(server.url(), format!("zk://127.0.0.1:{}", server.port()));
    let (pid, dir) = (server.pid(), server.dir().to_owned());
    drop(server);
    assert!(!is_alive(pid));
    assert!(!dir.exists());
}

#[test]
fn a_restart_keeps_the_ports_and_the_data() {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    let (port, pid) = (server.port(), server.pid());
    let before = nodes(&server);
    create(&server, "/something");
    assert_eq!(nodes(&server), before + 1);
    server.kill();
    assert!(!is_alive(pid));
    assert!(server.try_four_letter("ruok").is_err());
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(nodes(&server), before + 1);
}

#[test]
fn a_stopped_server_answers_when_it_goes_on() {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    server.stop();
    thread::scope(|scope| {
        let answer = scope.spawn(|| server.four_letter("ruok"));
        assert!(!answer.is_finished());
        server.resume();
        assert_eq!(answer.join().expect("no panic"), "imok");
    });
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

fn nodes(server: &ZooKeeperServer) -> i64 {
    server.mntr("zk_znode_count").expect("a number")
}

/// Creates a node, by the protocol of ZooKeeper: connect, then create. Returns the time in
/// milliseconds that the server gives it.
fn create(server: &ZooKeeperServer, path: &str) -> i64 {
    use std::io::{Read, Write};

    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("a time");
    // Version, last zxid, time-out of 4 s, session, password of 16 bytes.
    let mut connect = vec![0; 12];
    connect.extend(4000_i32.to_be_bytes());
    connect.extend([0; 8]);
    connect.extend(16_i32.to_be_bytes());
    connect.extend([0; 16]);
    // Xid, create with stat, path, data, one ACL (all rights, world:anyone), persistent.
    let mut create = [1_i32.to_be_bytes(), 15_i32.to_be_bytes()].concat();
    for text in [path, "data"] {
        create.extend(i32::try_from(text.len()).expect("short").to_be_bytes());
        create.extend(text.as_bytes());
    }
    create.extend([1_i32.to_be_bytes(), 31_i32.to_be_bytes()].concat());
    for text in ["world", "anyone"] {
        create.extend(i32::try_from(text.len()).expect("short").to_be_bytes());
        create.extend(text.as_bytes());
    }
    create.extend(0_i32.to_be_bytes());
    let answers = [connect, create].map(|request| {
        let length = i32::try_from(request.len()).expect("short");
        stream.write_all(&length.to_be_bytes()).expect("sent");
        stream.write_all(&request).expect("sent");
        let mut length = [0; 4];
        stream.read_exact(&mut length).expect("an answer");
        let mut answer = vec![0; usize::try_from(i32::from_be_bytes(length)).expect("length")];
        stream.read_exact(&mut answer).expect("an answer");
        answer
    });
    // After the header, the path and two transaction ids.
    let time = &answers[1][16 + 4 + path.len() + 16..][..8];
    i64::from_be_bytes(time.try_into().expect("8 bytes"))
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).expect("a pid");
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::test_kill_process(pid).is_ok()
}
