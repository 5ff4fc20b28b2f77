/// What is measured: names, units and labels.
///
/// # Examples
///
/// ```
/// use polylock::observe::Metric;
///
/// let slack = Metric::RenewalSlack;
/// assert_eq!(slack.prometheus_name("polylock"), "polylock_renewal_slack_seconds");
/// assert_eq!(slack.otel_name("polylock"), "polylock.renewal.slack");
/// assert_eq!((slack.unit(), slack.labels()), ("s", ["backend"].as_slice()));
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Metric {
    /// Time from a request to its answer, or until it was dropped.
    AcquireDuration,
    /// Requests and renewals that the lock service failed.
    BackendErrors,
    /// Elections that this process has won.
    Elections,
    /// Writes that were refused because of a stale token.
    FencingRejections,
    /// Locks that this process holds.
    Held,
    /// Time for which a lock was held, its release included.
    HoldDuration,
    /// Requests of HTTP that were answered without their handler, because of their lock.
    HttpRejections,
    /// Whether this process leads.
    Leader,
    /// Locks that were lost while they were held.
    Lost,
    /// Attempts to run a job once.
    Once,
    /// Time that it took to give a lock back.
    ReleaseDuration,
    /// Validity that a lease had left when it was renewed.
    RenewalSlack,
    /// Renewals.
    Renewals,
    /// Requests that are under way.
    Waiters,
}

/// How a metric is aggregated.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Grows and shrinks: a gauge for Prometheus, an up-down counter for OpenTelemetry.
    Gauge,
    /// A distribution, in seconds.
    Histogram,
}

/// All that is said about a metric.
struct Facts {
    /// The name without its prefix.
    name: &'static str,
    kind: MetricKind,
    unit: &'static str,
    labels: &'static [&'static str],
    description: &'static str,
}

impl Metric {
    /// All of them, sorted by name.
    pub const ALL: [Self; 14] = [
        Self::AcquireDuration,
        Self::BackendErrors,
        Self::Elections,
        Self::FencingRejections,
        Self::Held,
        Self::HoldDuration,
        Self::HttpRejections,
        Self::Leader,
        Self::Lost,
        Self::Once,
        Self::ReleaseDuration,
        Self::RenewalSlack,
        Self::Renewals,
        Self::Waiters,
    ];

    /// What is before the names unless set otherwise.
    pub const DEFAULT_PREFIX: &'static str = "polylock";

    /// How it is aggregated.
    #[must_use]
    pub fn kind(self) -> MetricKind {
        self.facts().kind
    }

    /// The unit as UCUM has it, such as `"s"` or `"{lock}"`.
    #[must_use]
    pub fn unit(self) -> &'static str {
        self.facts().unit
    }

    /// The labels, in the order in which [`Measurement::labels`](super::Measurement::labels) gives
    /// their values.
    #[must_use]
    pub fn labels(self) -> &'static [&'static str] {
        self.facts().labels
    }

    /// One sentence.
    #[must_use]
    pub fn description(self) -> &'static str {
        self.facts().description
    }

    /// The name for OpenTelemetry, such as `polylock.acquire.duration`.
    #[must_use]
    pub fn otel_name(self, prefix: &str) -> String {
        format!("{prefix}.{}", self.facts().name)
    }

    /// The name for Prometheus, such as `polylock_acquire_duration_seconds`.
    #[must_use]
    pub fn prometheus_name(self, prefix: &str) -> String {
        let name = self.facts().name.replace('.', "_");
        let suffix = match self.kind() {
            MetricKind::Counter => "_total",
            MetricKind::Gauge => "",
            MetricKind::Histogram => "_seconds",
        };
        format!("{prefix}_{name}{suffix}")
    }

    fn facts(self) -> Facts {
        match self {
            Self::AcquireDuration => Facts {
                name: "acquire.duration",
                kind: MetricKind::Histogram,
                unit: "s",
                labels: &["backend", "class", "mode", "outcome"],
                description: "Time from a request for a lock to its answer.",
            },
            Self::BackendErrors => Facts {
                name: "backend.errors",
                kind: MetricKind::Counter,
                unit: "{error}",
                labels: &["backend", "kind"],
                description: "Requests and renewals that the lock service failed.",
            },
            Self::Elections => Facts {
                name: "elections",
                kind: MetricKind::Counter,
                unit: "{election}",
                labels: &["class"],
                description: "Elections that this process has won.",
            },
            Self::FencingRejections => Facts {
                name: "fencing.rejections",
                kind: MetricKind::Counter,
                unit: "{write}",
                labels: &["class"],
                description: "Writes that were refused because of a stale token.",
            },
            Self::Held => Facts {
                name: "held",
                kind: MetricKind::Gauge,
                unit: "{lock}",
                labels: &["backend", "class"],
                description: "Locks that this process holds.",
            },
            Self::HoldDuration => Facts {
                name: "hold.duration",
                kind: MetricKind::Histogram,
                unit: "s",
                labels: &["backend", "class", "end"],
                description: "Time for which a lock was held, its release included.",
            },
            Self::HttpRejections => Facts {
                name: "http.rejections",
                kind: MetricKind::Counter,
                unit: "{request}",
                labels: &["class", "status", "reason"],
                description: "Requests that were answered without their handler.",
            },
            Self::Leader => Facts {
                name: "leader",
                kind: MetricKind::Gauge,
                unit: "{leader}",
                labels: &["class"],
                description: "1 while this process leads, else 0.",
            },
            Self::Lost => Facts {
                name: "lost",
                kind: MetricKind::Counter,
                unit: "{lock}",
                labels: &["backend", "class", "reason"],
                description: "Locks that were lost while they were held.",
            },
            Self::Once => Facts {
                name: "once",
                kind: MetricKind::Counter,
                unit: "{attempt}",
                labels: &["class", "outcome"],
                description: "Attempts to run a job once.",
            },
            Self::ReleaseDuration => Facts {
                name: "release.duration",
                kind: MetricKind::Histogram,
                unit: "s",
                labels: &["backend", "outcome"],
                description: "Time that it took to give a lock back.",
            },
            Self::RenewalSlack => Facts {
                name: "renewal.slack",
                kind: MetricKind::Histogram,
                unit: "s",
                labels: &["backend"],
                description: "Validity that a lease had left when it was renewed.",
            },
            Self::Renewals => Facts {
                name: "renewals",
                kind: MetricKind::Counter,
                unit: "{renewal}",
                labels: &["backend", "outcome"],
                description: "Renewals of leases.",
            },
            Self::Waiters => Facts {
                name: "waiters",
                kind: MetricKind::Gauge,
                unit: "{waiter}",
                labels: &["backend", "class"],
                description: "Requests for locks that are under way.",
            },
        }
    }
}
