use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tokio::sync::mpsc;
use tokio::sync::mpsc::UnboundedReceiver;

use super::SOON;

/// A contender of kazoo, the client of Python, in a process and with a session of its own.
#[derive(Debug)]
pub(crate) struct Kazoo {
    child: Child,
    answers: UnboundedReceiver<String>,
}

/// Which recipe it follows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Recipe {
    /// `Lock` with the names of Curator besides its own.
    Curator,
    Lock,
    ReadLock,
    WriteLock,
}

impl Kazoo {
    /// Starts one that contends in this directory and calls itself by this name.
    pub(crate) async fn start(servers: &str, recipe: Recipe, path: &str, name: &str) -> Self {
        let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/python");
        assert!(
            packages.join("kazoo").is_dir(),
            "kazoo is missing; scripts/test installs it, or by hand: \
             python3 -m pip install --target target/python kazoo"
        );
        let recipe = format!("{recipe:?}");
        let mut child = Command::new("python3")
            .args(["-c", PROGRAM, servers, &recipe, path, name])
            .env("PYTHONPATH", packages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, answers) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut kazoo = Self { child, answers };
        assert_eq!(kazoo.answer().await, "ready");
        kazoo
    }

    /// Gives an order without waiting for the answer.
    pub(crate) fn send(&mut self, order: &str) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input, "{order}").expect("it reads");
    }

    /// The answer to the oldest order that has none.
    pub(crate) async fn answer(&mut self) -> String {
        let answer = tokio::time::timeout(SOON * 6, self.answers.recv()).await;
        answer.expect("kazoo answers").expect("kazoo is alive")
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
        assert!(is_yes(&self.order("take").await), "kazoo gets the lock");
    }

    pub(crate) async fn release(&mut self) {
        assert!(is_yes(&self.order("release").await), "kazoo has the lock");
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is gone");
    }
}

pub(crate) fn is_yes(answer: &str) -> bool {
    match answer {
        "yes" => true,
        "no" => false,
        other => panic!("{other:?}"),
    }
}

const PROGRAM: &str = include_str!("kazoo.py");

impl Drop for Kazoo {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
