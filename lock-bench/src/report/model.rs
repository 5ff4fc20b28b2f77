use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Latencies;
use crate::plan::{ContendersAs, Plan, Workload, name_of};
use crate::subject::{Failure, INVALID};

/// The schema that this version writes and reads.
pub const SCHEMA: &str = "lock-bench/1";

/// A whole run, as `docs/bench-json.md` describes it.
#[non_exhaustive]
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Report {
    /// [`SCHEMA`]; another one is not read.
    pub schema: String,
    /// Where and with what it was measured.
    pub environment: Environment,
    /// What was asked for.
    pub plan: Plan,
    /// What was measured, in the order of the command line; each with its bare commands behind it.
    pub targets: Vec<TargetInfo>,
    /// What came out: one for each target, workload and parameters.
    pub series: Vec<Series>,
}

impl Report {
    /// Reads what [`to_json`](Self::to_json) wrote, and leaves out what this version does not know.
    ///
    /// # Errors
    ///
    /// If it is not JSON, has another schema or lacks a part.
    pub fn from_json(text: &str) -> Result<Self, Failure> {
        let broken = |what: &str, error| Failure::of(INVALID, &error).at(what);
        let value: Value = serde_json::from_str(text).map_err(|e| broken("not JSON", e))?;
        match value.get("schema").and_then(Value::as_str) {
            Some(SCHEMA) => Self::deserialize(value)
                .map_err(|e| broken(&format!("not a whole report of the schema {SCHEMA}"), e)),
            Some(other) => {
                let found: String = other.chars().take(40).collect();
                let text = format!("the schema is {found:?}; this version reads {SCHEMA} alone");
                Err(Failure::new(INVALID, text))
            }
            None => Err(Failure::new(
                INVALID,
                "not a report of a benchmark: it has no \"schema\"",
            )),
        }
    }

    /// The report as JSON, with the [`Figures`](super::Figures) of each series added to it, so that
    /// a reader need not decode histograms.
    ///
    /// # Panics
    ///
    /// Never: all keys are text.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(self).expect("BUG: a report is JSON");
        for (at, series) in self.series.iter().enumerate() {
            let figures = serde_json::to_value(self.figures(series));
            value["series"][at]["figures"] = figures.expect("BUG: figures are JSON");
        }
        value
    }

    /// What must not have happened, with where it did; the run has failed if there is anything.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let all = self.series.iter().flat_map(|series| {
            let found = series.samples.iter().flat_map(|sample| &sample.violations);
            found.map(move |violation| format!("{series}: {violation}"))
        });
        all.collect()
    }

    /// Series in which no acquisition ever succeeded: what they were to measure is not known, and
    /// the run has failed if there is any.
    #[must_use]
    pub fn without_acquisitions(&self) -> Vec<String> {
        let idle = |series: &&Series| series.samples.iter().all(|s| s.acquisitions == 0);
        let idle = self.series.iter().filter(idle);
        idle.map(ToString::to_string).collect()
    }

    /// The first failures, with where; the figures are those of what worked.
    pub(super) fn failures(&self) -> Vec<String> {
        let all = self.series.iter().filter_map(|series| {
            let first = series.samples.iter().flat_map(|s| &s.failures).next()?;
            Some(format!("{series}: {first}"))
        });
        let mut all: Vec<_> = all.collect();
        if let more @ 1.. = all.len().saturating_sub(FAILURES) {
            all.truncate(FAILURES);
            all.push(format!("and {more} more; the tables have the numbers"));
        }
        all
    }

    /// The target of that name.
    #[must_use]
    pub fn target(&self, name: &str) -> Option<&TargetInfo> {
        self.targets.iter().find(|target| target.name == name)
    }
}

/// Failures that are shown.
const FAILURES: usize = 3;

