//! Jobs on instances whose clocks differ.

use std::sync::Mutex;

use polylock_core::engine::Engine;
use polylock_core::memory::Memory;

use super::*;

/// The time of the world, which stands still unless it is moved.
#[derive(Clone)]
struct World(Arc<Mutex<SystemTime>>);

impl World {
    fn new() -> Self {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_764_028_800);
        Self(Arc::new(Mutex::new(now)))
    }

    fn pass(&self, time: Duration) {
        *self.0.lock().unwrap() += time;
    }

    fn now(&self) -> SystemTime {
        *self.0.lock().unwrap()
    }

    /// An instance whose clock is early by so much.
    fn early(&self, once: &Once, by: Duration) -> Once {
        let (world, mut once) = (self.clone(), once.clone());
        once.clock = Arc::new(move || world.now() + by);
        once
    }
}

fn memory() -> Memory {
    Memory::with_engine(Engine::on_current_runtime("memory"))
}

fn every(store: &Memory, period: Duration) -> Once {
    Once::every(Arc::new(store.client()), "report", period).unwrap()
}

async fn outcome(once: &Once) -> &'static str {
    let run = once.run(async |_| Ok::<_, String>(())).await;
    run.unwrap().as_str()
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn one_tick_of_two_clocks_that_differ_is_one_run() {
    let (period, world) = (MINUTE * 10, World::new());
    // As much as is allowed for: a period less its tolerance.
    let difference = MINUTE * 9 - Duration::from_millis(1);
    for (first, second) in [(difference, Duration::ZERO), (Duration::ZERO, difference)] {
        let store = memory();
        let first = world.early(&every(&store, period), first);
        let second = world.early(&every(&store, period), second);
        for _ in 0..5 {
            assert_eq!(outcome(&first).await, "ran");
            assert_eq!(outcome(&second).await, "skipped");
            world.pass(period);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn clocks_that_differ_by_more_cost_a_run_of_each() {
    let (store, world) = (memory(), World::new());
    let early = world.early(&every(&store, MINUTE * 10), MINUTE * 9);
    let late = world.early(&every(&store, MINUTE * 10), Duration::ZERO);
    assert_eq!(outcome(&late).await, "ran");
    // A period is over by its clock.
    assert_eq!(outcome(&early).await, "ran");
    assert_eq!(outcome(&early).await, "skipped");

    // A run that was recorded for next year stops nobody.
    let wrong = world.early(&every(&store, MINUTE * 10), MINUTE * 60 * 24 * 365);
    assert_eq!(outcome(&wrong).await, "ran");
    assert_eq!(outcome(&late).await, "ran");
    assert_eq!(outcome(&late).await, "skipped");
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_fires_early_skips_no_period() {
    let (store, world) = (memory(), World::new());
    let once = world.early(&every(&store, MINUTE * 60), Duration::ZERO);
    assert_eq!(outcome(&once).await, "ran");
    world.pass(MINUTE * 59 - Duration::from_millis(1));
    assert_eq!(outcome(&once).await, "skipped");
    world.pass(Duration::from_millis(1));
    assert_eq!(outcome(&once).await, "ran");
    // A run counts from its begin.
    let slow = once.run(async |_| {
        world.pass(MINUTE * 2);
        Ok::<_, String>(())
    });
    world.pass(MINUTE * 59);
    assert_eq!(slow.await.unwrap().as_str(), "ran");
    world.pass(MINUTE * 57);
    assert_eq!(outcome(&once).await, "ran");
}
