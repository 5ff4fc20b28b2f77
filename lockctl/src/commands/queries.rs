//! `try`, `inspect` and `list`: what the backend knows of locks.

use serde_json::json;

use super::{App, admin, key};
use crate::args::{KeyArgs, PatternArgs};
use crate::exit::Exit;
use crate::output::{
    Escaped, Failure, holder_refusing, holders_json, lock_json, lock_page, locks_table, print,
    print_json,
};
use crate::pattern::Pattern;

/// Succeeds if the lock is free, and does not take it.
pub(super) async fn try_lock(app: &App, args: &KeyArgs) -> Result<Exit, Failure> {
    let key = key(&args.key)?;
    let locks = app.connect().await?;
    let info = admin(&*locks)?.inspect(&key).await?;
    if app.wants_json() {
        let holders = info.as_ref().map_or_else(|| json!([]), holders_json);
        print_json(&json!({ "key": key.as_str(), "held": info.is_some(), "holders": holders }))?;
    } else {
        let name = Escaped(key.as_str());
        let holder = info.as_ref().and_then(|info| info.holders.first());
        match holder {
            Some(holder) => print(&format!("{name} is held by {}\n", holder_refusing(holder)))?,
            None if info.is_some() => print(&format!("{name} is held\n"))?,
            None => print(&format!("{name} is free\n"))?,
        }
    }
    Ok(match info {
        Some(_) => Exit::NotAcquired,
        None => Exit::Success,
    })
}

/// Prints what the backend knows of a lock.
pub(super) async fn inspect(app: &App, args: &KeyArgs) -> Result<Exit, Failure> {
    let key = key(&args.key)?;
    let locks = app.connect().await?;
    let info = admin(&*locks)?.inspect(&key).await?;
    if app.wants_json() {
        let lock = info.as_ref().map(lock_json);
        print_json(&json!({ "key": key.as_str(), "held": info.is_some(), "lock": lock }))?;
    } else {
        match &info {
            Some(info) => print(&lock_page(info))?,
            None => print(&format!("{} is free\n", Escaped(key.as_str())))?,
        }
    }
    Ok(Exit::Success)
}

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