/// Where and with what a run was made.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Environment {
    /// When it began, in RFC 3339.
    pub started: String,
    /// Model of the processors.
    pub processor: String,
    /// Their number.
    pub cores: u32,
    /// Name and version of the kernel.
    pub kernel: String,
    /// Version of this package, with the commit where it is known.
    pub version: String,
    /// Compiler and profile.
    pub build: String,
    /// Load of the machine over the last minute, before the run.
    pub load: f64,
    /// What else a reader of the figures has to know, such as a build without optimization.
    pub warnings: Vec<String>,
}

/// Something that was measured.
#[non_exhaustive]
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct TargetInfo {
    /// Its name, the same for the whole report.
    pub name: String,
    /// Where it is, without secrets.
    pub url: String,
    /// What it is.
    pub kind: TargetKind,
    /// What the server says of itself: versions and durability settings.
    pub facts: BTreeMap<String, String>,
    /// Faults that the doctor finds there, one sentence each.
    pub findings: Vec<String>,
    /// Round trips of the smallest command, on the connection of a client like that of the locks.
    pub round_trip: Option<Latencies>,
}

impl TargetInfo {
    /// The target whose limit these bare commands are.
    pub(super) fn bare_of(&self) -> Option<&str> {
        match &self.kind {
            TargetKind::Bare { of, .. } => Some(of),
            TargetKind::Lock { .. } | TargetKind::Peer { .. } => None,
        }
    }
}

/// What is measured.
#[non_exhaustive]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum TargetKind {
    /// A lock of this project.
    Lock {
        /// Name of the backend.
        backend: String,
    },
    /// The least commands that exclude, of the same client on the same server, as the limit.
    Bare {
        /// Name of the target whose limit it is.
        of: String,
        /// What it sends.
        commands: String,
    },
    /// A lock of another library.
    Peer {
        /// Its name and version.
        library: String,
    },
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock { backend } => write!(f, "polylock, {backend}"),
            Self::Bare { of, commands } => write!(f, "bare commands of {of}: {commands}"),
            Self::Peer { library } => f.write_str(library),
        }
    }
}

/// The measurements of one target under one workload with the same parameters.
#[non_exhaustive]
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Series {
    /// Name of the target.
    pub target: String,
    /// What was measured.
    pub workload: Workload,
    /// With what.
    pub parameters: Parameters,
    /// The repeats, in their order.
    pub samples: Vec<Sample>,
}

impl Series {
    /// Whether both answer the same question, on the same or on different targets. In a crash
    /// recovery each target has the least ttl that it can.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        let mut parameters = other.parameters.clone();
        if self.workload == Workload::CrashRecovery {
            parameters.ttl_ms = self.parameters.ttl_ms;
        }
        self.workload == other.workload && self.parameters == parameters
    }

    /// Durations of one kind in all repeats.
    pub(super) fn merged(&self, of: fn(&Sample) -> &Latencies) -> Latencies {
        let mut all = Latencies::default();
        self.samples.iter().for_each(|sample| all.merge(of(sample)));
        all
    }
}

/// What was measured of whom: `hand-off of redis, 16 contenders, hold 1ms`.
impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (workload, parameters) = (name_of(self.workload), &self.parameters);
        write!(f, "{workload} of {}, {parameters}", self.target)
    }
}

/// What a measurement was made with.
#[non_exhaustive]
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Parameters {
    /// How many want the lock.
    pub contenders: u32,
    /// What they are.
    pub contenders_as: ContendersAs,
    /// How many keys they share.
    pub keys: u32,
    /// How long each holds it, in nanoseconds.
    pub hold_ns: u64,
    /// Lease in milliseconds.
    pub ttl_ms: u64,
    /// Acquisitions per second that were asked for, in the open loop.
    pub rate: Option<f64>,
}

