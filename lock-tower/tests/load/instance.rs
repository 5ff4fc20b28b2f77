use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use super::app::Setup;
use super::server::Server;

/// The application in a process of its own; killed and reaped when the value is dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Instance {
    pub(crate) fn start(setup: &Setup) -> Self {
        let setup = serde_json::to_string(setup).expect("plain data");
        let mut child = Command::new(std::env::current_exe().expect("a test has a path"))
            .args(["instance::serve", "--exact", "--ignored", "--nocapture"])
            .env(SETUP, setup)
            // Open for as long as this process lives, however it ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test can be run");
        let output = child.stdout.take().expect("it is piped");
        let told = BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix(LISTENS).map(str::to_owned));
        let address = told.expect("it listens").parse().expect("an address");
        Self { child, address }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // One that has ended by itself cannot be killed, and is reaped all the same.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "what tests start as a process of its own"]
async fn serve() {
    let setup = std::env::var(SETUP).expect("a test says how it is set up");
    let setup: Setup = serde_json::from_str(&setup).expect("a test says how it is set up");
    let server = Server::start(setup.router().await).await;
    println!("\n{LISTENS}{}", server.address);
    let leash = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    drop(leash.await);
}

const SETUP: &str = "POLYLOCK_LOAD_SETUP";
const LISTENS: &str = "listens on ";
