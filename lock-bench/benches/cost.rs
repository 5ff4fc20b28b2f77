//! What the harness adds to what it measures, and how far two runs are apart.
//!
//! `cargo bench -p lock-bench --features sqlite --bench cost [cost|twice]...`

#![expect(clippy::print_stdout, reason = "a program")]

use std::time::{Duration, Instant};

use lock_bench::plan::{Plan, Workload};
use lock_bench::report::{Report, Series, Spread, name_of};
use lock_bench::subject::Failure;
use lock_bench::target::Openers;
use lock_bench::{Progress, run};
use polylock::{DistributedLockExt as _, Wait};
use rustix::time::{ClockId, clock_gettime};

/// Odd, so that there is one in the middle; short, so that some are not disturbed.
const ROUNDS: usize = 51;
const FOR: Duration = Duration::from_millis(150);

struct Silent;

impl Progress for Silent {
    fn step(&self, _done: u32, _of: u32, _what: &str) {}
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let wanted: Vec<_> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    if is_wanted("cost") {
        cost().await?;
    }
    if is_wanted("twice") {
        twice().await?;
    }
    Ok(())
}

/// Nanoseconds of an acquisition and its release: by the clock, and of a processor.
#[derive(Clone, Copy)]
struct Pair {
    clock: f64,
    processor: f64,
}

/// The memory backend, one contender: under the harness, and in a loop of nothing else, in turn.
async fn cost() -> Result<(), Failure> {
    let (mut measured, mut bare) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (harness, alone) = (by_harness().await?, by_hand().await?);
        // The first round warms up.
        if round > 0 {
            measured.push(harness);
            bare.push(alone);
        }
    }
    println!("acquire and release on the memory backend, medians of {ROUNDS} rounds");
    for (what, of) in [
        ("by the clock", (|pair| pair.clock) as fn(&Pair) -> f64),
        ("of a processor", |pair| pair.processor),
    ] {
        let bare = median(bare.iter().map(of));
        let measured = median(measured.iter().map(of));
        println!(
            "  {what:<15} bare loop {bare:>8.1} ns, under the harness {measured:>8.1} ns, ratio {:.3}",
            measured / bare
        );
    }
    Ok(())
}

async fn by_harness() -> Result<Pair, Failure> {
    let mut plan = Plan::default();
    plan.workloads = vec![Workload::Uncontended];
    plan.contenders = vec![1];
    plan.duration = FOR;
    plan.warm_up = Duration::from_millis(20);
    plan.repeats = 1;
    let target = Openers::compiled_in().target("memory", "memory:")?;
    let report = run(&plan, vec![target], &Silent).await?;
    let sample = &report.series[0].samples[0];
    let clock = sample.duration_ns as f64 / sample.acquisitions as f64;
    Ok(Pair {
        clock,
        processor: clock * sample.client_processors,
    })
}

async fn by_hand() -> Result<Pair, Failure> {
    let locks = polylock::connect("memory:").await?;
    let looped = tokio::spawn(async move {
        let (began, before) = (Instant::now(), processor_time());
        let mut count = 0_u64;
        while began.elapsed() < FOR {
            // Often enough that the clock costs nothing.
            for _ in 0..64 {
                // The same request as the harness makes, for a key as long as its own.
                let request = locks.request("lock-bench/0123456789abcdef/0/0");
                let request = request.ttl(Duration::from_secs(30));
                let guard = request.wait(Wait::AtMost(FOR)).acquire().await?;
                guard.release().await?;
            }
            count += 64;
        }
        let of_each = |time: Duration| time.as_nanos() as f64 / count as f64;
        Ok::<_, polylock::Error>(Pair {
            clock: of_each(began.elapsed()),
            processor: of_each(processor_time() - before),
        })
    });
    let looped = looped.await.map_err(|e| Failure::of("panic", &e))?;
    Ok(looped?)
}

/// Of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let nanos = time.tv_nsec.unsigned_abs();
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_nanos(nanos)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<_> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Two runs of one plan: whether each median of one is within the spread of the other.
async fn twice() -> Result<(), Failure> {
    let dir = std::env::temp_dir().join(format!("lock-bench-cost-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|e| Failure::of("directory", &e))?;
    let url = format!("sqlite:{}", dir.join("locks.db").display());
    let mut plan = Plan::default();
    plan.contenders = vec![1, 4];
    plan.duration = Duration::from_millis(500);
    plan.warm_up = Duration::from_millis(100);
    plan.repeats = 5;
    let mut reports: Vec<Report> = Vec::new();
    for _ in 0..2 {
        let openers = Openers::compiled_in();
        let memory = openers.target("memory", "memory:")?;
        let sqlite = openers.target("sqlite", &*url)?;
        reports.push(run(&plan, vec![memory, sqlite], &Silent).await?);
    }
    println!("acquisitions per second in two runs: median (least to greatest of 5)");
    let mut alike = 0;
    let all = reports[0].series.len();
    for (first, second) in reports[0].series.iter().zip(&reports[1].series) {
        let (Some(one), Some(two)) = (rates(first), rates(second)) else {
            continue;
        };
        alike += usize::from(one.is_like(&two));
        println!(
            "  {:<8} {:<12} {:>2} contenders  {}  {}  {}",
            first.target,
            name_of(first.workload),
            first.parameters.contenders,
            shown(one),
            shown(two),
            if one.is_like(&two) { "alike" } else { "apart" },
        );
    }
    println!("  {alike} of {all} medians are within the spread of the other run");
    std::fs::remove_dir_all(&dir).map_err(|e| Failure::of("directory", &e))
}

fn rates(series: &Series) -> Option<Spread> {
    let samples = series.samples.iter();
    Spread::of(samples.map(|s| s.acquisitions as f64 * 1e9 / s.duration_ns as f64))
}

fn shown(spread: Spread) -> String {
    let text = format!(
        "{:.0} ({:.0} to {:.0})",
        spread.median, spread.min, spread.max
    );
    format!("{text:<30}")
}
