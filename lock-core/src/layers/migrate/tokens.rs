//! Which tokens a lock may have that is held on two servers, and from when on.

use std::time::Duration;

use crate::guard::TokenRange;

/// A token that a server drew, and how long ago that is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    pub(super) token: u64,
    /// At least: since the grant is known.
    pub(super) age: Duration,
    /// At most: since it was asked for.
    pub(super) oldest: Duration,
}

impl Drawn {
    /// The least that the next token of this server can be, if it is drawn now.
    fn next(self) -> u64 {
        self.token.saturating_add(micros(self.age))
    }

    /// The most that its clock can be ahead of the token.
    fn latest(self) -> u64 {
        self.token.saturating_add(micros(self.oldest))
    }
}

/// What becomes of a lock that both servers granted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// After this pause the tokens are larger than all before and smaller than all to come.
    After { pause: Duration, tokens: TokenRange },
    /// The clocks differ by at least this, which is too much.
    TooFar { difference: Duration },
    /// A grant may have been noticed this much too late to go on.
    TooLate { by: Duration },
}

/// The larger token is later than every one before it on either server. It is also earlier than every
/// one to come on the server that drew it; on the other one as soon as its clock has passed it.
pub(super) fn settle(old: Drawn, new: Drawn) -> Verdict {
    let first = old.token.max(new.token);
    // The next holders of this process get those behind it, so the clocks have to pass them as well.
    let last = first.saturating_add(TOKENS - 1);
    let passed = last.saturating_add(1 + AHEAD);
    let behind = |next: u64| Duration::from_micros(passed.saturating_sub(next));
    let difference = behind(old.latest().min(new.latest()));
    if difference > MAX_SKEW {
        return Verdict::TooFar { difference };
    }
    // A grant that is noticed late looks like a clock that is behind, and costs as long a pause.
    let pause = behind(old.next().min(new.next()));
    if pause > MAX_PAUSE {
        return Verdict::TooLate { by: pause };
    }
    let tokens = TokenRange { first, last };
    Verdict::After { pause, tokens }
}

/// Tokens of one lock, each of which takes a microsecond of waiting. A lease that is handed over more
/// often goes back to the servers.
const TOKENS: u64 = 256;

/// A server hands out tokens in blocks, so that one may be ahead of its clock, and one whose clock counts
/// milliseconds may hand out one that is behind it by so many microseconds.
const AHEAD: u64 = 256 + 1_000;

/// A lock that takes longer is not worth having, and clocks that differ by more are not looked after.
const MAX_SKEW: Duration = Duration::from_secs(1);

/// The lock has no holder during the pause. Backends notice a lost grant message within three
/// seconds.
const MAX_PAUSE: Duration = Duration::from_secs(4);

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(token: u64, age_micros: u64) -> Drawn {
        let age = Duration::from_micros(age_micros);
        Drawn {
            token,
            age,
            oldest: age,
        }
    }

    fn after(old: Drawn, new: Drawn) -> (u64, u64) {
        match settle(old, new) {
            Verdict::After { pause, tokens } => {
                assert_eq!(tokens.last - tokens.first, TOKENS - 1);
                (micros(pause), tokens.first)
            }
            verdict => panic!("{verdict:?}"),
        }
    }

    #[test]
    fn the_slower_clock_passes_the_tokens_before_they_are_used() {
        // The pause for clocks that agree and answers that came at once.
        let least = TOKENS + AHEAD;
        let cases = [
            // (old, new, pause, first token)
            (drawn(1_000, 0), drawn(1_000, 0), least, 1_000),
            // The new server is 5 ms ahead.
            (drawn(1_000, 0), drawn(6_000, 0), least + 5_000, 6_000),
            // It is not: the old one answered 5 ms before.
            (drawn(1_000, 5_000), drawn(6_000, 0), least, 6_000),
            // The old one is ahead.
            (drawn(9_000, 2_000), drawn(1_000, 0), least + 8_000, 9_000),
            // Enough time has passed since.
            (drawn(1_000, 9_000), drawn(1_000, 9_000), 0, 1_000),
        ];
        for (old, new, pause, first) in cases {
            assert_eq!(after(old, new), (pause, first), "{old:?} {new:?}");
        }
    }

    #[test]
    fn after_the_pause_both_servers_draw_larger_ones() {
        for skew in [0, 1, 255, 1_000, 900_000] {
            let (old, new) = (drawn(5_000_000, 300), drawn(5_000_000 + skew, 0));
            let Verdict::After { pause, tokens } = settle(old, new) else {
                panic!("{skew} is not too far");
            };
            for server in [old, new] {
                assert!(tokens.last < server.next() + micros(pause), "{skew}");
                assert!(tokens.first >= server.token, "{skew}");
            }
        }
    }

    #[test]
    fn clocks_that_differ_by_seconds_are_refused() {
        let verdict = settle(drawn(1, 0), drawn(2_000_000, 0));
        assert!(matches!(verdict, Verdict::TooFar { difference } if difference > MAX_SKEW));
        assert!(matches!(
            settle(drawn(0, 0), drawn(u64::MAX, 0)),
            Verdict::TooFar { .. }
        ));
    }

    #[test]
    fn a_grant_that_is_noticed_late_is_no_clock_that_differs() {
        let noticed_after = |seconds: u64| Drawn {
            token: 9_000_000,
            age: Duration::ZERO,
            oldest: Duration::from_secs(seconds),
        };
        let new = drawn(11_000_000, 0);
        assert!(matches!(
            settle(noticed_after(1), new),
            Verdict::TooFar { difference } if difference > MAX_SKEW
        ));
        // It may have been made two seconds ago, or the clock is behind: a pause covers both.
        let least = TOKENS + AHEAD;
        assert_eq!(
            after(noticed_after(2), new),
            (least + 2_000_000, 11_000_000)
        );
        let new = drawn(14_000_000, 0);
        assert!(matches!(
            settle(noticed_after(60), new),
            Verdict::TooLate { by } if by > MAX_PAUSE
        ));
    }
}
