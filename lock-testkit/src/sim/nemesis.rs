//! Injects all kinds of faults until the time for faults is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::fault::SimFault;
use super::net::MessageDirection;
use super::rng::Rng;
use super::world::SimWorld;

/// Injects faults of processes, of the store and of routes, and then ends all of them.
pub(crate) async fn run(world: Arc<SimWorld>) {
    let mut rng = Rng::stream(world.seed, "nemesis", 0);
    let most = u64::try_from(world.plan.calm_between_faults.as_millis()).unwrap_or(1000);
    loop {
        sleep(rng.millis(50, most)).await;
        if world.now() >= world.plan.faults_end {
            break;
        }
        inject(&world, &mut rng);
    }
    world.note(format_args!("the faults end"));
    world.net.calm_down();
    restart(&world);
    for machine in world.machines() {
        resume(&world, machine.process.number());
    }
    for _ in world.machines().len()..world.plan.processes {
        world.boot_working();
    }
}

fn inject(world: &Arc<SimWorld>, rng: &mut Rng) {
    let machines = world.machines();
    if machines.is_empty() {
        return world.boot_working();
    }
    let holder = machines
        .iter()
        .find(|machine| world.holds(machine.process.number()));
    // Faults of a holder find more violations than faults of other processes.
    let victim = holder
        .filter(|_| rng.chance(600))
        .unwrap_or_else(|| rng.pick(&machines));
    let victim = Arc::clone(&victim.process);
    let number = victim.number();
    match rng.below(12) {
        0..6 => {
            let lasts = if rng.chance(500) {
                rng.millis(50, 900)
            } else {
                rng.millis(900, 4000)
            };
            world.log.fault(SimFault::PausedProcess);
            world.note(format_args!("process {number} is paused"));
            victim.pause();
            let pause = (number, world.now(), Duration::MAX);
            world.log.book().pauses.push(pause);
            world.after(lasts, move |world| resume(world, number));
        }
        6 | 7 => {
            world.log.fault(SimFault::DeadProcess);
            world.kill(&victim);
            world.after(rng.millis(0, 1500), SimWorld::boot_working);
        }
        8..11 => {
            let directions: &[MessageDirection] = match rng.below(3) {
                0 => &[MessageDirection::ToStore],
                1 => &[MessageDirection::FromStore],
                _ => &[MessageDirection::ToStore, MessageDirection::FromStore],
            };
            world.log.fault(SimFault::Unreachable);
            world.note(format_args!("process {number} is cut off: {directions:?}"));
            let lasts = rng.millis(100, 3000);
            for direction in directions {
                world.net.cut(number, *direction);
                world.after(lasts, move |world| world.net.mend(number, *direction));
            }
        }
        _ => {
            world.log.fault(SimFault::RestartedStore);
            world.note(format_args!("the store stops"));
            world.store.stop();
            world.after(rng.millis(50, 1500), |world| restart(world));
        }
    }
}

fn restart(world: &SimWorld) {
    if world.store.is_up() {
        return;
    }
    world.note(format_args!("the store starts"));
    world.store.start();
}

fn resume(world: &SimWorld, number: usize) {
    if let Some(process) = world.process(number) {
        world.note(format_args!("process {number} goes on"));
        process.resume();
        world.pause_ends(number);
    }
}

impl SimWorld {
    fn holds(&self, process: usize) -> bool {
        let book = self.log.book();
        let of_process = book
            .operations
            .iter()
            .rev()
            .filter(|o| o.process == process);
        of_process
            .take(8)
            .any(|o| o.is_open() && o.acquired_at().is_some())
    }

    fn pause_ends(&self, process: usize) {
        let now = self.now();
        let mut book = self.log.book();
        let open = book
            .pauses
            .iter_mut()
            .filter(|(of, _, end)| *of == process && *end == Duration::MAX);
        open.for_each(|(_, _, end)| *end = now);
    }
}
