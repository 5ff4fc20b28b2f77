//! `watch`: locks as they come and go.

use std::time::SystemTime;

use polylock::admin::LockEvent;
use serde_json::{Value, json};

use super::{App, admin};
use crate::args::PatternArgs;
use crate::exit::Exit;
use crate::output::{Escaped, Failure, clock, deliver, lock_json, timestamp, unix_ms, who};
use crate::pattern::Pattern;

/// Prints changes until the process is interrupted or the backend ends the watch.
pub(super) async fn watch(app: &App, args: &PatternArgs) -> Result<Exit, Failure> {
    let pattern = Pattern::new(&args.pattern);
    let locks = app.connect().await?;
    let mut events = admin(&*locks)?.watch(pattern.prefix()).await?;
    while let Some(event) = events.recv().await {
        if !pattern.matches(event.key().as_str()) {
            continue;
        }
        let line = if app.wants_json() {
            format!("{}\n", event_json(&event))
        } else {
            event_line(&event)
        };
        if !deliver(&line)? {
            // `lockctl watch | head -1` has seen enough.
            return Ok(Exit::Success);
        }
    }
    Err(Failure::new(
        Exit::Unavailable,
        "the backend ended the watch",
    ))
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
