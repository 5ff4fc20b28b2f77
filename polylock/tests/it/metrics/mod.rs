//! What the observer of the `metrics` facade records, on real stacks.

mod contrib;
mod coordination;
mod events;
mod gauges;
mod http;
mod recorder;
mod spans;

use std::sync::Arc;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use polylock::observe::{BUCKETS, MetricsObserver};

/// An observer with a recorder of its own, and the page that Prometheus reads from it.
pub(crate) struct Page(PrometheusHandle);

pub(crate) fn observer() -> (MetricsObserver, Page) {
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Prefix("polylock_".into()), &BUCKETS)
        .expect("there are buckets")
        .build_recorder();
    let page = Page(recorder.handle());
    let observer = MetricsObserver::new().with_recorder(Arc::new(recorder));
    (observer, page)
}

impl Page {
    pub(crate) fn text(&self) -> String {
        self.0.run_upkeep();
        self.0.render()
    }

    /// The value of one series, labels in the order of the page.
    pub(crate) fn value(&self, series: &str) -> Option<f64> {
        self.lines()
            .into_iter()
            .find_map(|(name, value)| (name == series).then_some(value))
    }

    /// The sum of all series of this name whose labels contain `with`.
    pub(crate) fn sum(&self, name: &str, with: &str) -> f64 {
        let start = format!("{name}{{");
        self.lines()
            .iter()
            .filter(|(series, _)| series.starts_with(&start) && series.contains(with))
            .map(|(_, value)| value)
            .sum()
    }

    pub(crate) fn lines(&self) -> Vec<(String, f64)> {
        let text = self.text();
        let samples = text.lines().filter_map(|line| line.rsplit_once(' '));
        samples
            .filter(|(series, _)| !series.starts_with('#'))
            .map(|(series, value)| (series.to_owned(), value.parse().expect("a number")))
            .collect()
    }
}
