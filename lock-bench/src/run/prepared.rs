use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::schedule::{Abilities, wants_bare};
use crate::clock;
use crate::plan::Plan;
use crate::report::{Latencies, TargetInfo, TargetKind};
use crate::subject::{Failure, REFUSED};
use crate::target::{Bare, Opened, Probe, Runner, Target};
use crate::worker::Part;

/// A target that is open, and what is known of it.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) target: Target,
    pub(super) opened: Opened,
    pub(super) probe: Option<Arc<dyn Probe>>,
    bare: Option<Bare>,
    /// The number of the run.
    pub(super) run: u64,
    /// What a reader of the figures has to know, one sentence each.
    pub(super) warnings: Vec<String>,
    facts: BTreeMap<String, String>,
    findings: Vec<String>,
    round_trip: Option<Latencies>,
}

impl Prepared {
    pub(super) async fn open(target: Target, plan: &Plan, run: u64) -> Result<Self, Failure> {
        let (opener, url) = (&target.opener, &target.url);
        let opened = opener.open(url).await?;
        let probe = opener.probe(url).await?;
        // Whoever may not ask may still measure.
        let findings = match opener.findings(url).await {
            Ok(findings) => findings,
            Err(failure) => vec![format!("not examined: {failure}")],
        };
        let mut facts = BTreeMap::new();
        if let Some(probe) = &probe {
            facts = probe.facts().await.unwrap_or_else(|failure| {
                BTreeMap::from([("facts".to_owned(), format!("not told: {failure}"))])
            });
        }
        let mut warnings = Vec::new();
        // The last, since it may make something that has to be removed.
        let bare = match wants_bare(plan) {
            false => None,
            true => match opener.bare(url, run).await {
                // Who may not have these has locks all the same.
                Err(failure) if failure.kind() == REFUSED => {
                    let name = &target.name;
                    warnings.push(format!(
                        "{name} is measured without its limit, the bare commands: {failure}"
                    ));
                    None
                }
                bare => bare?,
            },
        };
        Ok(Self {
            target,
            opened,
            probe,
            bare,
            run,
            warnings,
            facts,
            findings,
            round_trip: None,
        })
    }

    /// The name of a part in the report.
    pub(super) fn name(&self, part: Part) -> String {
        match part {
            Part::Bare => format!("{} (bare)", self.target.name),
            Part::Whole => self.target.name.clone(),
        }
    }

    /// Where it is, without secrets.
    pub(super) fn shown(&self) -> String {
        self.target.opener.shown(&self.target.url)
    }

    pub(super) fn abilities(&self) -> Abilities {
        Abilities {
            name: self.target.name.clone(),
            is_of_one_process: self.opened.is_of_one_process,
            has_locks: self.opened.runner.locks().is_some(),
            bare: self.bare.as_ref().map(|bare| bare.waits),
        }
    }

    pub(super) fn runner(&self, part: Part) -> &Runner {
        match (part, &self.bare) {
            (Part::Bare, Some(bare)) => &bare.runner,
            _ => &self.opened.runner,
        }
    }

    pub(super) async fn time_round_trips(&mut self) {
        let Some(probe) = &self.probe else {
            return;
        };
        let (times, ended) = round_trips(&**probe).await;
        if !times.is_empty() {
            self.round_trip.get_or_insert_default().merge(&times);
        }
        if let Err(failure) = ended {
            let what = match self.round_trip {
                Some(_) => "has figures of a part of the round trips",
                None => "has no figures in round trips",
            };
            let warning = format!("{} {what}: {failure}", self.target.name);
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }

    /// Ends what goes on, and removes what was made on the server.
    pub(super) async fn close(&mut self) {
        self.opened.runner.close().await;
        if self.bare.is_none() {
            return;
        }
        let clear = self.target.opener.clear(&self.target.url, self.run);
        let cleared = timeout(CLEARS_WITHIN, clear).await;
        let cleared = cleared.unwrap_or_else(|_| Err(Failure::new("silent", "no answer in time")));
        if let Err(failure) = cleared {
            let name = &self.target.name;
            self.warnings.push(format!(
                "{name} keeps what the bare commands made: {failure}"
            ));
        }
    }

    /// The target and its bare commands, for the report.
    pub(super) fn infos(self) -> impl Iterator<Item = TargetInfo> {
        let bare_name = self.name(Part::Bare);
        let whole = TargetInfo {
            name: self.target.name.clone(),
            url: self.shown(),
            kind: self.opened.kind,
            facts: self.facts,
            findings: self.findings,
            round_trip: self.round_trip,
        };
        let bare = self.bare.map(|bare| TargetInfo {
            name: bare_name,
            kind: TargetKind::Bare {
                of: whole.name.clone(),
                commands: bare.commands,
            },
            facts: BTreeMap::new(),
            findings: Vec::new(),
            ..whole.clone()
        });
        [Some(whole), bare].into_iter().flatten()
    }
}

/// One after the other; the first ones warm up. Where they take long there are fewer: those of the
/// time that there is.
async fn round_trips(probe: &dyn Probe) -> (Latencies, Result<(), Failure>) {
    let mut times = Latencies::default();
    let started = Instant::now();
    let pings = async {
        let mut number = 0;
        while number < WARM_UP + ROUND_TRIPS {
            let is_warm = number >= WARM_UP || started.elapsed() >= WARM_UP_WITHIN;
            let began = clock::now();
            probe.ping().await?;
            if is_warm {
                times.record_ns(clock::now() - began);
            }
            number += 1;
        }
        Ok(())
    };
    let ended = match timeout(ROUND_TRIPS_WITHIN, pings).await {
        Ok(ended) => ended,
        Err(_) if times.is_empty() => Err(Failure::new("silent", "no answer in 10 s")),
        Err(_) => Ok(()),
    };
    (times, ended)
}

const WARM_UP: u32 = 20;
const ROUND_TRIPS: u32 = 200;
const ROUND_TRIPS_WITHIN: Duration = Duration::from_secs(10);
/// So that some are left to be counted.
const WARM_UP_WITHIN: Duration = Duration::from_secs(1);
const CLEARS_WITHIN: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use async_trait::async_trait;

    use super::*;

    /// Answers after a time, and so often.
    #[derive(Debug)]
    struct Slow {
        after: Duration,
        left: AtomicU32,
    }

    #[async_trait]
    impl Probe for Slow {
        async fn ping(&self) -> Result<(), Failure> {
            tokio::time::sleep(self.after).await;
            match self.left.fetch_sub(1, Ordering::Relaxed) {
                0 => Err(Failure::new(REFUSED, "not for you")),
                _ => Ok(()),
            }
        }

        async fn commands(&self) -> Result<Option<u64>, Failure> {
            Ok(None)
        }

        async fn facts(&self) -> Result<BTreeMap<String, String>, Failure> {
            Ok(BTreeMap::new())
        }
    }

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
            let probe = Slow {
                after: Duration::from_millis(millis),
                left: answers.into(),
            };
            let (times, ended) = round_trips(&probe).await;
            let count = times.len();
            assert!(expected.contains(&count), "{millis} ms: {count}");
            let said = ended.err().map(|failure| failure.to_string());
            assert_eq!(said.as_deref(), failure, "{millis} ms");
        }
    }
}
