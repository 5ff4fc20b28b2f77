use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::schedule::wants_bare;
use crate::clock;
use crate::connection::Opened;
use crate::plan::Plan;
use crate::probe::Probe;
use crate::report::{Latencies, TargetInfo, TargetKind};
use crate::subject::{Failure, REFUSED};
use crate::target::Target;

/// A target that is open, or the bare commands beside one.
pub(super) struct PreparedTarget {
    pub(super) info: TargetInfo,
    pub(super) target: Target,
    pub(super) opened: Opened,
    pub(super) probe: Option<Arc<dyn Probe>>,
    /// The number of the run.
    run: u64,
}

impl PreparedTarget {
    pub(super) async fn open(target: Target, run: u64) -> Result<Self, Failure> {
        let opened = target.open().await?;
        let probe = target.probe().await?;
        // A user without the right to ask may still measure.
        let findings = match target.findings().await {
            Ok(findings) => findings,
            Err(failure) => vec![format!("not examined: {failure}")],
        };
        let mut info = TargetInfo {
            name: target.name.clone(),
            url: target.shown(),
            kind: opened.kind.clone(),
            facts: BTreeMap::new(),
            findings,
            round_trip: None,
        };
        if let Some(probe) = &probe {
            info.facts = probe.facts().await.unwrap_or_else(|failure| {
                BTreeMap::from([("facts".to_owned(), format!("not told: {failure}"))])
            });
        }
        Ok(Self {
            info,
            target,
            opened,
            probe,
            run,
        })
    }

    /// Opens the bare commands of the same server, if the plan wants them and there are any.
    pub(super) async fn bare(
        &self,
        plan: &Plan,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Self>, Failure> {
        if !wants_bare(plan) {
            return Ok(None);
        }
        let name = &self.info.name;
        let opened = match self.target.bare(self.run).await {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(None),
            // A user without the right to these commands can still use locks.
            Err(failure) if failure.kind() == REFUSED => {
                let what = "is measured without its limit, the bare commands";
                warnings.push(format!("{name} {what}: {failure}"));
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        };
        Ok(Some(Self {
            info: TargetInfo {
                name: format!("{name} (bare)"),
                kind: opened.kind.clone(),
                facts: BTreeMap::new(),
                findings: Vec::new(),
                ..self.info.clone()
            },
            target: self.target.clone(),
            opened,
            probe: self.probe.clone(),
            run: self.run,
        }))
    }

    /// The number of the run, if these are bare commands.
    pub(super) fn bare_run(&self) -> Option<u64> {
        matches!(self.info.kind, TargetKind::Bare { .. }).then_some(self.run)
    }

    pub(super) async fn time_round_trips(&mut self, warnings: &mut Vec<String>) {
        let Some(probe) = &self.probe else {
            return;
        };
        let (times, ended) = round_trips(|| probe.ping()).await;
        if !times.is_empty() {
            self.info.round_trip.get_or_insert_default().merge(&times);
        }
        if let Err(failure) = ended {
            let what = match self.info.round_trip {
                Some(_) => "has figures of a part of the round trips",
                None => "has no figures in round trips",
            };
            let warning = format!("{} {what}: {failure}", self.info.name);
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }

    /// Ends background work, and removes what was made on the server.
    pub(super) async fn close(&self, warnings: &mut Vec<String>) {
        self.opened.close().await;
        let Some(run) = self.bare_run() else {
            return;
        };
        let cleared = timeout(CLEAR_TIMEOUT, self.target.clear(run)).await;
        let cleared = cleared.unwrap_or_else(|_| Err(Failure::new("silent", "no answer in time")));
        if let Err(failure) = cleared {
            let name = self.target.name();
            warnings.push(format!(
                "{name} keeps what the bare commands made: {failure}"
            ));
        }
    }
}

/// One after the other; the first ones warm up. Where they take long there are fewer: those of the
/// time that there is.
async fn round_trips<F>(ping: impl Fn() -> F + Send + Sync) -> (Latencies, Result<(), Failure>)
where
    F: Future<Output = Result<(), Failure>> + Send,
{
    let mut times = Latencies::default();
    let started = Instant::now();
    let pings = async {
        for number in 0..WARM_UP + ROUND_TRIPS {
            let is_warm = number >= WARM_UP || started.elapsed() >= WARM_UP_TIMEOUT;
            let began = clock::now();
            ping().await?;
            if is_warm {
                times.record_ns(clock::now() - began);
            }
        }
        Ok(())
    };
    let ended = match timeout(ROUND_TRIPS_TIMEOUT, pings).await {
        Ok(ended) => ended,
        Err(_) if times.is_empty() => Err(Failure::new("silent", "no answer in 10 s")),
        Err(_) => Ok(()),
    };
    (times, ended)
}

const WARM_UP: u32 = 20;
const ROUND_TRIPS: u32 = 200;
const ROUND_TRIPS_TIMEOUT: Duration = Duration::from_secs(10);
/// So that some are left to be counted.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(1);
const CLEAR_TIMEOUT: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn slow_round_trips_are_measured_until_a_deadline() {
        let cases = [
            // All, those after a warm-up, and those after the first second.
            (1, 1_000, 200..=200, None),
            (100, 1_000, 80..=90, None),
            (3_000, 1_000, 2..=2, None),
            // None in time, and one that may not ask.
            (20_000, 1_000, 0..=0, Some("no answer in 10 s")),
            (1, 0, 0..=0, Some("not for you")),
            (1, 120, 100..=100, Some("not for you")),
        ];
        for (millis, answers, expected, failure) in cases {
            let left = AtomicU32::new(answers);
            let ping = async || {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                match left.fetch_sub(1, Ordering::Relaxed) {
                    0 => Err(Failure::new(REFUSED, "not for you")),
                    _ => Ok(()),
                }
            };
            let (times, ended) = round_trips(ping).await;
            let count = times.len();
            assert!(expected.contains(&count), "{millis} ms: {count}");
            let said = ended.err().map(|failure| failure.to_string());
            assert_eq!(said.as_deref(), failure, "{millis} ms");
        }
    }
}
