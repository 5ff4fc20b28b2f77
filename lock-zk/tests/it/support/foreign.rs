use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::UnboundedReceiver;

use super::SOON;

/// A contender of another client, in a process and with a session of its own.
#[derive(Debug)]
pub(crate) struct Foreign {
    child: Child,
    answers: UnboundedReceiver<String>,
}

/// A recipe of another client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Recipe {
    /// A name that `CuratorMutex.java` knows.
    Curator(&'static str),
    /// A class of kazoo, or a name that `kazoo.py` knows.
    Kazoo(&'static str),
}

/// The time-out of their sessions: they are not to end because a machine is busy.
const THEIR_SESSION: Duration = Duration::from_secs(5);

impl Foreign {
    /// Starts one that contends in this directory; one of kazoo calls itself by this name.
    pub(crate) async fn start(servers: &str, recipe: Recipe, path: &str, name: &str) -> Self {
        let command = match recipe {
            Recipe::Curator(recipe) => curator(&[servers, recipe, path]),
            Recipe::Kazoo(recipe) => kazoo(&[servers, recipe, path], name),
        };
        Self::spawn(command).await
    }

    async fn spawn(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, answers) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut started = Self { child, answers };
        assert_eq!(started.answer().await, "ready");
        started
    }

    /// Gives an order without waiting for the answer.
    pub(crate) fn send(&mut self, order: &str) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input, "{order}").expect("it reads");
    }

    /// The answer to the oldest order that has none.
    pub(crate) async fn answer(&mut self) -> String {
        let answer = tokio::time::timeout(SOON * 6, self.answers.recv()).await;
        answer.expect("it answers").expect("it is alive")
    }

    /// Whether there is an answer.
    pub(crate) fn has_answered(&self) -> bool {
        !self.answers.is_empty()
    }

    pub(crate) async fn order(&mut self, order: &str) -> String {
        self.send(order);
        self.answer().await
    }

    /// Asks for the lock once.
    pub(crate) async fn tries(&mut self) -> bool {
        is_yes(&self.order("try").await)
    }

    /// Waits for the lock.
    pub(crate) async fn take(&mut self) {
        assert!(is_yes(&self.order("take").await), "it gets the lock");
    }

    pub(crate) async fn release(&mut self) {
        assert!(is_yes(&self.order("release").await), "it has the lock");
    }
}

pub(crate) fn is_yes(answer: &str) -> bool {
    match answer {
        "yes" => true,
        "no" => false,
        other => panic!("{other:?}"),
    }
}

fn kazoo(args: &[&str], name: &str) -> Command {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/python");
    assert!(
        packages.join("kazoo").is_dir(),
        "kazoo is missing; scripts/test installs it, or by hand: \
         python3 -m pip install --target target/python kazoo"
    );
    let mut command = Command::new("python3");
    command.args(["-c", KAZOO]).args(args);
    command.args([&THEIR_SESSION.as_secs().to_string(), name]);
    command.env("PYTHONPATH", packages);
    command
}

fn curator(args: &[&str]) -> Command {
    let jars = JARS.map(|jar| format!("/usr/share/java/{jar}.jar"));
    assert!(
        Path::new(&jars[0]).exists(),
        "Curator is missing; scripts/test installs it, or by hand: \
         apt-get install libcurator-recipes-java"
    );
    let program = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/programs/CuratorMutex.java"
    );
    let mut command = Command::new("java");
    // The source is compiled as it starts, by any Java from 11 on.
    command.args(["-XX:TieredStopAtLevel=1", "-cp", &jars.join(":"), program]);
    command
        .args(args)
        .arg(THEIR_SESSION.as_millis().to_string());
    command
}

const KAZOO: &str = include_str!("../../programs/kazoo.py");

const JARS: [&str; 9] = [
    "curator-recipes",
    "curator-framework",
    "curator-client",
    "zookeeper",
    "guava",
    "slf4j-api",
    "slf4j-nop",
    "netty-codec",
    "netty-resolver",
];

impl Drop for Foreign {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
