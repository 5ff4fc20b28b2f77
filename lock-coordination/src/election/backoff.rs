use std::time::Duration;

use polylock_core::engine::Engine;

/// The backoff between the terms of a candidate, as in [`Election::lead`](crate::Election::lead); for loops
/// around [`campaign`](crate::Election::campaign).
///
/// The pauses grow from 0.5 s to 10 s, each less up to a half at random.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_coordination::Backoff;
///
/// let mut backoff = Backoff::new();
/// assert!(backoff.pause_after(Duration::ZERO) <= Duration::from_millis(500));
/// assert!(backoff.pause_after(Duration::ZERO) >= Duration::from_millis(500));
/// ```
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    engine: Engine,
}

impl Backoff {
    /// Begins with the shortest pause.
    #[must_use]
    pub fn new() -> Self {
        Self {
            next: FIRST_PAUSE,
            engine: Engine::of_this_process("election"),
        }
    }

    /// The pause after a term of this length; zero stands for a failed campaign.
    ///
    /// A term of 10 s or more resets the backoff. Jitter spreads the candidates of a server that was
    /// unreachable.
    #[must_use]
    pub fn pause_after(&mut self, lasted: Duration) -> Duration {
        if lasted >= MAX_PAUSE {
            self.next = FIRST_PAUSE;
        }
        let pause = self.next;
        self.next = (pause * 2).min(MAX_PAUSE);
        self.engine.jitter(pause / 2, pause)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
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
            let pause = backoff.pause_after(Duration::ZERO);
            let longest = Duration::from_millis(expected);
            assert!(
                pause >= longest / 2 && pause <= longest,
                "the backoff is {pause:?}"
            );
        }
        assert!(backoff.pause_after(Duration::from_secs(9)) >= MAX_PAUSE / 2);
        assert!(backoff.pause_after(MAX_PAUSE) <= FIRST_PAUSE);
    }
}
