//! The service: routes, and the job that runs beside them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use polylock::config::{Config, Locks};
use polylock::coordination::Once;
use polylock::observe::{BUCKETS, MetricsObserver};
use polylock::prelude::*;
use polylock::tower::{HeldLock, KeyLockLayer, Keys};

/// What the instances share: a database in production.
#[derive(Default)]
pub(crate) struct Database(Mutex<Tables>);

#[derive(Default)]
pub(crate) struct Tables {
    /// Balances, each with the largest token that has written it.
    pub(crate) accounts: BTreeMap<u64, (i64, u64)>,
    /// For each period how often the report was written.
    pub(crate) reports: BTreeMap<u128, usize>,
}

impl Database {
    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `UPDATE accounts SET balance = $2, token = $3 WHERE id = $1 AND token <= $3`.
    fn write(&self, account: u64, balance: i64, token: u64) -> bool {
        let mut tables = self.tables();
        let row = tables.accounts.get_mut(&account);
        let Some(row) = row.filter(|(_, newest)| *newest <= token) else {
            return false;
        };
        *row = (balance, token);
        true
    }
}

/// One instance of the service.
#[derive(Clone)]
pub(crate) struct App {
    locks: Locks,
    database: Arc<Database>,
    metrics: PrometheusHandle,
    observer: Arc<MetricsObserver>,
}

impl App {
    pub(crate) async fn start(config: Config, database: Arc<Database>) -> anyhow::Result<Self> {
        // Histograms can be added up over instances, and summaries cannot.
        let prefix = Matcher::Prefix("polylock_".into());
        let metrics = PrometheusBuilder::new().set_buckets_for_metric(prefix, &BUCKETS)?;
        let recorder = metrics.build_recorder();
        let metrics = recorder.handle();
        let observer = MetricsObserver::new().with_recorder(Arc::new(recorder));
        // Their counters start at zero.
        let observer = Arc::new(observer.with_classes(["account"]));
        let config = config.with_observer(Arc::<MetricsObserver>::clone(&observer));
        let locks = config.connect().await?;
        Ok(Self {
            locks,
            database,
            metrics,
            observer,
        })
    }

    pub(crate) fn router(&self) -> anyhow::Result<Router> {
        let accounts = self.locks.class("account")?.locker("account");
        let observer = Arc::clone(&self.observer);
        let accounts = accounts.rejection_observer(observer).build()?;
        let key = |Path(id): Path<u64>| Keys::one(id.to_string());
        let by_account = KeyLockLayer::from_extractor(accounts, key);
        let withdraw = post(withdraw).route_layer(by_account);
        let metrics = get(async |State(app): State<Self>| app.metrics.render());
        Ok(Router::new()
            .route("/accounts/{id}/withdraw", withdraw)
            .route("/metrics", metrics)
            .route("/ready", get(ready))
            .with_state(self.clone()))
    }

    /// Writes the report of each period, unless another instance does. A report that fails is due at the
    /// next tick, and the service goes on.
    pub(crate) async fn run_reports(&self, period: Duration) -> Infallible {
        let mut ticks = tokio::time::interval(period / 4);
        loop {
            ticks.tick().await;
            if let Err(error) = self.report(period).await {
                eprintln!("the report is not written: {error:#}");
            }
        }
    }

    async fn report(&self, period: Duration) -> anyhow::Result<()> {
        let number = UNIX_EPOCH.elapsed()?.as_millis() / period.as_millis();
        let locks = Arc::clone(self.locks.default_backend()?.locks());
        // The run is recorded beside its lock: an instance whose clock is late does not run it again. ZooKeeper
        // keeps the record of each key forever; there, `Once::every` has one record for all periods.
        let once = Once::for_key(locks, "report", &number.to_string())?;
        let work = async || {
            *self.database.tables().reports.entry(number).or_default() += 1;
            Ok::<_, Infallible>(())
        };
        once.run(|_| work()).await?;
        Ok(())
    }

    pub(crate) async fn stop(&self) {
        self.locks.shutdown(Duration::from_secs(5)).await;
    }
}

/// Reads, thinks and writes, as no single statement of the database could.
async fn withdraw(
    State(app): State<App>,
    Path(account): Path<u64>,
    lock: HeldLock,
) -> Result<String, StatusCode> {
    let token = lock.fencing_token();
    let token = token.ok_or(StatusCode::INTERNAL_SERVER_ERROR)?;
    let row = app.database.tables().accounts.get(&account).copied();
    let (balance, _) = row.ok_or(StatusCode::NOT_FOUND)?;
    tokio::time::sleep(Duration::from_millis(1)).await;
    match app.database.write(account, balance - 1, token.value()) {
        true => Ok(format!("{}\n", balance - 1)),
        false => Err(StatusCode::CONFLICT),
    }
}

/// For the load balancer: whether the locks can be reached.
async fn ready(State(app): State<App>) -> Result<&'static str, StatusCode> {
    let unavailable = |_| StatusCode::SERVICE_UNAVAILABLE;
    let backend = app.locks.default_backend().map_err(unavailable)?;
    let ping = backend.locks().ping(Duration::from_secs(1));
    ping.await.map_err(unavailable)?;
    Ok("ready\n")
}
