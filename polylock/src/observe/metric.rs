/// One entry for each metric, sorted by name: its name without the prefix, its unit, its labels and
/// one sentence, which is its documentation as well.
macro_rules! define_metrics {
    (
        $($metric:ident: $kind:ident $name:literal in $unit:literal, $labels:expr,
            $description:literal;)*
    ) => {
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
            $(#[doc = $description] $metric,)*
        }

        impl Metric {
            /// All of them, sorted by name.
            pub const ALL: [Self; 14] = [$(Self::$metric),*];

            fn facts(self) -> MetricInfo {
                match self {
                    $(Self::$metric => MetricInfo {
                        name: $name,
                        kind: MetricKind::$kind,
                        unit: $unit,
                        labels: $labels,
                        description: $description,
                    },)*
                }
            }
        }
    };
}

define_metrics! {
    AcquireDuration: Histogram "acquire.duration" in "s", &["backend", "class", "mode", "outcome"],
        "Time from a request for a lock to its answer.";
    BackendErrors: Counter "backend.errors" in "{error}", &["backend", "kind"],
        "Requests and renewals that the lock service failed.";
    Elections: Counter "elections" in "{election}", &["class"],
        "Elections that this process has won.";
    FencingRejections: Counter "fencing.rejections" in "{write}", &["class"],
        "Writes that were refused because of a stale token.";
    Held: Gauge "held" in "{lock}", &["backend", "class"],
        "Locks that this process holds.";
    HoldDuration: Histogram "hold.duration" in "s", &["backend", "class", "end"],
        "Time for which a lock was held, its release included.";
    HttpRejections: Counter "http.rejections" in "{request}", &["class", "status", "reason"],
        "Requests that were rejected, before their handler ran or because its lock was lost.";
    Leader: Gauge "leader" in "{leader}", &["class"],
        "1 while this process leads, else 0.";
    Lost: Counter "lost" in "{lock}", &["backend", "class", "reason"],
        "Locks that were lost while they were held.";
    Once: Counter "once" in "{attempt}", &["class", "outcome"],
        "Attempts to run a job once.";
    ReleaseDuration: Histogram "release.duration" in "s", &["backend", "outcome"],
        "Time that it took to release a lock.";
    RenewalSlack: Histogram "renewal.slack" in "s", &["backend"],
        "Validity that a lease had left when it was renewed.";
    Renewals: Counter "renewals" in "{renewal}", &["backend", "outcome"],
        "Renewals of leases.";
    Waiters: Gauge "waiters" in "{waiter}", &["backend", "class"],
        "Requests for locks that are under way.";
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
struct MetricInfo {
    /// The name without its prefix.
    name: &'static str,
    kind: MetricKind,
    unit: &'static str,
    labels: &'static [&'static str],
    description: &'static str,
}

impl Metric {
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
}
