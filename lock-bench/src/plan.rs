//! What is measured, how often and for how long.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// All that a run does, besides its targets.
#[non_exhaustive]
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Plan {
    /// What is measured.
    pub workloads: Vec<Workload>,
    /// Numbers of contenders, each of which is measured where the workload has contenders.
    pub contenders: Vec<u32>,
    /// What a contender is.
    pub contenders_as: ContendersAs,
    /// Times that a lock is held, where the workload holds it; the hold sweep has its own.
    pub hold: Duration,
    /// Lease of each lock.
    pub ttl: Duration,
    /// Length of a measurement.
    pub duration: Duration,
    /// What goes before it and is not counted.
    pub warm_up: Duration,
    /// How often everything is measured; the order of the targets is shuffled each time.
    pub repeats: u32,
    /// Acquisitions per second that the open loop asks for.
    pub rate: f64,
    /// Where the shuffling and the open loop start, so that a run can be repeated.
    pub seed: u64,
    /// Whether the bare commands of each target are measured beside it, where it has any.
    #[serde(default = "yes")]
    pub with_bare: bool,
}

fn yes() -> bool {
    true
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            workloads: vec![
                Workload::Uncontended,
                Workload::Contended,
                Workload::HandOff,
            ],
            contenders: vec![1, 2, 4, 8, 16],
            contenders_as: ContendersAs::Tasks,
            hold: Duration::ZERO,
            ttl: Duration::from_secs(30),
            duration: Duration::from_secs(3),
            warm_up: Duration::from_millis(500),
            repeats: 3,
            rate: 100.0,
            seed: 1,
            with_bare: true,
        }
    }
}

/// What a contender is.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContendersAs {
    /// A process with connections of its own, as the instances of a service.
    Processes,
    /// A task of one process and one connection, as the requests of a service.
    #[default]
    Tasks,
}

/// The workloads with their names, the same in every form of the report and on the command line.
macro_rules! workloads {
    ($($(#[$doc:meta])* $workload:ident $name:literal,)*) => {
        /// A question that a measurement answers.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        pub enum Workload {
            $($(#[$doc])* #[serde(rename = $name)] $workload,)*
        }

        /// All workloads, in the order of a report.
        pub const WORKLOADS: [Workload; [$($name),*].len()] = [$(Workload::$workload),*];

        /// The name of a workload, the same in every form of the report and on the command line.
        #[must_use]
        pub fn name_of(workload: Workload) -> &'static str {
            match workload {
                $(Workload::$workload => $name,)*
            }
        }
    };
}

workloads! {
    /// What one acquisition and release costs: as many keys as contenders.
    Uncontended "uncontended",
    /// What comes through one key: all contenders want it, and nothing is done under it. Two that hold
    /// for no time are seen by chance alone; the order of the tokens is checked.
    Contended "contended",
    /// How long a wanted lock has no holder: from the call of release to the next
    /// acquisition.
    HandOff "hand-off",
    /// Which contenders starve, if all hold for a while and request again at once.
    Fairness "fairness",
    /// How much of the time is useful: holds of 0, 1, 10 and 100 ms.
    HoldSweep "hold-sweep",
    /// What a user sees under a load that does not wait for answers: latency from the intended
    /// start.
    OpenLoop "open-loop",
    /// How long a lock stays taken whose holder was killed.
    CrashRecovery "crash-recovery",
    /// What the tower layer adds to a request.
    Layer "layer",
    /// What the tower layer adds to a request over HTTP/1.1.
    Http "http",
    /// What held and wanted locks cost while nothing else happens: memory, processor, renewals.
    Footprint "footprint",
}
