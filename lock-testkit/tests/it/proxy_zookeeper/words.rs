//! What a plan sees of a request, and what passes unseen.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use lock_testkit::proxy::{Fate, Proxy};

use super::client::{
    CREATE, DELETE, EXISTS, Frame, GET_CHILDREN, PATIENCE, PERSISTENT, PING, PING_XID, Watched,
    client, create, delete, look, ustring,
};
use super::start;

#[test]
fn requests_are_seen_as_words() {
    let (_server, proxy) = start();
    let all = proxy.watch(|_| true);
    let mut client = client(&proxy);
    let any_version = (-1_i32).to_be_bytes();
    let several = [
        &2_i32.to_be_bytes()[..],
        &[0],
        &any_version,
        &delete("/a"),
        &any_version,
        &[1],
        &any_version,
    ]
    .concat();
    let requests: [(i32, Vec<u8>, &[&str]); 16] = [
        (CREATE, create("/a", PERSISTENT), &["CREATE", "/a", "0"]),
        (15, create("/a/b", 3), &["CREATE", "/a/b", "3"]),
        (19, create("/c", 4), &["CREATE", "/c", "4"]),
        (EXISTS, look("/a", Watched::On), &["EXISTS", "/a", "watch"]),
        (4, look("/a", Watched::Off), &["GETDATA", "/a", ""]),
        (
            5,
            [ustring("/a"), ustring("x"), any_version.to_vec()].concat(),
            &["SETDATA", "/a"],
        ),
        (6, ustring("/a"), &["OP6", "/a"]),
        (
            GET_CHILDREN,
            look("/a", Watched::On),
            &["GETCHILDREN", "/a", "watch"],
        ),
        (12, look("/a", Watched::Off), &["GETCHILDREN", "/a", ""]),
        (9, ustring("/"), &["SYNC", "/"]),
        (
            18,
            [ustring("/a"), 3_i32.to_be_bytes().to_vec()].concat(),
            &["REMOVEWATCHES", "/a"],
        ),
        (
            106,
            [ustring("/a"), 0_i32.to_be_bytes().to_vec()].concat(),
            &["ADDWATCH", "/a"],
        ),
        (101, vec![0; 20], &["SETWATCHES", ""]),
        (14, several, &["MULTI", "/a", "DELETE"]),
        (DELETE, delete("/none"), &["DELETE", "/none"]),
        (-11, Vec::new(), &["CLOSE", ""]),
    ];
    for (operation, body, _) in &requests {
        client.send(*operation, body).expect("sent");
    }
    for _ in &requests {
        client.receive().expect("a reply");
    }
    let seen = all.seen();
    assert_eq!(seen[0].args, [&b"CONNECT"[..], b"", b"0x0"]);
    for (command, (_, _, words)) in seen[1..].iter().zip(&requests) {
        let told: Vec<_> = (0..command.args.len()).map(|at| command.arg(at)).collect();
        assert_eq!(told, *words);
    }
    assert_eq!((proxy.commands(), proxy.connections()), (17, 1));
}

#[test]
fn pings_and_credentials_keep_their_replies() {
    let (_server, proxy) = start();
    let mut client = client(&proxy);
    let planned = proxy.plan(|command| command.is("AUTH"), Fate::CutReply(20));
    let credentials = [vec![0; 4], ustring("digest"), ustring("user:secret")].concat();
    client.send_as(PING_XID, PING, &[]).expect("sent");
    client.send_as(-4, 100, &credentials).expect("sent");
    // The server answers as it likes; the fate is for the credentials alone.
    let mut got = Vec::new();
    while let Ok(Frame::Reply(xid, 0, _)) = client.receive() {
        got.push(xid);
    }
    assert_eq!(got.last(), Some(&-4), "{got:?}");
    assert_eq!(planned.struck(), 1);
}

#[test]
fn four_letters_pass_as_bytes() {
    let (_server, proxy) = start();
    let mut stream = connect(&proxy);
    stream.write_all(b"ruok").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert_eq!(answer, "imok");
    assert_eq!(proxy.commands(), 0);
}

/// The server here is one that returns what it gets.
#[test]
fn tls_passes_as_bytes() {
    let echo = TcpListener::bind("127.0.0.1:0").expect("a port");
    let proxy = Proxy::zookeeper(echo.local_addr().expect("its own").port());
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc][..], &[7; 700]].concat();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = echo.accept().expect("a client");
        let mut got = [0; 709];
        stream.read_exact(&mut got).expect("all of it");
        stream.write_all(&got).expect("sent");
    });
    let mut stream = connect(&proxy);
    stream.write_all(&hello).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert_eq!(answer, hello);
    server.join().expect("no panic");
    assert_eq!(proxy.commands(), 0);
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", proxy.port())).expect("connected");
    let set = stream.set_read_timeout(Some(PATIENCE));
    set.expect("it is above zero");
    stream
}
