//! Histograms as files for the tools of HdrHistogram: `.hgrm` for its plotter, `.hlog` for its log
//! processors.

use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::{Latencies, Report, Sample, Series};
use crate::plan::name_of;

/// A file of histograms of one series.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct HdrFile {
    /// Its name, which stands for the target, the workload and the parameters.
    pub name: String,
    /// What belongs into it.
    pub text: String,
}

impl Report {
    /// The latencies of every series: a distribution of all repeats for each kind of them
    /// (`.hgrm`, in milliseconds), and a log with one interval for each repeat (`.hlog`).
    #[must_use]
    pub fn hdr_files(&self) -> Vec<HdrFile> {
        let mut files = Vec::new();
        for (at, series) in self.series.iter().enumerate() {
            let name = format!("{:03}-{}", at + 1, slug(series));
            for (kind, of) in KINDS {
                let all = series.merged(of);
                if !all.is_empty() {
                    let name = format!("{name}-{kind}.hgrm");
                    let text = distribution(&all);
                    files.push(HdrFile { name, text });
                }
            }
            let (name, text) = (format!("{name}.hlog"), log(series));
            files.push(HdrFile { name, text });
        }
        files
    }
}

type LatencyKind = (&'static str, fn(&Sample) -> &Latencies);

const KINDS: [LatencyKind; 3] = [
    ("acquire", |sample| &sample.acquire),
    ("hand-off", |sample| &sample.hand_off),
    ("release", |sample| &sample.release),
];

/// A name of ASCII letters and digits alone, since that of a target may be anything.
fn slug(series: &Series) -> String {
    let parameters = &series.parameters;
    let target: String = series.target.chars().take(40).collect();
    let target = target.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let hold = match parameters.hold_ns {
        0 => String::new(),
        nanos => format!("-hold{}us", nanos / 1000),
    };
    let workload = name_of(series.workload);
    format!("{workload}-{target}-{}{hold}", parameters.contenders)
}

/// The format of `outputPercentileDistribution`.
fn distribution(all: &Latencies) -> String {
    let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    let histogram = all.histogram();
    for step in histogram.iter_quantiles(5) {
        let value = milliseconds(step.value_iterated_to() as f64);
        let share = step.quantile();
        let below = histogram.count_between(0, step.value_iterated_to());
        text += &format!("{value:12.3} {share:14.12} {below:10}");
        if share < 1.0 {
            text += &format!(" {:14.2}", 1.0 / (1.0 - share));
        }
        text.push('\n');
    }
    let [mean, deviation, max] =
        [histogram.mean(), histogram.stdev(), histogram.max() as f64].map(milliseconds);
    let (total, buckets) = (histogram.len(), histogram.buckets());
    let count = histogram.distinct_values();
    text + &format!(
        "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]\n\
         #[Max     = {max:12.3}, Total count    = {total:12}]\n\
         #[Buckets = {buckets:12}, SubBuckets     = {count:12}]\n"
    )
}

/// One interval for each repeat and kind, one after the other from the beginning of 1970: the
/// report does not say when a repeat began.
fn log(series: &Series) -> String {
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .with_base_time(UNIX_EPOCH)
        .with_max_value_divisor(1e6);
    let mut writer = builder
        .begin_log_with(&mut bytes, &mut serializer)
        .expect(ADDED);
    let mut start = Duration::ZERO;
    for sample in &series.samples {
        let length = Duration::from_nanos(sample.duration_ns);
        for (kind, of) in KINDS {
            let tag = Tag::new(kind);
            let histogram = of(sample).histogram();
            writer
                .write_histogram(histogram, start, length, tag)
                .expect(ADDED);
        }
        start += length;
    }
    drop(writer);
    String::from_utf8(bytes).expect("BUG: a log is ASCII")
}

fn milliseconds(nanos: f64) -> f64 {
    nanos / 1e6
}

const ADDED: &str = "BUG: text in memory can be added to";
