use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{ZooKeeperOptions, ask, mode};
use crate::network::NetworkHost;
use crate::servers::port::free_port;
use crate::servers::process::{Account, LOG};
use crate::servers::server_process::{START_TIMEOUT, Service, Site};
use crate::servers::template::{self, Template};

/// When a start is complete.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Ready {
    /// It runs, as a member of an ensemble that may have no leader.
    Runs,
    /// It serves.
    #[default]
    Serves,
}

impl Service for ZooKeeperOptions {
    fn configure(&self, site: &Site<'_>) -> io::Result<()> {
        let home = site.dir.to_string_lossy();
        let address = self.setup.address();
        let filled = |text: &str| text.replace("{dir}", &home);
        let mut config = vec![
            "tickTime=500".to_owned(),
            "minSessionTimeout=500".to_owned(),
            "maxClientCnxns=0".to_owned(),
            format!("dataDir={home}/{DATA}"),
            format!("clientPortAddress={address}"),
            format!("clientPort={}", site.port),
        ];
        if let Some(port) = self.secure_port {
            config.push(format!("secureClientPort={port}"));
            config.push(format!("secureClientPortAddress={address}"));
        }
        for (name, value) in &self.setup.config {
            config.push(format!("{name}={}", filled(value)));
        }
        fs::create_dir_all(site.dir.join(DATA))?;
        fs::write(site.dir.join(CONFIG), config.join("\n") + "\n")?;
        for (name, content) in &self.files {
            fs::write(site.dir.join(name), filled(content))?;
        }
        Ok(())
    }

    fn command(&self, site: &Site<'_>) -> io::Result<Vec<OsString>> {
        // Without one it starts as well, but takes longer.
        let archive = archive(site.account).ok();
        let flag = archive.map(|archive| format!("-XX:SharedArchiveFile={}", archive.display()));
        let path = format!("{}:{}", class_path(), site.dir.display());
        Ok(self.words(site, flag, path))
    }

    fn is_ready(&self, site: &Site<'_>) -> bool {
        let (host, port) = (self.setup.host.as_ref(), site.port);
        let is_own = || is_own(site.dir, host, port);
        match self.ready {
            Ready::Runs => is_own(),
            // A standalone server that has not loaded its data throws on a word and does not answer.
            Ready::Serves => site.log().contains(BEGUN) && is_own() && serves(host, port),
        }
    }
}

impl ZooKeeperOptions {
    fn words(&self, site: &Site<'_>, archive: Option<String>, path: String) -> Vec<OsString> {
        let home = site.dir.to_string_lossy();
        let mut words = vec!["java".to_owned()];
        words.extend(archive);
        words.extend(JAVA.map(str::to_owned));
        words.push(format!("-XX:ErrorFile={home}/crash"));
        for (name, value) in &self.properties {
            words.push(format!("-D{name}={}", value.replace("{dir}", &home)));
        }
        words.extend(["-cp".to_owned(), path, MAIN.to_owned()]);
        words.push(format!("{home}/{CONFIG}"));
        words.into_iter().map(OsString::from).collect()
    }
}

/// The classes of a server as Java has them in memory: a start takes a third less of a processor
/// with them. Java checks that they are those of the jars, and ignores an archive that is empty.
fn archive(account: &Account) -> io::Result<PathBuf> {
    let made = fs::metadata(jar(JARS[0]))?.modified()?;
    let template = Template {
        server: "zookeeper",
        program: &fs::canonicalize("/usr/bin/java")?,
        recipe: &format!("{made:?} {JARS:?} {JAVA:?}"),
        account,
    };
    template.place(|dir| {
        let archive = dir.join(template::DATA);
        // A Java that writes none leaves it empty.
        File::create(&archive)?;
        let dir = &dir.join("server");
        let port = free_port()?;
        let site = Site { dir, port, account };
        let options = ZooKeeperOptions::new();
        options.configure(&site)?;
        let flag = format!("-XX:ArchiveClassesAtExit={}", archive.display());
        // An archive is for a path that begins like its own, and has no directory in it.
        let words = options.words(&site, Some(flag), class_path());
        let mut server = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(dir.join(LOG))?)
            .spawn()?;
        let (pid, deadline) = (Pid::from_child(&server), Instant::now() + START_TIMEOUT);
        let is_ready = || site.log().contains(BEGUN) && serves(None, port);
        while !is_ready() && server.try_wait()?.is_none() {
            if Instant::now() > deadline {
                server.kill()?;
            }
            thread::sleep(POLL_INTERVAL);
        }
        // It writes the archive before it ends.
        let _has_ended = kill_process(pid, Signal::TERM);
        server.wait().map(drop)
    })
}

fn class_path() -> String {
    JARS.map(jar).join(":")
}

fn jar(name: &str) -> String {
    format!("/usr/share/java/{name}.jar")
}

/// Whether the server of this directory listens at this port: another may have taken it.
pub(super) fn is_own(dir: &Path, host: Option<&NetworkHost>, port: u16) -> bool {
    // The only word that a member without a leader answers in full. The class path identifies the server.
    let envi = ask(host, port, "envi", GLANCE);
    envi.is_ok_and(|envi| envi.contains(&format!(":{}\n", dir.display())))
}

/// Whether requests are served at this port.
pub(super) fn serves(host: Option<&NetworkHost>, port: u16) -> bool {
    ask(host, port, "srvr", GLANCE).is_ok_and(|srvr| mode(&srvr).is_some())
}

const CONFIG: &str = "zoo.cfg";
pub(super) const DATA: &str = "data";

/// The manifest of `zookeeper.jar` lists most dependencies, but not the logger and not all of Netty.
const JARS: [&str; 4] = ["zookeeper", "slf4j-simple", "netty-codec", "netty-resolver"];
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// The log line of the component that starts last.
const BEGUN: &str = "org.apache.zookeeper.server.ContainerManager";

/// Little memory and a quick start.
const JAVA: [&str; 11] = [
    "-Xmx128m",
    "-Xms16m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.4lw.commands.whitelist=*",
    "-Dzookeeper.forceSync=no",
    // A port that stays taken ends the server after one attempt.
    "-Dzookeeper.electionPortBindRetry=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.ContainerManager=info",
];

/// A server that has just begun to listen may leave a word without an answer; the next one gets it.
const GLANCE: Duration = Duration::from_millis(300);

const POLL_INTERVAL: Duration = Duration::from_millis(20);
