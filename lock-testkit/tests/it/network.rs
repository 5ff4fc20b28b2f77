//! Hosts with addresses of their own: rules drop their packets, and no host outlives its network.

use std::env;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lock_testkit::network::{Network, NetworkHost};

#[test]
fn a_blocked_direction_drops_packets_and_the_other_does_not() {
    let network = Network::new().unwrap();
    let (a, b) = (network.host("a"), network.host("b"));
    let (mut near, mut far) = connected(&a, &b);
    network.block(&a, &b);
    // The acknowledgment is lost, the data are not.
    assert!(passes(&mut far, &mut near));
    assert!(is_lost(&mut near, &mut far));
    network.heal();
    // The kernel retransmits the dropped packets.
    assert!(arrives_within(&mut far, SOON));
    assert!(connects_within(&a, &b, SOON) && connects_within(&b, &a, SOON));
}

#[test]
fn a_reset_ends_connections_on_one_side_and_leaves_the_other_half_open() {
    let network = Network::new().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| network.host(name));
    let (mut near, mut far) = connected(&a, &b);
    let (mut second_near, mut second_far) = connected(&b, &a);
    let (mut other_near, mut other_far) = connected(&b, &c);
    assert!(passes(&mut near, &mut far) && passes(&mut second_near, &mut second_far));

    network.reset(&b, &a);

    for mut reset in [far, second_near] {
        let error = reset.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    }
    for half_open in [&mut near, &mut second_far] {
        half_open.write_all(b"x").unwrap();
        assert!(!arrives_within(half_open, SILENCE_TIMEOUT));
    }
    assert!(passes(&mut other_near, &mut other_far));
    assert!(!connects_within(&b, &a, SILENCE_TIMEOUT));

    // Its kernel knows the connection no more.
    network.heal();
    near.set_read_timeout(Some(SOON)).unwrap();
    let error = near.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(connects_within(&b, &a, SOON));
}

#[test]
fn a_host_without_power_is_silent_and_knows_nothing_afterwards() {
    let network = Network::new().unwrap();
    let (a, b) = (network.host("a"), network.host("b"));
    let listener = b.enter(|| TcpListener::bind((b.address(), 0))).unwrap();
    let place = listener.local_addr().unwrap();
    // The connection is that of a process of `a`, which the kernel closes with it.
    let mut client = speak(&a, place);
    let (mut far, _) = listener.accept().unwrap();
    assert!(arrives_within(&mut far, SOON));

    network.power_off(&a);
    assert!(!client.wait().unwrap().success());
    // Neither FIN nor RST.
    assert!(!arrives_within(&mut far, SILENCE_TIMEOUT));
    network.rejoin(&a);
    // Nothing is left in the kernel of `a` that would still send one.
    assert!(!arrives_within(&mut far, SILENCE_TIMEOUT));
    far.write_all(b"x").unwrap();
    far.set_read_timeout(Some(SOON)).unwrap();
    let error = far.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(connects_within(&a, &b, SOON));
}

#[test]
fn a_network_that_is_dropped_leaves_no_process_and_no_interface() {
    let network = Network::new().unwrap();
    let a = network.host("a");
    let mut sleeper = a.command("sleep").arg("600").spawn().unwrap();
    let outside = network.outside();
    assert!(has_interface(outside));
    drop(network);
    assert!(has_interface(outside), "a host is left");
    drop(a);
    assert!(!has_interface(outside));
    assert!(!sleeper.wait().unwrap().success());
}

#[test]
fn a_test_process_that_is_killed_leaves_no_process_and_no_interface() {
    let name = "network::a_test_process_that_is_killed_leaves_no_process_and_no_interface";
    if env::var_os(CHILD).is_some() {
        let network = Network::new().unwrap();
        let a = network.host("a");
        let mut sleeper = a.command("sleep").arg("60").spawn().unwrap();
        println!("\n{CHILD} {} {}", network.outside(), sleeper.id());
        sleeper.wait().unwrap();
        return;
    }
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = lines.map_while(Result::ok).find_map(|line| {
        let (outside, sleeper) = line.strip_prefix(CHILD)?.trim().split_once(' ')?;
        Some((outside.parse().unwrap(), sleeper.parse::<u32>().unwrap()))
    });
    let (outside, sleeper) = told.expect("the child makes a network");
    let were_there = has_interface(outside) && runs(sleeper);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(were_there);
    let deadline = Instant::now() + Duration::from_secs(20);
    while has_interface(outside) || runs(sleeper) {
        assert!(Instant::now() < deadline, "something is left");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Set in the process that is killed.
const CHILD: &str = "POLYLOCK_NETWORK_CHILD";

/// Both ends of a connection.
fn connected(from: &NetworkHost, to: &NetworkHost) -> (TcpStream, TcpStream) {
    let listener = to.enter(|| TcpListener::bind((to.address(), 0)));
    let listener = listener.expect("a port is free");
    let place = listener.local_addr().expect("it listens");
    let near = from.enter(|| TcpStream::connect(place));
    let (far, _) = listener.accept().expect("a client connects");
    (near.expect("it connects"), far)
}

fn connects_within(from: &NetworkHost, to: &NetworkHost, within: Duration) -> bool {
    let listener = to.enter(|| TcpListener::bind((to.address(), 0)));
    let listener = listener.expect("a port is free");
    let place = listener.local_addr().expect("it listens");
    match from.enter(|| TcpStream::connect_timeout(&place, within)) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
            false
        }
    }
}

/// Whether a byte gets through.
fn passes(from: &mut TcpStream, to: &mut TcpStream) -> bool {
    from.write_all(b"x").expect("it is open");
    arrives_within(to, SOON)
}

/// Whether a byte does not.
fn is_lost(from: &mut TcpStream, to: &mut TcpStream) -> bool {
    from.write_all(b"x").expect("it is open");
    !arrives_within(to, SILENCE_TIMEOUT)
}

/// False if nothing comes, and a panic if the connection ends.
fn arrives_within(to: &mut TcpStream, within: Duration) -> bool {
    to.set_read_timeout(Some(within))
        .expect("the host takes it");
    match to.read(&mut [0]) {
        Ok(1) => true,
        Ok(_) => panic!("the connection is closed"),
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("the connection has ended: {error}"),
    }
}

/// A process of the host that connects, sends a byte and stays.
fn speak(host: &NetworkHost, to: SocketAddr) -> Child {
    let script = format!(
        "exec 3<>/dev/tcp/{}/{}; printf x >&3; exec sleep 600",
        to.ip(),
        to.port()
    );
    host.command("bash")
        .args(["-c", &script])
        .spawn()
        .expect("the host takes it")
}

fn has_interface(address: Ipv4Addr) -> bool {
    let listed = Command::new("ip").args(["-4", "-o", "address"]).output();
    let listed = listed.expect("the host takes it").stdout;
    String::from_utf8_lossy(&listed).contains(&format!(" {address}/"))
}

/// A zombie has no program.
fn runs(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// How long a connection of hosts has to be silent to be cut off.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long what is not dropped may take.
const SOON: Duration = Duration::from_secs(30);
