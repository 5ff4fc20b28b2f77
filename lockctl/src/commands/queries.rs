//! `try`, `inspect`, `list` and `watch`: what the backend knows of locks.

use std::time::SystemTime;

use clap::Args;
use polylock::admin::{LockAdmin, LockEvent, Record};
use polylock::coordination::{LastRun, Leader};
use polylock::{ErrorKind, LockKey};
use serde_json::{Value, json};

use super::app::{App, admin, key, refuse_url};
use crate::child::end_of_process_1;
use crate::exit::Exit;
use crate::output::{
    CommandFailure, Escaped, Rows, address_text, clock, escaped, follow, holder_refusing,
    holders_json, last_run_json, last_run_text, lock_json, lock_rows, locks_table, print,
    print_json, rows_page, timestamp, unix_ms, who,
};
use crate::pattern::Pattern;

/// Argument of `try` and `inspect`.
#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    /// Name of the lock
    pub(crate) key: String,
}

/// Options of `list` and `watch`.
#[derive(Args, Debug)]
pub(crate) struct PatternArgs {
    /// Beginning of the keys, or a pattern in which * stands for any text
    #[arg(default_value = "")]
    pub(crate) pattern: String,
}

/// Succeeds if the lock is free, and does not take it.
pub(super) async fn try_lock(app: &App, args: &KeyArgs) -> Result<Exit, CommandFailure> {
    let key = key(&args.key)?;
    let locks = app.connect().await?;
    let info = admin(&*locks)?.inspect(&key).await?;
    let holders = info.as_ref().map_or_else(|| json!([]), holders_json);
    let answer = json!({ "key": key.as_str(), "held": info.is_some(), "holders": holders });
    let name = Escaped(key.as_str());
    app.answer(&answer, || {
        match info.as_ref().map(|info| info.holders.first()) {
            Some(Some(holder)) => format!("{name} is held by {}\n", holder_refusing(holder)),
            Some(None) => format!("{name} is held\n"),
            None => format!("{name} is free\n"),
        }
    })?;
    Ok(match info {
        Some(_) => Exit::NotAcquired,
        None => Exit::Success,
    })
}

/// Prints what the backend knows of a lock, and what its holders have recorded beside it.
pub(super) async fn inspect(app: &App, args: &KeyArgs) -> Result<Exit, CommandFailure> {
    let key = key(&args.key)?;
    let locks = app.connect().await?;
    let admin = admin(&*locks)?;
    let info = admin.inspect(&key).await?;
    let record = record(app, admin, &key).await;
    let holder = info.as_ref().and_then(|info| info.holders.first());
    let leader = holder.map(|holder| Leader::of(holder.clone(), record.as_ref()));
    let address = leader.and_then(|leader| Some(address_text(&leader.address?)));
    let last_run = record.and_then(|record| LastRun::decode(&record.bytes));
    let lock = info.as_ref().map(lock_json);
    let mut answer = json!({ "key": key.as_str(), "held": info.is_some(), "lock": lock });
    if let Some(address) = &address {
        answer["address"] = address.as_str().into();
    }
    if let Some(run) = &last_run {
        answer["last_run"] = last_run_json(run);
    }
    app.answer(&answer, || {
        let free = format!("{} is free\n", Escaped(key.as_str()));
        let (head, mut rows) = match &info {
            Some(info) => (String::new(), lock_rows(info)),
            None => (free, Rows::new()),
        };
        rows.extend(address.map(|address| ("address", escaped(&address))));
        rows.extend(last_run.map(|run| ("last run", last_run_text(&run))));
        head + &rows_page(rows)
    })?;
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

pub(super) async fn list(app: &App, args: &PatternArgs) -> Result<Exit, CommandFailure> {
    refuse_url(&args.pattern)?;
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

/// Prints changes until the process is interrupted or the backend ends the watch.
pub(super) async fn watch(app: &App, args: &PatternArgs) -> Result<Exit, CommandFailure> {
    refuse_url(&args.pattern)?;
    let pattern = Pattern::new(&args.pattern);
    let locks = app.connect().await?;
    let mut events = admin(&*locks)?.watch(pattern.prefix()).await?;
    let changes = async || loop {
        let event = events.recv().await?;
        if pattern.matches(event.key().as_str()) {
            return Some(app.line(&event_json(&event), || event_line(&event)));
        }
    };
    let followed = tokio::select! {
        signal = end_of_process_1() => return Ok(Exit::Signaled(signal?.as_raw())),
        followed = follow(changes) => followed?,
    };
    match followed {
        true => Ok(Exit::Success),
        false => {
            let message = "the backend ended the watch";
            Err(CommandFailure::new(Exit::Unavailable, message))
        }
    }
}

fn event_json(event: &LockEvent) -> Value {
    let now = SystemTime::now();
    let (name, lock) = match event {
        LockEvent::Acquired(info) => ("acquired", Some(lock_json(info))),
        LockEvent::Free(_) => ("free", None),
        _ => ("unknown", None),
    };
    json!({
        "event": name,
        "key": event.key().as_str(),
        "lock": lock,
        "time": timestamp(now),
        "unix_ms": unix_ms(now),
    })
}

fn event_line(event: &LockEvent) -> String {
    let (now, key) = (clock(SystemTime::now()), Escaped(event.key().as_str()));
    match event {
        LockEvent::Acquired(info) => {
            let holders: Vec<_> = info
                .holders
                .iter()
                .map(|holder| match holder.token {
                    Some(token) => format!("{} (token {token})", who(&holder.label)),
                    None => who(&holder.label),
                })
                .collect();
            format!("{now} acquired {key} by {}\n", holders.join(", "))
        }
        LockEvent::Free(_) => format!("{now} free     {key}\n"),
        _ => format!("{now} changed  {key}\n"),
    }
}
