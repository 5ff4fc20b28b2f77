//! OpenTelemetry.

use std::sync::{Arc, OnceLock};

use lock_core::layers::{Event, Observer};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

use super::BUCKETS;
use super::measure::{Measurement, Value};
use super::metric::{Metric, MetricKind};
use super::series::{Series, Sink};

/// Records what happens to locks with a meter of OpenTelemetry.
///
/// The names are those of [`Metric::otel_name`]. Durations are in seconds, and their boundaries are
/// [`BUCKETS`]: the ones that the SDK has by default are for milliseconds.
///
/// There are at most 1,000 classes; the ones after these are counted as `other`.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use opentelemetry::metrics::MeterProvider as _;
/// use opentelemetry_sdk::metrics::SdkMeterProvider;
/// use polylock::observe::OtelObserver;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock::Result<()> {
/// let provider = SdkMeterProvider::builder().build(); // with a reader that exports by OTLP
/// let observer = OtelObserver::new(provider.meter("polylock"));
/// let locks = polylock::compiled_in()
///     .with_observer(Arc::new(observer))
///     .connect("memory:")
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct OtelObserver {
    target: Target,
    series: Series<Vec<KeyValue>>,
}

impl OtelObserver {
    /// Records with `meter`.
    #[must_use]
    pub fn new(meter: Meter) -> Self {
        Self {
            target: Target {
                prefix: Metric::DEFAULT_PREFIX.to_owned(),
                meter,
                instruments: OnceLock::new(),
            },
            series: Series::new(),
        }
    }

    /// Sets what is before the names. Default: `polylock`.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.target.prefix = prefix.into();
        self
    }

    /// Declares classes, whose counters are there at zero from the first event of their backend on,
    /// or from [`show`](Self::show).
    #[must_use]
    pub fn with_classes<C: Into<Arc<str>>>(mut self, classes: impl IntoIterator<Item = C>) -> Self {
        let series = &mut self.series;
        classes
            .into_iter()
            .for_each(|class| series.declare(class.into()));
        self
    }

    /// Shows the declared classes at zero, for the backend that
    /// [`Capabilities`](crate::Capabilities) names.
    pub fn show(&self, backend: &'static str) {
        self.series.show(backend, &self.target);
    }

    /// Counts a write that was refused because of its token, by
    /// [`StaleToken`](crate::fencing::StaleToken) for example. The library does not see these.
    pub fn count_stale_write(&self, class: &str) {
        self.record(&Measurement::stale_write(class));
    }

    pub(super) fn record(&self, measurement: &Measurement<'_>) {
        self.series.record(measurement, &self.target);
    }
}

impl Observer for OtelObserver {
    fn event(&self, event: &Event<'_>) {
        self.series.event(event, &self.target);
    }
}

#[derive(Debug)]
struct Target {
    prefix: String,
    meter: Meter,
    /// In the order of [`Metric::ALL`]; made when the prefix is certain.
    instruments: OnceLock<Vec<Instrument>>,
}

#[derive(Debug)]
enum Instrument {
    Change(UpDownCounter<i64>),
    Count(Counter<u64>),
    Seconds(Histogram<f64>),
}

impl Target {
    fn instrument(&self, metric: Metric) -> &Instrument {
        let all = self
            .instruments
            .get_or_init(|| Metric::ALL.map(|metric| self.make(metric)).into());
        &all[metric as usize]
    }

    fn make(&self, metric: Metric) -> Instrument {
        let (name, unit) = (metric.otel_name(&self.prefix), metric.unit());
        let about = metric.description();
        match metric.kind() {
            MetricKind::Counter => {
                let counter = self.meter.u64_counter(name).with_unit(unit);
                Instrument::Count(counter.with_description(about).build())
            }
            MetricKind::Gauge => {
                let gauge = self.meter.i64_up_down_counter(name).with_unit(unit);
                Instrument::Change(gauge.with_description(about).build())
            }
            MetricKind::Histogram => {
                let histogram = self.meter.f64_histogram(name).with_unit(unit);
                let histogram = histogram.with_boundaries(BUCKETS.to_vec());
                Instrument::Seconds(histogram.with_description(about).build())
            }
        }
    }
}

impl Sink for Target {
    type Handle = Vec<KeyValue>;

    fn open(&self, measurement: &Measurement<'_>) -> Vec<KeyValue> {
        let labels = measurement.labels();
        labels
            .map(|(name, value)| KeyValue::new(name, value.to_owned()))
            .collect()
    }

    fn record(&self, metric: Metric, attributes: &Vec<KeyValue>, value: Value) {
        match (self.instrument(metric), value) {
            (Instrument::Change(gauge), Value::Change(change)) => gauge.add(change, attributes),
            (Instrument::Count(counter), Value::Count(count)) => counter.add(count, attributes),
            (Instrument::Seconds(histogram), Value::Seconds(seconds)) => {
                histogram.record(seconds, attributes);
            }
            (Instrument::Change(_) | Instrument::Count(_) | Instrument::Seconds(_), _) => {
                debug_assert!(false, "BUG: {value:?} is no value of this metric");
            }
        }
    }
}
