//! Options of `doctor`.

use std::time::Duration;

use clap::Args;

use super::value::duration;

/// Tell whether a server is fit for locks: exit 0 if it is, 1 if something is wrong
///
/// Connects, looks at how the server is set up, measures its round trips, and tries locks on keys
/// of its own that begin with polylock-doctor/. Says of each fault what was found, why it matters
/// and the way out.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Lock services to look at [default: that of --backend]
    #[arg(value_name = "URL", hide_possible_values = true)]
    pub(crate) urls: Vec<String>,
    /// Check whose warning is no fault, by its name; may be given several times
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    pub(crate) accept: Vec<String>,
    /// Length of the leases that the round trips are judged for
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) ttl: Duration,
}
