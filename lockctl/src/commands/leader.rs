//! `leader`: who leads an election.

use std::time::SystemTime;

use clap::Args;
use futures_util::StreamExt as _;
use polylock::coordination::{Election, Leader};
use serde_json::{Value, json};

use super::app::{App, key};
use crate::child::end_of_process_1;
use crate::exit::Exit;
use crate::output::{
    CommandFailure, Escaped, address_text, clock, follow, leader_json, leader_rows, rows_page,
    timestamp, unix_ms, who,
};

/// Show who leads an election, and its address; exit 0 also if there is no leader
#[derive(Args, Debug)]
pub(crate) struct LeaderArgs {
    /// Name of the election
    name: String,
    /// Print who leads, and each change from then on, until interrupted
    #[arg(long)]
    watch: bool,
}

pub(super) async fn leader(app: &App, args: &LeaderArgs) -> Result<Exit, CommandFailure> {
    let name = key(&args.name)?;
    let election = Election::new(app.connect().await?, name)?;
    // Also before a watch, which reports no error: a permanent error ends the command.
    let leader = election.leader().await?;
    if args.watch {
        return watch(app, &election).await;
    }
    app.answer(&answer(&election, leader.as_ref()), || match &leader {
        Some(leader) => rows_page(leader_rows(leader)),
        None => format!("nobody leads {}\n", Escaped(election.name())),
    })?;
    Ok(Exit::Success)
}

/// Prints changes until the process is interrupted. That the backend cannot be asked is none.
async fn watch(app: &App, election: &Election) -> Result<Exit, CommandFailure> {
    let mut leaders = election.observe();
    let changes = async || {
        let leader = leaders.next().await?;
        let now = SystemTime::now();
        let mut event = answer(election, leader.as_ref());
        event["time"] = timestamp(now).into();
        event["unix_ms"] = unix_ms(now).into();
        let text = || format!("{} {}\n", clock(now), sentence(leader.as_ref()));
        Some(app.line(&event, text))
    };
    tokio::select! {
        signal = end_of_process_1() => Ok(Exit::Signaled(signal?.as_raw())),
        followed = follow(changes) => followed.map(|_| Exit::Success),
    }
}

fn answer(election: &Election, leader: Option<&Leader>) -> Value {
    json!({ "election": election.name(), "leader": leader.map(leader_json) })
}

fn sentence(leader: Option<&Leader>) -> String {
    let Some(leader) = leader else {
        return "nobody leads".to_owned();
    };
    let mut out = format!("{} leads", who(&leader.label));
    if let Some(token) = leader.token {
        out += &format!(", token {token}");
    }
    if let Some(address) = &leader.address {
        out += &format!(", at {}", Escaped(&address_text(address)));
    }
    out
}
