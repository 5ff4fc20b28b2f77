use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

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
        getrandom::fill(bytes).expect("the operating system has no random numbers");
    }
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
        let mut state = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
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
/// 128 random bits, so that nobody guesses the id of another holder: whoever knows it can release.
/// It does not belong into logs; `Debug` prints a few digits.
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
        format!("{:032x}", u128::from_be_bytes(self.0))
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
