//! `try`: whether a lock is free, without taking it.

use serde_json::json;

use super::{App, admin, key};
use crate::args::KeyArgs;
use crate::exit::Exit;
use crate::output::{Escaped, Failure, holder_refusing, holders_json, print, print_json};

/// Succeeds if the lock is free.
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
    Ok(if info.is_some() {
        Exit::NotAcquired
    } else {
        Exit::Success
    })
}
