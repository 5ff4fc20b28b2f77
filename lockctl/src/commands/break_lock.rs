//! `break`: takes a lock from its holders.

use std::collections::BTreeSet;
use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use clap::Args;
use polylock::FencingToken;
use polylock::admin::LockInfo;
use serde_json::json;

use super::app::{App, admin, key};
use crate::exit::Exit;
use crate::output::{CommandFailure, Escaped, holder_refusing, lock_json};

/// Break a lock: its holders lose it, and the next holder gets a larger fencing token
#[derive(Args, Debug)]
pub(crate) struct BreakArgs {
    /// Name of the lock
    pub(crate) key: String,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Why, for the records of the backend
    #[arg(long, value_name = "TEXT", default_value = "broken by lockctl")]
    pub(crate) reason: String,
}

pub(super) async fn break_lock(app: &App, args: &BreakArgs) -> Result<Exit, CommandFailure> {
    let key = key(&args.key)?;
    // The question goes to standard error.
    let can_ask = stdin().is_terminal() && stderr().is_terminal();
    if !args.yes && !can_ask {
        return Err(
            CommandFailure::new(Exit::Usage, "there is no terminal to confirm on")
                .with_hint("give --yes"),
        );
    }
    let locks = app.connect().await?;
    let admin = admin(&*locks)?;
    let mut shown = None;
    if !args.yes {
        let mut info = admin.inspect(&key).await?;
        loop {
            let Some(asked) = info else {
                return report(app, args, None);
            };
            if !agrees(&asked) {
                app.console.note("declined, nothing is broken");
                return Ok(DECLINED);
            }
            // The answer is about these holders, and may have taken a while.
            info = admin.inspect(&key).await?;
            let ids = holder_ids(&asked);
            if info.as_ref().map(holder_ids).as_ref() == Some(&ids) {
                shown = Some(ids);
                break;
            }
        }
    }
    let broken = admin.break_lock(&key, &args.reason).await?;
    if let (Some(shown), Some(broken)) = (&shown, &broken)
        && has_unseen_holder(broken, shown)
    {
        let name = Escaped(&args.key);
        app.console.warn(format_args!(
            "{name} was acquired by another client just before the break; that client has lost it"
        ));
    }
    report(app, args, broken.as_ref())
}

/// The holders of a lock, to be compared.
pub(super) type HolderIds = BTreeSet<(Option<FencingToken>, String, u32, String)>;

/// Which holders a lock has, by their tokens, hosts, processes and notes. A holder of another library may
/// have a note alone.
pub(super) fn holder_ids(info: &LockInfo) -> HolderIds {
    let holders = info.holders.iter();
    holders
        .map(|holder| {
            let label = &holder.label;
            let [host, note] = [label.host(), label.note()].map(str::to_owned);
            (holder.token, host, label.pid(), note)
        })
        .collect()
}

/// Whether a broken lock had a holder that was not shown before. The backend breaks the lock of any holder, and
/// another one may acquire it after the last inspection.
pub(super) fn has_unseen_holder(broken: &LockInfo, shown: &HolderIds) -> bool {
    !holder_ids(broken).is_subset(shown)
}

fn report(app: &App, args: &BreakArgs, broken: Option<&LockInfo>) -> Result<Exit, CommandFailure> {
    let answer = json!({ "key": args.key, "broken": broken.map(lock_json) });
    app.answer(&answer, || match broken {
        Some(info) => describe(info, "is broken: it was taken from"),
        None => format!("{} is free, nothing is broken\n", Escaped(&args.key)),
    })?;
    Ok(Exit::Success)
}

fn describe(info: &LockInfo, verb: &str) -> String {
    let name = Escaped(info.key.as_str());
    let lines = info
        .holders
        .iter()
        .map(|h| format!("{name} {verb} {}\n", holder_refusing(h)));
    lines.collect()
}

/// The lock stays held, by a decision and not by a failure.
const DECLINED: Exit = Exit::Of(1);

/// Asks on standard error, so that standard output has the answer alone.
fn agrees(info: &LockInfo) -> bool {
    let question = format!("{}break it? [y/N] ", describe(info, "is held by"));
    let asked = stderr().write_all(question.as_bytes());
    let mut answer = String::new();
    let read = asked.and_then(|()| stdin().lock().read_line(&mut answer));
    read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use polylock::admin::HolderInfo;
    use polylock::{Label, LockKey, Mode};

    use super::*;

    fn lock(holders: &[(u64, &str)]) -> LockInfo {
        let holders = holders.iter().map(|(token, label)| {
            let mut holder = HolderInfo::new(Label::decode(label));
            holder.token = Some(FencingToken::new(*token));
            holder
        });
        LockInfo::new(LockKey::new("k").unwrap(), Mode::Shared, holders.collect())
    }

    #[test]
    fn a_holder_that_was_not_shown_is_noticed() {
        let [first, second] = [(1, "host=etl&pid=7"), (2, "host=web&pid=7")];
        let shown = holder_ids(&lock(&[first, second]));
        for broken in [&[first, second][..], &[second]] {
            assert!(!has_unseen_holder(&lock(broken), &shown), "{broken:?}");
        }
        // The next acquisition of the same process is another holder.
        for broken in [
            &[(3, "host=db&pid=7")][..],
            &[(3, "host=web&pid=7")],
            &[first, (3, "host=db&pid=7")],
        ] {
            assert!(has_unseen_holder(&lock(broken), &shown), "{broken:?}");
        }
    }
}
