//! `list`: the locks that are held.

use serde_json::json;

use super::{App, admin};
use crate::args::PatternArgs;
use crate::exit::Exit;
use crate::output::{Failure, lock_json, locks_table, print, print_json};
use crate::pattern::Pattern;

/// Prints the locks whose keys match.
pub(super) async fn list(app: &App, args: &PatternArgs) -> Result<Exit, Failure> {
    let pattern = Pattern::new(&args.pattern);
    let locks = app.connect().await?;
    let mut held = admin(&*locks)?.list(pattern.prefix()).await?;
    held.retain(|info| pattern.matches(info.key.as_str()));
    if app.wants_json() {
        let held: Vec<_> = held.iter().map(lock_json).collect();
        print_json(&json!({ "locks": held }))?;
    } else if held.is_empty() {
        app.console.note("no locks are held");
    } else {
        print(&locks_table(&held))?;
    }
    Ok(Exit::Success)
}
