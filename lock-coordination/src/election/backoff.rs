use std::time::Duration;

use polylock_core::engine::Engine;

/// Pauses between terms.
pub(super) struct Backoff {
    next: Duration,
    engine: Engine,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self {
            next: FIRST_PAUSE,
            engine: Engine::of_this_process("election"),
        }
    }

    /// A term has lasted for so long: after one that was not short, the pauses begin anew.
    pub(super) fn note(&mut self, lasted: Duration) {
        if lasted >= MAX_PAUSE {
            self.next = FIRST_PAUSE;
        }
    }

    /// The next pause. Many candidates of a server that was out of reach come back one after the other.
    pub(super) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(MAX_PAUSE);
        self.engine.jitter(pause / 2, pause)
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_term_was_not_short() {
        let mut backoff = Backoff::new();
        for expected in [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000] {
            let (pause, longest) = (backoff.pause(), Duration::from_millis(expected));
            assert!(pause >= longest / 2 && pause <= longest, "{pause:?}");
        }
        backoff.note(Duration::from_secs(9));
        assert!(backoff.pause() >= MAX_PAUSE / 2);
        backoff.note(MAX_PAUSE);
        assert!(backoff.pause() <= FIRST_PAUSE);
    }
}