/// The parameters in one line: `16 contenders (processes), hold 1ms`.
impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.contenders == 1 { "" } else { "s" };
        write!(f, "{} contender{plural}", self.contenders)?;
        if self.contenders_as == ContendersAs::Processes {
            f.write_str(" (processes)")?;
        }
        if self.keys != 1 && self.keys != self.contenders {
            write!(f, ", {} keys", self.keys)?;
        }
        let hold = Duration::from_nanos(self.hold_ns);
        if !hold.is_zero() {
            write!(f, ", hold {}", humantime::format_duration(hold))?;
        }
        match self.rate {
            Some(rate) => write!(f, ", {rate}/s asked for"),
            None => Ok(()),
        }
    }
}

/// One measurement.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Sample {
    /// Measured time in nanoseconds.
    pub duration_ns: u64,
    /// Acquisitions that ended within it.
    pub acquisitions: u64,
    /// Failures by their kind; contention is one where nobody was to give up.
    pub errors: BTreeMap<String, u64>,
    /// Two holders at a time, tokens that did not grow: one sentence each. Any makes the run fail.
    pub violations: Vec<String>,
    /// From the request (in the open loop: from its intended start) to the acquisition. The open
    /// loop has in it what `unserved` counts, with the time until the end as a lower bound.
    pub acquire: Latencies,
    /// From the call of release to its end.
    pub release: Latencies,
    /// From the call of release to the next acquisition of the same key by another contender that
    /// waited already.
    pub hand_off: Latencies,
    /// Acquisitions of each contender.
    pub per_contender: Vec<u64>,
    /// How many later requests were served before an earlier one, over all acquisitions.
    pub overtakes: u64,
    /// Commands that the server counted, where it counts.
    pub commands: Option<u64>,
    /// Times from the kill of a holder to the next acquisition, in nanoseconds. If nobody got the
    /// lock, the time until nobody waited any more, as a lower bound.
    pub recovery_ns: Vec<u64>,
    /// The first turns at the first key.
    pub timeline: Vec<Turn>,
    /// Processors that the client used, where 1.0 is one of them.
    pub client_processors: f64,
    /// Whether the open loop fell behind for good.
    pub is_saturated: bool,
    /// Time in which a contender had the lock, over all keys and as it was measured: a timer makes
    /// a hold longer than what was asked for.
    #[serde(default)]
    pub held_ns: u64,
    /// The first failures and their messages, one sentence each.
    #[serde(default)]
    pub failures: Vec<String>,
    /// Requests through the layer, where that is what was measured.
    #[serde(default)]
    pub layer: Option<Requests>,
    /// One slice of the time in so many was kept and checked for violations: all with 1, and with 0
    /// in older reports.
    #[serde(default)]
    pub checked_of: u64,
    /// Checked acquisitions that had a fencing token; none in older reports.
    #[serde(default)]
    pub with_token: Option<u64>,
    /// Requests that still waited at the end; of a crash recovery, the kills after which nobody got
    /// the lock.
    #[serde(default)]
    pub unserved: u64,
    /// What locks and waiters took, where that is what was measured.
    #[serde(default)]
    pub footprint: Option<Footprint>,
}

/// What locks and waiters of one process take.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Footprint {
    /// Locks that were held, with a waiter for each later on.
    pub locks: u64,
    /// Growth of the process while they were acquired, in bytes.
    pub held_bytes: u64,
    /// Growth of the process while tasks began to wait for them, in bytes.
    pub waiting_bytes: u64,
    /// From the first release until all waiters had been served, in nanoseconds.
    pub served_ns: u64,
    /// Further locks that were acquired and released, each once.
    pub used_once: u64,
    /// Growth of the process by these, in bytes.
    pub left_bytes: u64,
}

/// Times of requests to a service of the same process, from the call to the answer.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Requests {
    /// Through the layer, each with a key that nobody else wants.
    pub with: Latencies,
    /// To the same service without the layer, alternating with these.
    pub without: Latencies,
}

/// A time that a contender held the lock, from the beginning of the measurement.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Turn {
    /// Number of the contender.
    pub contender: u32,
    /// When it had it.
    pub from_ns: u64,
    /// When it called release.
    pub to_ns: u64,
}
