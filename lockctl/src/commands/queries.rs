//! `try`, `inspect` and `list`: what the backend knows of locks.

use polylock::admin::{LockAdmin, LockInfo, Record};
use polylock::coordination::{LastRun, Leader};
use polylock::{ErrorKind, LockKey};
use serde_json::json;

use super::{App, admin, key};
use crate::args::{KeyArgs, PatternArgs};
use crate::exit::Exit;
use crate::output::{
    Escaped, Failure, Rows, address_text, escaped, holder_refusing, holders_json, last_run_json,
    last_run_text, lock_json, lock_rows, locks_table, print, print_json, rows_page,
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

/// Prints what the backend knows of a lock, and what its holders have recorded beside it.
pub(super) async fn inspect(app: &App, args: &KeyArgs) -> Result<Exit, Failure> {
    let key = key(&args.key)?;
    let locks = app.connect().await?;
    let admin = admin(&*locks)?;
    let info = admin.inspect(&key).await?;
    let recorded = record(app, admin, &key).await;
    let recorded = recorded.map_or_else(Recorded::default, |record| {
        Recorded::new(info.as_ref(), &record)
    });
    if app.wants_json() {
        let lock = info.as_ref().map(lock_json);
        let mut answer = json!({ "key": key.as_str(), "held": info.is_some(), "lock": lock });
        if let Some(address) = recorded.address {
            answer["address"] = address.into();
        }
        if let Some(run) = &recorded.last_run {
            answer["last_run"] = last_run_json(run);
        }
        print_json(&answer)?;
    } else {
        let free = format!("{} is free\n", Escaped(key.as_str()));
        let (head, mut rows) = match &info {
            Some(info) => (String::new(), lock_rows(info)),
            None => (free, Rows::new()),
        };
        rows.extend(recorded.rows());
        print(&(head + &rows_page(rows)))?;
    }
    Ok(Exit::Success)
}

/// The record beside a lock; without the right to read it the lock is shown all the same.
async fn record(app: &App, admin: &dyn LockAdmin, key: &LockKey) -> Option<Record> {
    let record = admin.record(key).await;
    record.unwrap_or_else(|error| {
        // Where there cannot be a record, nothing is missing.
        if !matches!(error.kind(), ErrorKind::InvalidKey | ErrorKind::Unsupported) {
            let error = escaped(&error.to_string());
            app.console
                .note(format_args!("its record cannot be read: {error}"));
        }
        None
    })
}

/// What a record says of a job or a leader.
#[derive(Debug, Default)]
struct Recorded {
    address: Option<String>,
    last_run: Option<LastRun>,
}

impl Recorded {
    fn new(info: Option<&LockInfo>, record: &Record) -> Self {
        let holder = info.and_then(|info| info.holders.first()).cloned();
        let leader = holder.map(|holder| Leader::of(holder, Some(record)));
        Self {
            address: leader.and_then(|leader| Some(address_text(&leader.address?))),
            last_run: LastRun::decode(&record.bytes),
        }
    }

    fn rows(&self) -> Rows {
        let address = self.address.as_deref().map(escaped);
        let last_run = self.last_run.as_ref().map(last_run_text);
        [("address", address), ("last run", last_run)]
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
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
