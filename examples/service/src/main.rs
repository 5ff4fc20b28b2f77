//! A web service on two instances: locks by a configuration file, one withdrawal of an account at a
//! time, metrics, readiness, and a report that is written once in each period.
//!
//! ```console
//! $ cargo run -p service
//! $ LOCK_URL=redis://localhost cargo run -p service --features polylock/redis -- examples/service/lock.toml 127.0.0.1:8080
//! ```
//!
//! Without arguments the program starts two instances, sends them withdrawals and checks what the
//! database has in the end. With a configuration and an address it serves until Ctrl-C:
//! `curl -X POST 127.0.0.1:8080/accounts/0/withdraw`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output is the proof"
)]

mod app;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use futures_util::future::try_join_all;
use polylock::config::Config;
use tokio::net::TcpListener;
use tower::ServiceExt as _;

use self::app::{App, Database};

const ACCOUNTS: u64 = 4;
const BALANCE: i64 = 1000;
const WITHDRAWALS: u64 = 200;
const PERIOD: Duration = Duration::from_millis(200);
const PERIODS: usize = 5;

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    match &args[..] {
        [file, address] => serve(Config::load(file)?, address).await,
        _ => prove().await,
    }
}

async fn serve(config: Config, address: &str) -> Result<()> {
    let app = App::start(config, open_accounts()).await?;
    let listener = TcpListener::bind(address).await?;
    println!("serving on {}", listener.local_addr()?);
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    let server = axum::serve(listener, app.router()?).with_graceful_shutdown(stop);
    let ended = tokio::select! {
        ended = async { server.await } => ended,
        never = app.run_reports(Duration::from_secs(60)) => match never {},
    };
    app.stop().await;
    Ok(ended?)
}

/// The database that both modes start with.
fn open_accounts() -> Arc<Database> {
    let database = Database::default();
    let opened = (0..ACCOUNTS).map(|id| (id, (BALANCE, 0)));
    database.tables().accounts.extend(opened);
    Arc::new(database)
}

async fn prove() -> Result<()> {
    let database = open_accounts();
    let (mut apps, mut routers) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let config = Config::parse(include_str!("../lock.toml"))?;
        let app = App::start(config, Arc::clone(&database)).await?;
        routers.push(app.router()?);
        apps.push(app);
    }
    withdrawals(&routers, &database).await?;
    reports(&apps, &database).await?;
    metrics(&routers).await
}

/// Each account loses what was withdrawn, whichever instance got the request.
async fn withdrawals(routers: &[Router], database: &Database) -> Result<()> {
    let requests = (0..WITHDRAWALS).zip(routers.iter().cycle());
    let requests = requests.map(|(n, router)| {
        let path = format!("/accounts/{}/withdraw", n % ACCOUNTS);
        ask(router, "POST", path)
    });
    try_join_all(requests).await?;
    let accounts = &database.tables().accounts;
    let balances: Vec<_> = accounts.values().map(|(balance, _)| *balance).collect();
    println!("{WITHDRAWALS} withdrawals on 2 instances: balances {balances:?}");
    let right = BALANCE - i64::try_from(WITHDRAWALS / ACCOUNTS)?;
    let is_right = balances.iter().all(|left| *left == right);
    ensure!(is_right, "a withdrawal was lost");
    Ok(())
}

/// Both instances have the job; each period has one report.
async fn reports(apps: &[App], database: &Database) -> Result<()> {
    let enough = async {
        while database.tables().reports.len() < PERIODS {
            tokio::time::sleep(PERIOD / 4).await;
        }
    };
    tokio::select! {
        never = apps[0].run_reports(PERIOD) => match never {},
        never = apps[1].run_reports(PERIOD) => match never {},
        () = enough => {}
    }
    let runs: Vec<_> = database.tables().reports.values().copied().collect();
    println!("{} periods on 2 instances: {runs:?} reports", runs.len());
    let is_once = runs.iter().all(|runs| *runs == 1);
    ensure!(is_once, "a report was written twice");
    Ok(())
}

/// Each instance is ready and has counted its acquisitions.
async fn metrics(routers: &[Router]) -> Result<()> {
    let mut counted = 0;
    for router in routers {
        ask(router, "GET", "/ready".to_owned()).await?;
        let page = ask(router, "GET", "/metrics".to_owned()).await?;
        let counts = page.lines().filter(|line| {
            line.starts_with("polylock_acquire_duration_seconds_count{")
                && line.contains(r#"class="account""#)
                && line.contains(r#"outcome="acquired""#)
        });
        for line in counts {
            let count = line.rsplit(' ').next().context("a count")?;
            counted += count.parse::<u64>()?;
        }
    }
    println!("metrics count {counted} locks of accounts");
    ensure!(counted == WITHDRAWALS, "a lock was not counted");
    Ok(())
}

async fn ask(router: &Router, method: &str, path: String) -> Result<String> {
    let request = Request::builder().method(method).uri(path.as_str());
    let request = request.body(Body::empty())?;
    let response = router.clone().oneshot(request).await?;
    let (status, body) = (response.status(), response.into_body());
    let body = String::from_utf8(to_bytes(body, usize::MAX).await?.into())?;
    ensure!(status == StatusCode::OK, "{path}: {status}: {body}");
    Ok(body)
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn every_withdrawal_counts_and_every_period_has_one_report() -> anyhow::Result<()> {
        super::prove().await
    }
}
