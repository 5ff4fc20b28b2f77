//! Options of `bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use polylock_bench::plan::{ContendersAs, Plan, WORKLOADS, Workload, name_of};
use polylock_bench::report::compare::Limit;
use secrecy::SecretString;

use crate::args::{duration, secret};

/// Measure locks side by side, on your own servers
///
/// Checks in every measurement that never two hold a lock and that tokens grow: exit 1 if that
/// fails. Where there are no tokens and nobody holds the lock for long, two are seen by chance alone,
/// and the notes say so. Of more than 2 million acquisitions in one measurement it keeps and checks a
/// part, and the notes say how much. Without a target it measures the backend of --backend,
/// --config, --default-backend or --class; without these, memory and a SQLite file in the directory
/// for temporary files. LOCK_URL is not measured unless it is named: a benchmark is a load for its
/// server.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    Compare(CompareArgs),
    Show(ShowArgs),
}

/// Options of `bench` itself.
#[derive(Args, Debug)]
pub(crate) struct MeasureArgs {
    /// Lock services to measure; env:VARIABLE for one whose URL is in a variable, backend:NAME for
    /// one of the configuration file
    #[arg(value_name = "URL", value_parser = secret)]
    pub(crate) urls: Vec<SecretString>,
    /// The same with a name for the report; may be given several times
    #[arg(long = "target", value_name = "NAME=URL", value_parser = secret)]
    pub(crate) targets: Vec<SecretString>,
    /// What to measure, or all [default: uncontended,contended,hand-off]
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',', value_parser = workloads())]
    pub(crate) workload: Vec<Box<[Workload]>>,
    /// Numbers of contenders
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,2,4,8,16",
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    pub(crate) contenders: Vec<u32>,
    /// What a contender is
    #[arg(long, value_enum, value_name = "KIND", default_value_t)]
    pub(crate) contenders_as: ContenderKind,
    /// How long each holds the lock; the hold sweep has its own times
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration)]
    pub(crate) hold: Duration,
    /// Length of the leases
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) ttl: Duration,
    /// Length of a measurement
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// What goes before a measurement and is not counted
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration)]
    pub(crate) warm_up: Duration,
    /// How often everything is measured; the order of the targets changes each time
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub(crate) repeat: u32,
    /// Acquisitions per second that the open loop asks for
    #[arg(long, value_name = "N", default_value_t = 100.0, value_parser = rate)]
    pub(crate) rate: f64,
    /// Where the order of the targets and the open loop start, to repeat a run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Leave out the bare commands that are measured beside each target
    #[arg(long)]
    pub(crate) no_bare: bool,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) forms: FormArgs,
}

/// Forms of a report besides the table.
#[derive(Args, Clone, Debug)]
pub(crate) struct FormArgs {
    /// Write one page with plots, which needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the histograms for the tools of HdrHistogram (.hgrm, .hlog)
    #[arg(long, value_name = "DIR")]
    pub(crate) hdr: Option<PathBuf>,
    /// Write each plot as an SVG file
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
}

/// Tell what changed between two reports by more than the spread of their repeats
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    /// What `bench --json` wrote before
    pub(crate) old: PathBuf,
    /// What `bench --json` wrote since
    pub(crate) new: PathBuf,
    /// Exit 1 if a figure changes by more or is gone, such as throughput=-10%,p99=+15%
    #[arg(long, value_name = "METRIC=CHANGE", value_delimiter = ',')]
    pub(crate) fail_on: Vec<Limit>,
}

/// Show a report again, or write it in another form
#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// What `bench --json` wrote
    pub(crate) report: PathBuf,
    #[command(flatten)]
    pub(crate) forms: FormArgs,
}

/// What contends.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ContenderKind {
    /// A process with connections of its own, as the instances of a service
    Processes,
    /// A task of this process and its connection, as the requests of a service
    #[default]
    Tasks,
}

impl MeasureArgs {
    /// What the options ask for.
    pub(crate) fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        if !self.workload.is_empty() {
            let is_asked = |workload: &Workload| self.workload.iter().any(|w| w.contains(workload));
            plan.workloads = WORKLOADS.into_iter().filter(is_asked).collect();
        }
        plan.contenders = self.contenders.clone();
        plan.contenders.sort_unstable();
        plan.contenders.dedup();
        plan.contenders_as = match self.contenders_as {
            ContenderKind::Processes => ContendersAs::Processes,
            ContenderKind::Tasks => ContendersAs::Tasks,
        };
        plan.hold = self.hold;
        plan.ttl = self.ttl;
        plan.duration = self.duration;
        plan.warm_up = self.warm_up;
        plan.repeats = self.repeat;
        plan.rate = self.rate;
        plan.seed = self.seed;
        plan.with_bare = !self.no_bare;
        plan
    }
}

/// Reads one word for a workload, or for all of them.
fn workloads() -> impl TypedValueParser<Value = Box<[Workload]>> {
    let names = WORKLOADS.map(|workload| PossibleValue::new(name_of(workload)));
    let all = PossibleValue::new("all");
    let words = PossibleValuesParser::new(names.into_iter().chain([all]));
    words.map(|word| {
        let is_meant = |workload: &Workload| word == "all" || word == name_of(*workload);
        WORKLOADS.into_iter().filter(is_meant).collect()
    })
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("must be a number above 0".to_owned()),
    }
}
