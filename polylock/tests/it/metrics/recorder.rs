//! The names, units, descriptions, classes and times that the recorder gets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{SharedString, Unit};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use polylock::layers::Observer;
use polylock::observe::{Metric, MetricKind, MetricsObserver};
use polylock::prelude::*;

use super::observer;

async fn connect(observer: &Arc<MetricsObserver>) -> Arc<dyn DistributedLock> {
    let observer = Arc::clone(observer) as Arc<dyn Observer>;
    let registry = polylock::compiled_in().with_observer(observer);
    registry.connect("memory:").await.expect("memory is there")
}

fn debugging() -> (MetricsObserver, Snapshotter) {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let observer = MetricsObserver::new().with_recorder(Arc::new(recorder));
    (observer, snapshotter)
}

#[tokio::test]
async fn metrics_have_names_units_and_descriptions() {
    let (observer, snapshotter) = debugging();
    let observer = Arc::new(observer.with_prefix("shop"));
    let locks = connect(&observer).await;
    let guard = locks.request("k").class("orders").acquire().await.unwrap();
    guard.release().await.unwrap();
    observer.count_stale_write("orders");
    let seen: Vec<_> = snapshotter.snapshot().into_vec();
    for metric in [
        Metric::AcquireDuration,
        Metric::FencingRejections,
        Metric::Held,
        Metric::HoldDuration,
        Metric::ReleaseDuration,
        Metric::Waiters,
    ] {
        let name = metric.prometheus_name("shop");
        let (key, unit, description, value) = seen
            .iter()
            .find(|(key, ..)| key.key().name() == name)
            .unwrap_or_else(|| panic!("{name} is missing"));
        let labels: Vec<_> = key.key().labels().map(|label| label.key()).collect();
        assert_eq!(labels, metric.labels(), "{name}");
        let is_duration = metric.kind() == MetricKind::Histogram;
        let expected = if is_duration {
            Unit::Seconds
        } else {
            Unit::Count
        };
        assert_eq!(*unit, Some(expected), "{name}");
        let expected = SharedString::from(metric.description());
        assert_eq!(*description, Some(expected), "{name}");
        assert_eq!(matches!(value, DebugValue::Histogram(_)), is_duration);
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
}

#[tokio::test]
async fn a_try_that_fails_is_busy_and_a_wait_is_a_timeout() {
    let (observer, page) = observer();
    let locks = connect(&Arc::new(observer)).await;
    let _guard = locks.lock("k").await.unwrap();
    assert!(locks.try_lock("k").await.unwrap().is_none());
    let (began, wait) = (Instant::now(), Duration::from_millis(5));
    assert!(locks.lock_within("k", wait).await.is_err());
    let took = began.elapsed().as_secs_f64();
    let ended = |mode: &str, outcome: &str| {
        let name = "polylock_acquire_duration_seconds_count";
        let labels = format!(r#"class="none",mode="{mode}",outcome="{outcome}""#);
        page.value(&format!(r#"{name}{{backend="memory",{labels}}}"#))
    };
    assert_eq!(ended("wait", "acquired"), Some(1.0));
    assert_eq!(ended("try", "busy"), Some(1.0));
    assert_eq!(ended("wait", "timeout"), Some(1.0));
    let waited = page.sum("polylock_acquire_duration_seconds_sum", "timeout");
    assert!((0.005..took).contains(&waited), "{waited} s of {took} s");
}

#[tokio::test]
async fn durations_are_histograms_where_the_buckets_are_set() {
    let (observer, page) = observer();
    let locks = connect(&Arc::new(observer)).await;
    locks.lock("k").await.unwrap().release().await.unwrap();
    let text = page.text();
    assert!(
        text.contains("# TYPE polylock_hold_duration_seconds histogram"),
        "{text}"
    );
    for bound in ["0.0005", "60", "+Inf"] {
        let line = format!(r#"outcome="acquired",le="{bound}"}}"#);
        assert!(text.contains(&line), "{bound} is missing in {text}");
    }
}

#[tokio::test]
async fn declared_classes_are_there_before_anything_happens_to_them() {
    let (observer, page) = observer();
    let observer = Arc::new(observer.with_classes(["orders", "reports"]));
    assert_eq!(page.lines(), []);
    let locks = connect(&observer).await;
    observer.show(locks.capabilities().backend);
    for class in ["orders", "reports"] {
        let lost =
            format!(r#"polylock_lost_total{{backend="memory",class="{class}",reason="broken"}}"#);
        assert_eq!(page.value(&lost), Some(0.0));
        let held = format!(r#"polylock_held{{backend="memory",class="{class}"}}"#);
        assert_eq!(page.value(&held), Some(0.0));
    }
    let _guard = locks.request("k").class("orders").acquire().await.unwrap();
    let held = r#"polylock_held{backend="memory",class="orders"}"#;
    assert_eq!(page.value(held), Some(1.0));
}

#[tokio::test]
async fn keys_are_no_labels_and_classes_without_end_are_one() {
    let (observer, page) = observer();
    let locks = connect(&Arc::new(observer)).await;
    for n in 0..1_100 {
        let request = locks.request("secret-key").class(&format!("job-{n}"));
        request.acquire().await.unwrap().release().await.unwrap();
    }
    let text = page.text();
    assert!(!text.contains("secret-key"));
    let classes = page
        .lines()
        .iter()
        .filter(|(series, _)| series.starts_with("polylock_held{"))
        .count();
    assert_eq!(classes, 1_001);
    let others =
        r#"polylock_hold_duration_seconds_count{backend="memory",class="other",end="released"}"#;
    assert_eq!(page.value(others), Some(100.0));
}
