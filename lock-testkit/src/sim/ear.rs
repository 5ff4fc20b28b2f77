use std::sync::Weak;

use lock_core::layers::{Event, EventKind, Observer};

use super::process::Process;
use super::world::World;

/// Hears of the renewals that the scheduler makes by itself.
#[derive(Debug)]
pub(crate) struct Ear {
    world: Weak<World>,
    process: Weak<Process>,
}

impl Ear {
    pub(crate) fn new(world: Weak<World>, process: Weak<Process>) -> Self {
        Self { world, process }
    }
}

impl Observer for Ear {
    fn event(&self, event: &Event<'_>) {
        let (Some(world), Some(process)) = (self.world.upgrade(), self.process.upgrade()) else {
            return;
        };
        let EventKind::Renewed { slack, .. } = event.kind else {
            return;
        };
        // The workload puts the number of the operation there.
        let number = event.class.and_then(|class| class.parse().ok());
        if let Some(number) = number {
            world.log.book().renewals += 1;
            world.extended(number, process.true_time(slack));
        }
    }
}
