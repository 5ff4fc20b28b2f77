//! Chance from a seed.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// At least 0 and less than 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Nanoseconds between two arrivals of a Poisson process with so many per second.
    pub(crate) fn gap(&mut self, rate: f64) -> u64 {
        let seconds = -(1.0 - self.share()).ln() / rate;
        (seconds * 1e9) as u64
    }

    /// Fisher and Yates.
    pub(crate) fn shuffle<T>(&mut self, values: &mut [T]) {
        for at in (1..values.len()).rev() {
            let with = self.next() % (at as u64 + 1);
            values.swap(at, usize::try_from(with).unwrap_or(0));
        }
    }
}

/// Keys of which the most wanted is wanted twice as often as the second, three times as often as
/// the third.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    /// The share of all requests that is for a key or one before it.
    up_to: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(keys: u32) -> Self {
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=keys)
            .map(|rank| {
                sum += 1.0 / f64::from(rank);
                sum
            })
            .collect();
        for share in &mut up_to {
            *share /= sum;
        }
        Self { up_to }
    }

    pub(crate) fn draw(&self, random: &mut Random) -> u32 {
        let share = random.share();
        let at = self.up_to.partition_point(|up_to| *up_to <= share);
        u32::try_from(at.min(self.up_to.len() - 1)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_the_mean_and_the_spread_of_a_poisson_process() {
        let mut random = Random::new(7);
        let gaps: Vec<f64> = (0..20_000).map(|_| random.gap(1_000.0) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.03, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "{variance}");
    }

    #[test]
    fn the_first_key_is_wanted_twice_as_often_as_the_second() {
        let (mut random, zipf) = (Random::new(7), Zipf::new(100));
        let mut counts = vec![0_u32; 100];
        for _ in 0..100_000 {
            counts[zipf.draw(&mut random) as usize] += 1;
        }
        let ratio = f64::from(counts[0]) / f64::from(counts[1]);
        assert!((ratio - 2.0).abs() < 0.1, "{ratio}");
        assert!(counts.iter().all(|count| *count > 0));
    }

    #[test]
    fn a_seed_gives_one_order() {
        let order = |seed| {
            let mut values: Vec<_> = (0..10).collect();
            Random::new(seed).shuffle(&mut values);
            values
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let mut sorted = order(1);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..10).collect::<Vec<_>>());
    }
}
