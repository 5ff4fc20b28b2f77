use std::collections::BTreeMap;
use std::time::Duration;

use super::agenda::Abilities;
use crate::clock;
use crate::report::{Latencies, TargetInfo, TargetKind};
use crate::subject::Failure;
use crate::target::{Opened, Probe, Runner, Target};
use crate::worker::Part;

/// A target that is open, and what is known of it.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) target: Target,
    pub(super) opened: Opened,
    facts: BTreeMap<String, String>,
    findings: Vec<String>,
    round_trip: Option<Latencies>,
}

impl Prepared {
    pub(super) async fn open(target: Target) -> Result<Self, Failure> {
        let opened = target.opener.open(&target.url).await?;
        // Whoever may not ask may still measure.
        let findings = match target.opener.findings(&target.url).await {
            Ok(findings) => findings,
            Err(failure) => vec![format!("not examined: {failure}")],
        };
        let mut facts = BTreeMap::new();
        if let Some(probe) = &opened.probe {
            facts = probe.facts().await.unwrap_or_else(|failure| {
                BTreeMap::from([("facts".to_owned(), format!("not told: {failure}"))])
            });
        }
        Ok(Self {
            target,
            opened,
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
            has_layer: self.opened.runner.locks().is_some(),
            bare: self.opened.bare.as_ref().map(|bare| bare.waits),
        }
    }

    pub(super) fn runner(&self, part: Part) -> &Runner {
        match (part, &self.opened.bare) {
            (Part::Bare, Some(bare)) => &bare.runner,
            _ => &self.opened.runner,
        }
    }

    pub(super) async fn time_round_trips(&mut self) {
        let Some(probe) = &self.opened.probe else {
            return;
        };
        let times = round_trips(&**probe);
        if let Ok(times) = tokio::time::timeout(ROUND_TRIPS_WITHIN, times).await {
            self.round_trip.get_or_insert_default().merge(&times);
        }
    }

    pub(super) async fn close(&self) {
        self.opened.runner.close().await;
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
        let bare = self.opened.bare.map(|bare| TargetInfo {
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

/// One after the other; the first ones warm up.
async fn round_trips(probe: &dyn Probe) -> Latencies {
    let mut times = Latencies::default();
    for number in 0..WARM_UP + ROUND_TRIPS {
        let began = clock::now();
        if probe.ping().await.is_err() {
            break;
        }
        if number >= WARM_UP {
            times.record_ns(clock::now() - began);
        }
    }
    times
}

const WARM_UP: u32 = 20;
const ROUND_TRIPS: u32 = 200;
const ROUND_TRIPS_WITHIN: Duration = Duration::from_secs(10);
