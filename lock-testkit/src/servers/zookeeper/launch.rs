use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::ZooKeeperOptions;
use super::words::{Door, ask, mode};
use crate::clock::ShiftedClock;
use crate::servers::host::address;
use crate::servers::port::free_port;
use crate::servers::process::Process;

/// Where a server listens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) client: u16,
    pub(super) secure: Option<u16>,
}

impl Ports {
    pub(super) fn free(options: &ZooKeeperOptions) -> io::Result<Self> {
        let secure = options.is_secure().then(free_port).transpose()?;
        Ok(Self {
            client: free_port()?,
            secure,
        })
    }
}

/// What has to be the case before a start is complete.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ready {
    /// It runs, as a member of an ensemble that may have no leader.
    Runs,
    /// It serves.
    Serves,
}

/// Writes what a server needs into its directory.
pub(super) fn prepare(dir: &Path, ports: Ports, options: &ZooKeeperOptions) -> io::Result<()> {
    let home = dir.to_string_lossy();
    let address = address(options.host());
    let filled = |text: &str| text.replace("{dir}", &home);
    let mut config = vec![
        "tickTime=500".to_owned(),
        "minSessionTimeout=500".to_owned(),
        "maxClientCnxns=0".to_owned(),
        format!("dataDir={home}/{DATA}"),
        format!("clientPortAddress={address}"),
        format!("clientPort={}", ports.client),
    ];
    if let Some(port) = ports.secure {
        config.push(format!("secureClientPort={port}"));
        config.push(format!("secureClientPortAddress={address}"));
    }
    let lines = options.config();
    config.extend(
        lines
            .iter()
            .map(|(name, value)| format!("{name}={}", filled(value))),
    );
    fs::create_dir_all(dir.join(DATA))?;
    fs::write(dir.join(CONFIG), config.join("\n") + "\n")?;
    for (name, content) in options.files() {
        fs::write(dir.join(name), filled(&content))?;
    }
    match options.clock_offset() {
        Some(seconds) => ShiftedClock::in_dir(dir).map(|clock| clock.set_offset(seconds)),
        None => Ok(()),
    }
}

/// Starts the server of a prepared directory and waits for it.
pub(super) fn launch(
    dir: &Path,
    port: u16,
    options: &ZooKeeperOptions,
    ready: Ready,
) -> io::Result<Process> {
    // An old line about a port that was taken would hide why it does not start this time.
    fs::write(dir.join(LOG), "")?;
    let words = words(dir, options)?;
    let args: Vec<_> = words.iter().skip(1).map(OsString::as_os_str).collect();
    let process = Process::start(&words[0].to_string_lossy(), &args, dir, options.host())?;
    let host = options.host();
    let door = Door { host, port };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let is_ready = match ready {
            Ready::Runs => is_own(dir, door),
            Ready::Serves => has_begun(dir) && is_own(dir, door) && serves(door),
        };
        if is_ready {
            return Ok(process);
        }
        if let Some(printed) = process.ended() {
            return Err(reason(dir, printed));
        }
        if Instant::now() > deadline {
            return Err(reason(dir, "it does not serve\n"));
        }
        thread::sleep(PAUSE);
    }
}

/// Whether a server that is alone has its data. Before, a word makes it throw and is not answered.
fn has_begun(dir: &Path) -> bool {
    fs::read_to_string(dir.join(LOG)).is_ok_and(|log| log.contains(BEGUN))
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

/// The program, and its arguments.
fn words(dir: &Path, options: &ZooKeeperOptions) -> io::Result<Vec<OsString>> {
    let mut words = Vec::new();
    if options.clock_offset().is_some() {
        words = ShiftedClock::in_dir(dir)?.words();
    }
    words.push("java".into());
    words.extend(arguments(dir, options).into_iter().map(OsString::from));
    Ok(words)
}

fn arguments(dir: &Path, options: &ZooKeeperOptions) -> Vec<String> {
    let home = dir.to_string_lossy();
    let mut arguments: Vec<_> = JAVA.map(str::to_owned).into();
    arguments.push(format!("-XX:ErrorFile={home}/crash"));
    arguments.push(format!("-Dorg.slf4j.simpleLogger.logFile={home}/{LOG}"));
    let properties = options.properties();
    arguments.extend(
        properties
            .iter()
            .map(|(name, value)| format!("-D{name}={}", value.replace("{dir}", &home))),
    );
    let jars = JARS.map(|jar| format!("/usr/share/java/{jar}.jar"));
    let path = format!("{}:{home}", jars.join(":"));
    arguments.extend(["-cp".to_owned(), path, MAIN.to_owned()]);
    arguments.push(format!("{home}/{CONFIG}"));
    arguments
}

fn reason(dir: &Path, printed: &str) -> io::Error {
    let log = fs::read_to_string(dir.join(LOG)).unwrap_or_default();
    let kind = if log.contains("Address already in use") {
        io::ErrorKind::AddrInUse
    } else {
        io::ErrorKind::Other
    };
    io::Error::new(kind, format!("{printed}{log}"))
}

const CONFIG: &str = "zoo.cfg";
pub(super) const DATA: &str = "data";
pub(super) const LOG: &str = "log";

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

/// A start takes 1.3 s of processor time, and long where many compete for it.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// A server that has just begun to listen may leave a word without an answer; the next one gets it.
const GLANCE: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(4);
