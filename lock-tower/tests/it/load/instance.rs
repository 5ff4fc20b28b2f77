use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::app::Setup;
use super::server::Server;

/// The application in a process of its own; killed and reaped when the value is dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) address: SocketAddr,
    _process: Process,
}

#[derive(Debug)]
struct Process(Child);

impl Instance {
    pub(crate) async fn start(setup: &Setup) -> Self {
        let setup = serde_json::to_string(setup).expect("plain data");
        let child = Command::new(std::env::current_exe().expect("a test has a path"))
            .args([
                "load::instance::serve",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env(SETUP, setup)
            // Open for as long as this process lives, however it ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test can be run");
        let mut process = Process(child);
        let output = process.0.stdout.take().expect("it is piped");
        // It ends when the process does, which is killed if it says nothing in time.
        let told = tokio::task::spawn_blocking(|| {
            let lines = BufReader::new(output).lines();
            let mut lines = lines.map_while(Result::ok);
            lines.find_map(|line| line.strip_prefix(LISTENS).map(str::to_owned))
        });
        let Ok(told) = tokio::time::timeout(START, told).await else {
            drop(process);
            panic!("an instance does not listen after {START:?}");
        };
        let told = told.expect("no panic").expect("it listens");
        Self {
            address: told.parse().expect("an address"),
            _process: process,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended by itself cannot be killed, and is reaped all the same.
        drop(self.0.kill());
        drop(self.0.wait());
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
/// Longest time until an instance listens, on a machine that has much else to do.
const START: Duration = Duration::from_secs(30);
