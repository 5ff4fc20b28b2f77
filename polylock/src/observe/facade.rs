//! The `metrics` facade.

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, Unit};

use super::measure::{Measurement, Value};
use super::metric::{Metric, MetricKind};
use super::series::{MetricSeries, Sink, observer};

/// Records lock events with the [`metrics`] facade, for Prometheus and others.
///
/// The names are those of [`Metric::prometheus_name`]. Install the recorder of the program first:
/// without it, records are dropped, and later ones too, because handles are kept. The recorder of
/// Prometheus makes summaries of durations unless [`BUCKETS`](super::BUCKETS) are set.
///
/// There are at most 1,000 classes; the ones after these are counted as `other`.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
/// use polylock::observe::{BUCKETS, MetricsObserver};
/// use polylock::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let recorder = PrometheusBuilder::new()
///     .set_buckets_for_metric(Matcher::Prefix("polylock_".into()), &BUCKETS)?
///     .build_recorder();
/// let page = recorder.handle(); // or `install()`, which serves it, and no `with_recorder`
/// let observer = MetricsObserver::new()
///     .with_recorder(Arc::new(recorder))
///     .with_classes(["orders"]);
/// let locks = polylock::compiled_in()
///     .with_observer(Arc::new(observer))
///     .connect("memory:")
///     .await?;
///
/// let _guard = locks.request("orders/42").class("orders").acquire().await?;
/// assert!(page.render().contains(r#"polylock_held{backend="memory",class="orders"} 1"#));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct MetricsObserver {
    series: MetricSeries<FacadeTarget>,
}

impl MetricsObserver {
    /// Records with the global recorder, or the one of the thread that records.
    #[must_use]
    pub fn new() -> Self {
        let series = MetricSeries::new(FacadeTarget {
            prefix: Metric::DEFAULT_PREFIX.to_owned(),
            recorder: None,
        });
        Self { series }
    }

    /// Records with `recorder` on every thread.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Arc<dyn Recorder + Send + Sync>) -> Self {
        self.series.sink.recorder = Some(recorder);
        self
    }
}

impl Default for MetricsObserver {
    fn default() -> Self {
        Self::new()
    }
}

observer!(MetricsObserver);

/// Where handles come from.
struct FacadeTarget {
    prefix: String,
    recorder: Option<Arc<dyn Recorder + Send + Sync>>,
}

enum MetricHandle {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

impl Sink for FacadeTarget {
    type Handle = MetricHandle;

    fn open(&self, measurement: &Measurement<'_>) -> MetricHandle {
        let open = |recorder: &dyn Recorder| register(recorder, &self.prefix, measurement);
        match &self.recorder {
            Some(recorder) => open(recorder),
            None => metrics::with_recorder(open),
        }
    }

    fn record(&self, _: Metric, handle: &MetricHandle, value: Value) {
        match (handle, value) {
            (MetricHandle::Counter(counter), Value::Count(count)) => counter.increment(count),
            // A gauge counts locks, of which there are fewer than a float counts exactly.
            (MetricHandle::Gauge(gauge), Value::Change(change)) => gauge.increment(change as f64),
            (MetricHandle::Histogram(histogram), Value::Seconds(seconds)) => {
                histogram.record(seconds);
            }
            (MetricHandle::Counter(_) | MetricHandle::Gauge(_) | MetricHandle::Histogram(_), _) => {
                debug_assert!(false, "BUG: {value:?} is no value of this metric");
            }
        }
    }
}

fn register(recorder: &dyn Recorder, prefix: &str, measurement: &Measurement<'_>) -> MetricHandle {
    let metric = measurement.metric;
    let name = KeyName::from(metric.prometheus_name(prefix));
    let labels: Vec<_> = measurement
        .labels()
        .map(|(name, value)| Label::new(name, value.to_owned()))
        .collect();
    let (key, about) = (Key::from_parts(name.clone(), labels), metric.description());
    match metric.kind() {
        MetricKind::Counter => {
            recorder.describe_counter(name, Some(Unit::Count), about.into());
            MetricHandle::Counter(recorder.register_counter(&key, &METADATA))
        }
        MetricKind::Gauge => {
            recorder.describe_gauge(name, Some(Unit::Count), about.into());
            MetricHandle::Gauge(recorder.register_gauge(&key, &METADATA))
        }
        MetricKind::Histogram => {
            recorder.describe_histogram(name, Some(Unit::Seconds), about.into());
            MetricHandle::Histogram(recorder.register_histogram(&key, &METADATA))
        }
    }
}

static METADATA: Metadata<'static> = Metadata::new("polylock", Level::INFO, Some(module_path!()));
