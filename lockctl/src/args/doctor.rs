//! Options of `doctor`.

use std::time::Duration;

use clap::Args;

use super::value::duration;

/// Check a server for what silently loses locks: exit 0 if nothing is wrong, else 1
///
/// Connects, checks the settings of the server, measures its round trips, and tries locks on keys of
/// its own that begin with polylock-doctor/. Prints of each problem the impact and the fix, and what
/// was not checked.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Lock services to check [default: that of --backend]
    #[arg(value_name = "URL", hide_possible_values = true)]
    pub(crate) urls: Vec<String>,
    /// Check whose warning is no fault, by its name; may be given several times
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    pub(crate) accept: Vec<String>,
    /// Length of the leases that the round trips are judged for
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) ttl: Duration,
}
