//! OpenTelemetry.

use std::sync::OnceLock;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

use super::BUCKETS;
use super::measure::{Measurement, Value};
use super::metric::{Metric, MetricKind};
use super::series::{MetricSeries, Sink, observer};

/// Records lock events with a meter of OpenTelemetry.
///
/// The names are those of [`Metric::otel_name`]. Durations are in seconds, with the boundaries of
/// [`BUCKETS`], because the defaults of the SDK are for milliseconds.
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
    series: MetricSeries<OtelTarget>,
}

impl OtelObserver {
    /// Records with `meter`.
    #[must_use]
    pub fn new(meter: Meter) -> Self {
        let series = MetricSeries::new(OtelTarget {
            prefix: Metric::DEFAULT_PREFIX.to_owned(),
            meter,
            instruments: OnceLock::new(),
        });
        Self { series }
    }
}

observer!(OtelObserver);

struct OtelTarget {
    prefix: String,
    meter: Meter,
    /// In the order of [`Metric::ALL`]; made when the prefix is certain.
    instruments: OnceLock<Vec<Instrument>>,
}

enum Instrument {
    Change(UpDownCounter<i64>),
    Count(Counter<u64>),
    Seconds(Histogram<f64>),
}

impl OtelTarget {
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

impl Sink for OtelTarget {
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
