use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use super::mutex::Mutex;

/// Where random bytes come from.
pub trait Entropy: fmt::Debug + Send + Sync + 'static {
    /// Fills `bytes` with random ones.
    fn fill(&self, bytes: &mut [u8]);
}

/// The random numbers of the operating system; ids made of them cannot be guessed.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsEntropy(());

impl Entropy for OsEntropy {
    /// # Panics
    ///
    /// If the operating system has no random numbers; no id would be safe then.
    fn fill(&self, bytes: &mut [u8]) {
        POOL.with_borrow_mut(|pool| pool.fill(bytes));
    }
}

/// Random bytes of the operating system that wait to be used: a call for each id costs more than
/// the rest of an id. Each byte is used once. A process that was forked draws its own.
struct EntropyPool {
    process: u32,
    used: usize,
    bytes: [u8; 512],
}

thread_local! {
    static POOL: RefCell<EntropyPool> = const {
        RefCell::new(EntropyPool {
            process: 0,
            used: 512,
            bytes: [0; 512],
        })
    };
}

impl EntropyPool {
    fn fill(&mut self, bytes: &mut [u8]) {
        let process = std::process::id();
        if self.process != process || self.bytes.len() - self.used < bytes.len() {
            if bytes.len() > self.bytes.len() {
                return draw(bytes);
            }
            draw(&mut self.bytes);
            (self.process, self.used) = (process, 0);
        }
        let end = self.used + bytes.len();
        bytes.copy_from_slice(&self.bytes[self.used..end]);
        self.bytes[self.used..end].fill(0);
        self.used = end;
    }
}

fn draw(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system has no random numbers");
}

/// Repeatable numbers for tests, from a seed (splitmix64, Steele et al. 2014).
#[derive(Debug)]
pub struct SeededEntropy(Mutex<u64>);

impl SeededEntropy {
    /// Starts a sequence that is the same for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.0.lock();
        for chunk in bytes.chunks_mut(8) {
            *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = *state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..chunk.len()]);
        }
    }
}

/// The identity of one acquisition, which the server stores with the lock.
///
/// 128 random bits, so that the id of another holder cannot be guessed: it is a capability to
/// release the lock. Keep it out of logs; `Debug` prints a few digits.
///
/// # Examples
///
/// A script keeps a lock from one command to the next:
///
/// ```
/// use std::time::Duration;
///
/// use polylock_core::LeaseState;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = polylock_core::memory::Memory::new();
/// let guard = locks.lock("deploy").await?;
/// let key = guard.key().clone();
/// let id = guard.lease_id().ok_or("the lock has no lease")?;
/// guard.abandon(); // sends nothing, and the lease stays
///
/// let admin = locks.admin().ok_or("the backend has no administration")?;
/// assert_eq!(admin.renew_lease(&key, id, Duration::from_secs(60)).await?, LeaseState::Held);
/// assert_eq!(admin.release_lease(&key, id).await?, Released::Clean);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LeaseId([u8; 16]);

impl LeaseId {
    /// Draws an id.
    #[must_use]
    pub fn random(entropy: &dyn Entropy) -> Self {
        let mut bytes = [0; 16];
        entropy.fill(&mut bytes);
        Self(bytes)
    }

    /// Takes an id back that was stored as bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes to store.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The id as 32 hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        self.encode_hex(&mut [0; 32]).to_owned()
    }

    /// The same in a buffer of the caller.
    #[must_use]
    pub fn encode_hex(self, buffer: &mut [u8; 32]) -> &str {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |half: u8| DIGITS[usize::from(half)];
        // Each acquisition does this, and pushing characters takes five times as long.
        for (pair, byte) in buffer.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        // Digits are ASCII.
        std::str::from_utf8(buffer).unwrap_or_default()
    }

    /// Reads 32 hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = digits.then(|| u128::from_str_radix(text, 16).ok())?;
        number.map(|number| Self(number.to_be_bytes()))
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}

/// A duration between `low` and `high`.
pub(super) fn between(entropy: &dyn Entropy, low: Duration, high: Duration) -> Duration {
    low + high.saturating_sub(low).mul_f64(fraction(entropy))
}

/// A number in `0.0..1.0`.
fn fraction(entropy: &dyn Entropy) -> f64 {
    let mut bytes = [0; 8];
    entropy.fill(&mut bytes);
    // 53 bits are what a double holds exactly.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let numerator = (u64::from_le_bytes(bytes) >> 11) as f64;
    numerator / 9_007_199_254_740_992.0
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_bytes_are_used_twice() {
        let ids = || {
            let mut ids = Vec::new();
            for length in [16, 8, 16, 600, 512, 1] {
                let mut bytes = vec![0; length];
                OsEntropy::default().fill(&mut bytes);
                ids.push(bytes);
            }
            let draw = |_| LeaseId::random(&OsEntropy::default()).to_hex();
            (ids, (0..200).map(draw).collect::<Vec<_>>())
        };
        let other = std::thread::spawn(ids).join().unwrap();
        let own = ids();
        let all: HashSet<_> = own.1.iter().chain(&other.1).collect();
        assert_eq!(all.len(), 400);
        for bytes in own.0.iter().chain(&other.0).filter(|it| it.len() >= 16) {
            assert!(bytes.iter().any(|byte| *byte != 0));
        }
    }

    #[test]
    fn a_process_that_was_forked_draws_its_own() {
        let mut pool = EntropyPool {
            process: std::process::id(),
            used: 0,
            bytes: [7; 512],
        };
        let mut bytes = [0; 16];
        pool.fill(&mut bytes);
        assert_eq!(bytes, [7; 16], "what is left is used");
        pool.process += 1;
        pool.fill(&mut bytes);
        assert_ne!(bytes, [7; 16]);
    }
}
