//! The fault proxy before real databases and their own clients: what is planned happens to the
//! request that it is planned for.

mod mariadb;
mod postgres;

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use lock_testkit::proxy::{Command as Request, Fate, Then};

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

/// The first two words of requests.
fn words(requests: &[Request]) -> Vec<(String, String)> {
    let two = |request: &Request| (request.arg(0).into_owned(), request.arg(1).into_owned());
    requests.iter().map(two).collect()
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
