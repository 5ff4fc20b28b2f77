//! The fault proxy before real databases and their own clients: what is planned happens to the
//! request that it is planned for.

mod mariadb;
mod postgres;

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lock_testkit::proxy::{Command as Request, Direction, Fate, Proxy, Then, Watch};

/// Runs a client with statements as its input.
fn run(client: &mut Command, text: &str) -> Output {
    let mut child = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the client is installed");
    let mut input = child.stdin.take().expect("it has an input");
    // One that is gone already reads nothing.
    input.write_all(text.as_bytes()).ok();
    drop(input);
    child.wait_with_output().expect("it ends")
}

/// What it printed, if it ended well.
fn printed(output: &Output) -> Option<String> {
    let text = || String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(text)
}

/// The first two words of so many requests; a client does not wait until its last one arrives.
fn words(watch: &Watch, count: usize) -> Vec<(String, String)> {
    let two = |request: &Request| (request.arg(0).into_owned(), request.arg(1).into_owned());
    let began = Instant::now();
    while watch.seen().len() < count && began.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(5));
    }
    watch.seen().iter().map(two).collect()
}

/// A server behind a proxy, and both behind others that deliver byte by byte: whatever the proxy
/// reads is cut somewhere.
struct Dripping {
    client: Proxy,
    proxy: Proxy,
    _server: Proxy,
}

impl Dripping {
    fn new(server: u16, understands: fn(u16) -> Proxy) -> Self {
        let server = Proxy::of_bytes(server);
        let proxy = understands(server.port());
        let client = Proxy::of_bytes(proxy.port());
        for drips in [&server, &client] {
            drips.set_drip(Direction::Both, 1, Duration::ZERO);
        }
        Self {
            client,
            proxy,
            _server: server,
        }
    }
}

fn is_insert(request: &Request) -> bool {
    request.arg(1).starts_with("INSERT")
}

const MOMENT: Duration = Duration::from_millis(200);

/// What keeps a client from an answer, and whether the server gets the request.
const FATES: [(Fate, bool); 5] = [
    (Fate::LostRequest(Then::Cut), false),
    (Fate::LostReply(Then::Cut), true),
    (Fate::LostReply(Then::CutAfter(MOMENT)), true),
    (Fate::CutRequest(5), false),
    (Fate::CutReply(5), true),
];
