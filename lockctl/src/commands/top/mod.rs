//! `top`: the held locks in a table that refreshes.

mod screen;
mod view;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use crossterm::event::{Event, KeyEventKind};
use polylock::admin::LockInfo;
use polylock::{DistributedLock, Error, LockKey, Result as LockResult};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use self::screen::{Screen, events};
use self::view::{Action, View};
use super::app::{App, SHUTDOWN, admin, refuse_url};
use super::break_lock::{HolderIds, has_unseen_holder, holder_ids};
use super::queries::PatternArgs;
use crate::args::duration;
use crate::child::Signals;
use crate::exit::Exit;
use crate::output::{CommandFailure, escaped};
use crate::pattern::Pattern;

/// Show the held locks in a table that refreshes, on a terminal
///
/// Keys: arrows select a lock, s sorts by the next column, r reverses the order, / filters the keys,
/// b breaks the selected lock after a question, q quits.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) pattern: PatternArgs,
    /// Time between two polls of the backend, min 100ms
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    pub(crate) interval: Duration,
    /// What the locks are sorted by first
    #[arg(long, value_enum, default_value_t)]
    pub(crate) sort: SortBy,
}

/// An order of locks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum SortBy {
    /// Longest held first
    #[default]
    Age,
    /// By name
    Key,
    /// Most waiters first
    Waiters,
}

pub(super) async fn top(app: &App, args: &TopArgs) -> Result<Exit, CommandFailure> {
    if app.wants_json() || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let failure = CommandFailure::new(Exit::Usage, "top fills a terminal, and there is none");
        return Err(failure.with_hint("use list or watch"));
    }
    refuse_url(&args.pattern.pattern)?;
    let locks = app.connect().await?;
    let backend = locks.capabilities().backend;
    let mut view = View::new(&args.pattern.pattern, args.sort);
    // A backend that cannot be asked is an error of the program and not of the screen.
    view.show(list(&*locks, view.filter()).await?);
    let filter = watch::Sender::new(view.filter().to_owned());
    let (sender, mut answers) = mpsc::channel(4);
    let looks = look(
        Arc::clone(&locks),
        filter.subscribe(),
        args.interval,
        sender.clone(),
    );
    drop(tokio::spawn(looks));
    let mut signals = Signals::catch()?;
    // The locks that are being broken.
    let mut under_way = Vec::new();
    let cannot = || CommandFailure::internal("cannot use the terminal");
    {
        let screen = Screen::take().map_err(cannot())?;
        let mut events = events().map_err(cannot())?;
        loop {
            let (columns, rows) = screen.size();
            let frame = view.frame(backend, columns, rows);
            screen.draw(&frame).map_err(cannot())?;
            let action = tokio::select! {
                event = events.recv() => match event {
                    Some(Event::Key(key)) if key.kind != KeyEventKind::Release => view.press(key),
                    Some(_) => Action::None,
                    None => Action::Quit,
                },
                signal = signals.next() => match signal {
                    rustix::process::Signal::WINCH | rustix::process::Signal::CHILD => Action::None,
                    _ => Action::Quit,
                },
                Some(answer) = answers.recv() => {
                    match answer {
                        BackendReply::Listed(Ok(locks)) => view.show(locks),
                        BackendReply::Listed(Err(error)) => view.fail(told(&error)),
                        BackendReply::Ended(key, Ok(text) | Err(text)) => {
                            answered(&mut under_way, &key);
                            filter.send_modify(|_| {});
                            view.notice(text);
                        }
                    }
                    Action::None
                }
            };
            match action {
                Action::None => {}
                Action::Filter => drop(filter.send(view.filter().to_owned())),
                Action::Break(key, asked) => {
                    view.notice(format!("{} is being broken", escaped(key.as_str())));
                    let (locks, answers) = (Arc::clone(&locks), sender.clone());
                    drop(tokio::spawn(break_lock(locks, key.clone(), asked, answers)));
                    under_way.push(key);
                }
                Action::Quit => break,
            }
        }
    }
    let ends = timeout(SHUTDOWN, async {
        while !under_way.is_empty()
            && let Some(answer) = answers.recv().await
        {
            if let BackendReply::Ended(key, broken) = answer {
                answered(&mut under_way, &key);
                if let Err(text) = broken {
                    app.console.warn(text);
                }
            }
        }
    });
    drop(ends.await);
    for key in under_way {
        let key = escaped(key.as_str());
        app.console
            .warn(format_args!("whether {key} is broken is unknown"));
    }
    Ok(Exit::Success)
}

/// Takes one answer off those that are waited for.
fn answered(under_way: &mut Vec<LockKey>, key: &LockKey) {
    if let Some(at) = under_way.iter().position(|other| other == key) {
        under_way.remove(at);
    }
}

enum BackendReply {
    Listed(LockResult<Vec<LockInfo>>),
    /// What has become of a lock that was to be broken, for people.
    Ended(LockKey, Result<String, String>),
}

fn told(error: &Error) -> String {
    escaped(&error.to_string())
}

async fn list(locks: &dyn DistributedLock, filter: &str) -> Result<Vec<LockInfo>, CommandFailure> {
    let pattern = Pattern::new(filter);
    Ok(admin(locks)?.list(pattern.prefix()).await?)
}

/// Lists the locks again and again, and at once when the filter changes.
async fn look(
    locks: Arc<dyn DistributedLock>,
    mut filter: watch::Receiver<String>,
    interval: Duration,
    answers: mpsc::Sender<BackendReply>,
) {
    let Some(admin) = locks.admin() else { return };
    loop {
        let changed = timeout(interval.max(SHORTEST), filter.changed()).await;
        if matches!(changed, Ok(Err(_))) {
            return;
        }
        let text = filter.borrow_and_update().clone();
        let listed = admin.list(Pattern::new(&text).prefix()).await;
        if answers.send(BackendReply::Listed(listed)).await.is_err() {
            return;
        }
    }
}

/// A shorter interval would keep the backend busy, and nobody reads as fast.
const SHORTEST: Duration = Duration::from_millis(100);

async fn break_lock(
    locks: Arc<dyn DistributedLock>,
    key: LockKey,
    asked: HolderIds,
    answers: mpsc::Sender<BackendReply>,
) {
    let Some(admin) = locks.admin() else { return };
    let name = escaped(key.as_str());
    let broken = match admin.inspect(&key).await {
        Ok(Some(info)) if holder_ids(&info) == asked => {
            admin.break_lock(&key, "broken by lockctl top").await
        }
        Ok(Some(_)) => {
            let text = format!("{name} has another holder now, nothing is broken");
            drop(answers.send(BackendReply::Ended(key, Err(text))).await);
            return;
        }
        free => free,
    };
    let text = match broken {
        Ok(Some(broken)) if has_unseen_holder(&broken, &asked) => Err(format!(
            "{name} is broken; another client acquired it just before, and has lost it"
        )),
        Ok(Some(_)) => Ok(format!("{name} is broken")),
        Ok(None) => Ok(format!("{name} is free, nothing is broken")),
        Err(error) => Err(told(&error)),
    };
    // The program may have ended.
    drop(answers.send(BackendReply::Ended(key, text)).await);
}
