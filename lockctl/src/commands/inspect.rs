//! `inspect`: one lock in full.

use serde_json::json;

use super::{App, admin, key};
use crate::args::KeyArgs;
use crate::exit::Exit;
use crate::output::{Escaped, Failure, lock_json, lock_page, print, print_json};

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
