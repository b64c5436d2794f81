//! Numbers at random for generated inputs, the same for each seed on each machine.

/// SplitMix64, begun with a seed.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// Returns 64 bits at random.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `n`, or 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }

    /// Returns a place in something of `len` parts.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns true once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of some values.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }
}

/// Returns the number in an environment variable, such as the size of a random test, or `default`
/// without the variable.
///
/// # Panics
/// The variable is no number.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Returns the seed of a test: that of `LASTWORDS_SEED`, which repeats a run, or one by the clock.
/// It is printed.
///
/// # Panics
/// The variable is no number.
pub fn seed() -> u64 {
    let by_clock = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
    let seed = setting("LASTWORDS_SEED", by_clock);
    println!("LASTWORDS_SEED={seed}");
    seed
}

/// Returns one number made of another: different ones of different ones.
pub fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
