//! What the observer of OpenTelemetry exports.

use std::sync::Arc;

use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use polylock::observe::{BUCKETS, Metric, MetricKind, OtelObserver};
use polylock::prelude::*;

/// A metric that was exported: name, unit, and each of its points as labels and a number.
struct Exported {
    name: String,
    unit: String,
    points: Vec<(String, f64)>,
    bounds: Vec<f64>,
}

fn provider() -> (SdkMeterProvider, InMemoryMetricExporter) {
    let exporter = InMemoryMetricExporter::default();
    let reader = PeriodicReader::builder(exporter.clone()).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    (provider, exporter)
}

fn exported(provider: &SdkMeterProvider, exporter: &InMemoryMetricExporter) -> Vec<Exported> {
    provider.force_flush().expect("exports to memory");
    let all = exporter.get_finished_metrics().expect("exported");
    let last = all.last().expect("was flushed");
    let scopes = last.scope_metrics();
    scopes.flat_map(|scope| scope.metrics()).map(read).collect()
}

fn read(metric: &opentelemetry_sdk::metrics::data::Metric) -> Exported {
    let mut bounds = Vec::new();
    let points = match metric.data() {
        AggregatedMetrics::F64(MetricData::Histogram(histogram)) => histogram
            .data_points()
            .map(|point| {
                bounds = point.bounds().collect();
                (labels(point.attributes()), point.sum())
            })
            .collect(),
        AggregatedMetrics::I64(MetricData::Sum(sum)) => sum
            .data_points()
            .map(|point| (labels(point.attributes()), number(&point.value())))
            .collect(),
        AggregatedMetrics::U64(MetricData::Sum(sum)) => sum
            .data_points()
            .map(|point| (labels(point.attributes()), number(&point.value())))
            .collect(),
        other => panic!("{other:?}"),
    };
    Exported {
        name: metric.name().to_owned(),
        unit: metric.unit().to_owned(),
        points,
        bounds,
    }
}

fn number(value: &impl ToString) -> f64 {
    value.to_string().parse().expect("a number")
}

fn labels<'a>(attributes: impl Iterator<Item = &'a opentelemetry::KeyValue>) -> String {
    let mut labels: Vec<_> = attributes
        .map(|label| format!("{}={}", label.key, label.value))
        .collect();
    labels.sort();
    labels.join(",")
}

#[tokio::test]
async fn names_units_boundaries_and_labels_are_those_of_the_table() {
    let (provider, exporter) = provider();
    let observer = Arc::new(OtelObserver::new(provider.meter("polylock")));
    let registry = polylock::compiled_in().with_observer(Arc::clone(&observer) as _);
    let locks = registry.connect("memory:").await.unwrap();
    let guard = locks.request("k").class("orders").acquire().await.unwrap();
    let _held = locks.request("l").class("orders").acquire().await.unwrap();
    guard.release().await.unwrap();
    observer.count_stale_write("orders");

    let all = exported(&provider, &exporter);
    let names: Vec<_> = all.iter().map(|metric| metric.name.as_str()).collect();
    for metric in &all {
        let known = Metric::ALL
            .into_iter()
            .find(|known| known.otel_name("polylock") == metric.name);
        let known = known.unwrap_or_else(|| panic!("{} is unknown", metric.name));
        assert_eq!(metric.unit, known.unit(), "{}", metric.name);
        let is_duration = known.kind() == MetricKind::Histogram;
        let bounds: &[f64] = if is_duration { &BUCKETS } else { &[] };
        assert_eq!(metric.bounds, bounds, "{}", metric.name);
    }
    let point = |name: &str| {
        let metric = all.iter().find(|metric| metric.name == name);
        let metric = metric.unwrap_or_else(|| panic!("{name} is missing in {names:?}"));
        assert_eq!(metric.points.len(), 1, "{name}: {:?}", metric.points);
        metric.points[0].clone()
    };
    let here = |labels: &str| format!("backend=memory,class=orders{labels}");
    assert_eq!(point("polylock.held"), (here(""), 1.0));
    assert_eq!(point("polylock.waiters"), (here(""), 0.0));
    assert_eq!(
        point("polylock.fencing.rejections"),
        ("class=orders".to_owned(), 1.0)
    );
    let (labels, _) = point("polylock.acquire.duration");
    assert_eq!(labels, here(",mode=wait,outcome=acquired"));
    let (labels, held) = point("polylock.hold.duration");
    assert_eq!(labels, "backend=memory,class=orders,end=released");
    assert!((0.0..5.0).contains(&held), "{held} s");
    let (labels, _) = point("polylock.release.duration");
    assert_eq!(labels, "backend=memory,outcome=released");
    assert_eq!(all.len(), 6, "{names:?}");
}

#[tokio::test]
async fn declared_classes_count_from_zero_and_the_prefix_is_free() {
    let (provider, exporter) = provider();
    let observer = OtelObserver::new(provider.meter("polylock"))
        .with_prefix("shop")
        .with_classes(["orders"]);
    observer.show("memory");
    let all = exported(&provider, &exporter);
    let lost = all
        .iter()
        .find(|metric| metric.name == "shop.lost")
        .expect("shown");
    let broken = "backend=memory,class=orders,reason=broken".to_owned();
    assert!(lost.points.contains(&(broken, 0.0)), "{:?}", lost.points);
    assert!(all.iter().all(|metric| metric.name.starts_with("shop.")));
}
