use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;

use super::ZooKeeperOptions;
use super::words::{Door, ask, mode};
use crate::servers::account::LOG;
use crate::servers::server_process::{Machine, Service, Site};

/// What has to be the case before a start is complete.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Ready {
    /// It runs, as a member of an ensemble that may have no leader.
    Runs,
    /// It serves.
    #[default]
    Serves,
}

impl Service for ZooKeeperOptions {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn configure(&self, site: &Site<'_>) -> io::Result<()> {
        let home = site.dir.to_string_lossy();
        let address = self.machine.address();
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
        for (name, value) in self.config() {
            config.push(format!("{name}={}", filled(&value)));
        }
        fs::create_dir_all(site.dir.join(DATA))?;
        fs::write(site.dir.join(CONFIG), config.join("\n") + "\n")?;
        for (name, content) in self.files() {
            fs::write(site.dir.join(name), filled(&content))?;
        }
        Ok(())
    }

    fn command(&self, site: &Site<'_>) -> io::Result<Vec<OsString>> {
        let home = site.dir.to_string_lossy();
        let mut words = vec!["java".to_owned()];
        words.extend(JAVA.map(str::to_owned));
        words.push(format!("-XX:ErrorFile={home}/crash"));
        words.push(format!("-Dorg.slf4j.simpleLogger.logFile={home}/{LOG}"));
        for (name, value) in self.properties() {
            words.push(format!("-D{name}={}", value.replace("{dir}", &home)));
        }
        let jars = JARS.map(|jar| format!("/usr/share/java/{jar}.jar"));
        let path = format!("{}:{home}", jars.join(":"));
        words.extend(["-cp".to_owned(), path, MAIN.to_owned()]);
        words.push(format!("{home}/{CONFIG}"));
        Ok(words.into_iter().map(OsString::from).collect())
    }

    fn is_ready(&self, site: &Site<'_>, _pid: Pid) -> bool {
        let door = Door {
            host: self.machine.host.as_ref(),
            port: site.port,
        };
        match self.ready {
            Ready::Runs => is_own(site.dir, door),
            // Before a server that is alone has its data, a word makes it throw and is not answered.
            Ready::Serves => site.log().contains(BEGUN) && is_own(site.dir, door) && serves(door),
        }
    }
}

/// Whether the server of this directory listens at this port: another may have taken it.
pub(super) fn is_own(dir: &Path, door: Door<'_>) -> bool {
    // The one word that a member without a leader answers in full; the class path tells them apart.
    ask(door, "envi", GLANCE).is_ok_and(|envi| envi.contains(&format!(":{}\n", dir.display())))
}

/// Whether requests are served at this port.
pub(super) fn serves(door: Door<'_>) -> bool {
    ask(door, "srvr", GLANCE).is_ok_and(|srvr| mode(&srvr).is_some())
}

const CONFIG: &str = "zoo.cfg";
pub(super) const DATA: &str = "data";

/// `zookeeper.jar` names most of what it needs itself, but not what logs, and not all of Netty.
const JARS: [&str; 4] = ["zookeeper", "slf4j-simple", "netty-codec", "netty-resolver"];
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// What the last part that starts logs about itself.
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
