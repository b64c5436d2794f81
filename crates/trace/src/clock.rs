//! The trace's clock.

/// Nanoseconds in a second.
const GIGA: u64 = 1_000_000_000;

/// A clock: ticks, and how they relate to wall time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clock {
    /// `tsc`, `monotonic`, ...
    pub name: String,
    /// What it is, for people.
    pub description: String,
    /// Ticks a second.
    pub frequency: u64,
    /// Whole seconds from the epoch to tick 0; may be negative.
    pub offset_seconds: i64,
    /// Ticks, less than `frequency`, from there to tick 0.
    pub offset_ticks: u64,
    /// The offset leads to the Unix epoch.
    pub absolute: bool,
}

impl Clock {
    /// Nanoseconds since the epoch of a reading, floored.
    #[must_use]
    pub fn nanoseconds(&self, ticks: u64) -> i128 {
        let (whole, _) = self.split(ticks);
        whole
    }

    /// Nanoseconds, floored, and what is left over in 1 / frequency of a nanosecond.
    fn split(&self, ticks: u64) -> (i128, u64) {
        let frequency = u128::from(self.frequency.max(1));
        let since = (u128::from(ticks) + u128::from(self.offset_ticks)) * u128::from(GIGA);
        let whole = i128::try_from(since / frequency).unwrap_or(i128::MAX);
        let rest = u64::try_from(since % frequency).unwrap_or(0);
        (i128::from(self.offset_seconds) * i128::from(GIGA) + whole, rest)
    }
}

/// How ticks become nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// The exact quotient, floored: [`Clock::nanoseconds`].
    Floor,
    /// As babeltrace2 2.0 and 2.1 compute it, in double precision: up to some nanoseconds off where the frequency is not 1 GHz.
    Double,
}

/// Converts readings of one clock to nanoseconds since the epoch without a division for each.
///
/// Results that do not fit an `i64` (the years 1677 to 2262) saturate.
#[derive(Debug, Clone)]
pub struct Converter {
    clock: Clock,
    rule: Rule,
}

#[derive(Debug, Clone)]
enum Rule {
    /// 1 GHz: an addition to the base.
    Add(i64),
    /// In double precision, added to the base.
    Double(i64),
    /// Exact, by distance from an anchor.
    Anchor(Anchor),
}

/// A reading whose conversion is known exactly; readings up to 2^33 ticks behind it cost two multiplications.
#[derive(Debug, Clone)]
struct Anchor {
    ticks: u64,
    nanoseconds: i64,
    /// What the floor dropped, in 1 / frequency of a nanosecond.
    rest: u64,
    /// Distances below it are converted from here.
    reach: u64,
    frequency: u64,
    /// floor((2^64 - 1) / frequency).
    reciprocal: u64,
}

impl Converter {
    /// A converter for one clock.
    #[must_use]
    pub fn new(clock: &Clock, rounding: Rounding) -> Self {
        let frequency = clock.frequency.max(1);
        let base = i64::try_from(clock.nanoseconds(0)).ok();
        let rule = match (rounding, base) {
            (_, Some(base)) if frequency == GIGA => Rule::Add(base),
            (Rounding::Double, Some(_)) => Rule::Double(double_base(clock)),
            // From a base that 64 bits do not hold, each reading is converted by itself.
            _ => Rule::Anchor(Anchor {
                ticks: 0,
                nanoseconds: 0,
                rest: 0,
                reach: 0,
                frequency,
                reciprocal: u64::MAX / frequency,
            }),
        };
        Self { clock: clock.clone(), rule }
    }

    /// Nanoseconds since the epoch of a reading.
    #[inline]
    pub fn nanoseconds(&mut self, ticks: u64) -> i64 {
        match &mut self.rule {
            Rule::Add(base) => base.saturating_add_unsigned(ticks),
            Rule::Double(base) => match double_nanoseconds(self.clock.frequency, ticks) {
                u64::MAX => i64::MAX,
                since => base.saturating_add_unsigned(since),
            },
            Rule::Anchor(anchor) => match anchor.convert(ticks) {
                Some(nanoseconds) => nanoseconds,
                None => anchor.move_to(&self.clock, ticks),
            },
        }
    }
}

impl Anchor {
    /// Exact: `distance * 10^9 + rest` fits 64 bits, and the reciprocal's quotient is at most one too small.
    #[inline]
    fn convert(&self, ticks: u64) -> Option<i64> {
        let distance = ticks.wrapping_sub(self.ticks);
        if distance >= self.reach {
            return None;
        }
        let total = distance * GIGA + self.rest;
        let mut quotient = ((u128::from(total) * u128::from(self.reciprocal)) >> 64) as u64;
        if total - quotient * self.frequency >= self.frequency {
            quotient += 1;
        }
        Some(self.nanoseconds.saturating_add_unsigned(quotient))
    }

    #[cold]
    fn move_to(&mut self, clock: &Clock, ticks: u64) -> i64 {
        let (whole, rest) = clock.split(ticks);
        let nanoseconds = saturate(whole);
        let fits = i128::from(nanoseconds) == whole && self.frequency < 1 << 62;
        let reach = if fits { 1 << 33 } else { 0 };
        *self = Self { ticks, nanoseconds, rest, reach, ..*self };
        nanoseconds
    }
}

fn saturate(nanoseconds: i128) -> i64 {
    i64::try_from(nanoseconds).unwrap_or(if nanoseconds < 0 { i64::MIN } else { i64::MAX })
}

/// The greatest number where the quotient does not fit.
#[inline]
fn double_nanoseconds(frequency: u64, ticks: u64) -> u64 {
    ((1e9 * ticks as f64) / frequency.max(1) as f64) as u64
}

fn double_base(clock: &Clock) -> i64 {
    let seconds = i128::from(clock.offset_seconds) * i128::from(GIGA);
    saturate(seconds).saturating_add_unsigned(double_nanoseconds(clock.frequency, clock.offset_ticks))
}
