//! Names of what was measured, the same in every form of the report.

use std::fmt;
use std::time::Duration;

use super::Parameters;
use crate::plan::{ContendersAs, Workload};

/// The name of a workload, as the command line takes it.
#[must_use]
pub fn name_of(workload: Workload) -> &'static str {
    match workload {
        Workload::Uncontended => "uncontended",
        Workload::Contended => "contended",
        Workload::HandOff => "hand-off",
        Workload::Fairness => "fairness",
        Workload::HoldSweep => "hold-sweep",
        Workload::OpenLoop => "open-loop",
        Workload::CrashRecovery => "crash-recovery",
        Workload::Layer => "layer",
    }
}

/// All workloads, in the order of a report.
pub const WORKLOADS: [Workload; 8] = [
    Workload::Uncontended,
    Workload::Contended,
    Workload::HandOff,
    Workload::Fairness,
    Workload::HoldSweep,
    Workload::OpenLoop,
    Workload::CrashRecovery,
    Workload::Layer,
];

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
