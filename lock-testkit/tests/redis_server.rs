//! Private Redis servers: they start, obey, and end with whoever started them.

use lock_testkit::servers::{RedisNodes, RedisOptions, RedisServer, Reply};

#[test]
fn a_server_starts_answers_and_ends() {
    let server = RedisServer::start(RedisOptions::new());
    assert_eq!(server.command(&["PING"]), Reply::Simple("PONG".to_owned()));
    let pid = server.pid();
    let info = server.command(&["INFO", "server"]).text().expect("text");
    assert!(info.contains(&format!("process_id:{pid}\r\n")), "{info}");
    assert!(
        info.contains(&format!("tcp_port:{}\r\n", server.port())),
        "{info}"
    );
    let dir = server.dir().to_owned();
    drop(server);
    assert!(!is_alive(pid));
    assert!(!dir.exists());
}

#[test]
fn a_restart_keeps_the_port_and_loses_what_is_not_persisted() {
    let server = RedisServer::start(RedisOptions::new());
    server.command(&["SET", "key", "value"]);
    let (port, pid) = (server.port(), server.pid());
    server.kill();
    assert!(!is_alive(pid));
    assert!(server.try_command(&["PING"]).is_err());
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.command(&["GET", "key"]), Reply::Nil);
}

#[test]
fn a_stopped_server_answers_when_it_goes_on() {
    let server = RedisServer::start(RedisOptions::new());
    server.stop();
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| server.command(&["PING"]));
        assert!(!answer.is_finished());
        server.resume();
        assert!(!answer.join().expect("no panic").is_error());
    });
    server.stop();
    let pid = server.pid();
    drop(server);
    assert!(!is_alive(pid), "a stopped server is not killed");
}

#[test]
fn the_testkit_gets_in_where_others_need_a_password() {
    let options = RedisOptions::new()
        .with_password("secret")
        .with_user("app", "on >pw ~lock:* +get");
    let server = RedisServer::start(options);
    let users = server.command(&["ACL", "USERS"]);
    assert_eq!(users.items().len(), 3, "{users:?}");
    assert_eq!(server.command(&["CONFIG", "GET", "port"]).items().len(), 2);
}

/// The servers of a test process that is killed die soon after it.
#[test]
fn a_server_dies_with_the_process_that_started_it() {
    if std::env::var_os("START_AND_WAIT").is_some() {
        let server = RedisServer::start(RedisOptions::new());
        println!("{} {}", server.pid(), server.dir().display());
        loop {
            std::thread::park();
        }
    }
    let mut child = std::process::Command::new(std::env::current_exe().expect("a path"))
        .args(["a_server_dies_with", "--nocapture"])
        .env("START_AND_WAIT", "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("this test starts again");
    let output = child.stdout.take().expect("output");
    let told = std::io::BufRead::lines(std::io::BufReader::new(output))
        .map(|line| line.expect("text"))
        .find(|line| line.contains("polylock-"))
        .expect("it tells the server");
    let mut words = told.split_whitespace().rev();
    let dir = std::path::PathBuf::from(words.next().expect("a directory"));
    let pid = words.next().expect("a pid").parse().expect("a pid");
    assert!(is_alive(pid) && dir.exists());
    child.kill().expect("it is killed");
    child.wait().expect("it is reaped");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while is_alive(pid) || dir.exists() {
        assert!(std::time::Instant::now() < deadline, "{pid} lives on");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn nodes_know_nothing_of_each_other() {
    let nodes = RedisNodes::start(5, &RedisOptions::new());
    nodes[0].command(&["SET", "key", "value"]);
    nodes[1].kill();
    for node in nodes.iter().skip(2) {
        assert_eq!(node.command(&["GET", "key"]), Reply::Nil);
    }
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).expect("a pid");
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::test_kill_process(pid).is_ok()
}
