use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use polylock_bench::plan::{ContendersAs, Plan, WORKLOADS, Workload, name_of};
use polylock_bench::subject::Failure;
use polylock_bench::target::{Openers, Target};

/// Measures locks of other libraries beside those of polylock, on one server each, in one run.
///
/// Targets are URLs of polylock, and rslock+redis://.., distributed-lock+redis://..,
/// distributed-lock+postgres://.., sqlx-advisory+postgres://.., zookeeper-client+zk://.. . The
/// options are those of `lockctl bench`, which reads the JSON that this writes.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// What to measure: URL, NAME=URL, or NAME=env:VARIABLE where the URL has a password
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<String>,
    /// What is asked [default: uncontended,contended,hand-off]
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',', value_parser = workload)]
    workload: Vec<Workload>,
    /// Numbers of contenders
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,2,4,8,16"
    )]
    contenders: Vec<u32>,
    /// Whether a contender is a process with connections of its own, and not a task
    #[arg(long)]
    processes: bool,
    /// How long each holds the lock
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    hold: Duration,
    /// Length of the leases, where there are leases
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// Length of a measurement
    #[arg(long, default_value = "3s", value_parser = humantime::parse_duration)]
    duration: Duration,
    /// What goes before it
    #[arg(long, default_value = "500ms", value_parser = humantime::parse_duration)]
    warm_up: Duration,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeat: u32,
    /// Leave out the bare commands beside the locks of polylock
    #[arg(long)]
    no_bare: bool,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write it as a page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

impl Args {
    pub(crate) fn targets(&self, openers: &Openers) -> Result<Vec<Target>, Failure> {
        let targets = self.targets.iter().map(|target| {
            // An = may be in the parameters of a URL, behind its colon.
            let (name, place) = match target.split_once('=') {
                Some((name, place)) if !name.contains(':') => (name, place),
                _ => (
                    target.split(':').next().unwrap_or_default(),
                    target.as_str(),
                ),
            };
            let url = match place.strip_prefix("env:") {
                Some(variable) => std::env::var(variable)
                    .map_err(|_| Failure::new("invalid", format!("{variable} is not set")))?,
                None => place.to_owned(),
            };
            openers.target(name, url)
        });
        targets.collect()
    }

    pub(crate) fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        if !self.workload.is_empty() {
            plan.workloads.clone_from(&self.workload);
        }
        plan.contenders.clone_from(&self.contenders);
        if self.processes {
            plan.contenders_as = ContendersAs::Processes;
        }
        plan.hold = self.hold;
        plan.ttl = self.ttl;
        plan.duration = self.duration;
        plan.warm_up = self.warm_up;
        plan.repeats = self.repeat;
        plan.with_bare = !self.no_bare;
        plan
    }
}

fn workload(text: &str) -> Result<Workload, String> {
    let mut known = WORKLOADS.into_iter();
    let found = known.find(|workload| name_of(*workload) == text);
    found.ok_or_else(|| format!("one of {}", WORKLOADS.map(name_of).join(", ")))
}
