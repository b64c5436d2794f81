//! The clock of a trace, and its conversion to nanoseconds.

/// Nanoseconds per second.
const GIGA: u64 = 1_000_000_000;

/// A clock: its ticks, and their relation to wall time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Clock {
    /// `tsc`, `monotonic`, ...
    pub name: String,
    /// Description for users.
    pub description: String,
    /// Ticks per second.
    pub frequency: u64,
    /// Whole seconds from the epoch to tick 0; may be negative.
    pub offset_seconds: i64,
    /// Additional ticks, less than `frequency`, from there to tick 0.
    pub offset_ticks: u64,
    /// True if the offset is relative to the Unix epoch.
    pub absolute: bool,
}

impl Clock {
    /// Converts a clock value to nanoseconds since the epoch, rounded down.
    #[must_use]
    pub fn nanoseconds(&self, ticks: u64) -> i128 {
        let (whole, _) = self.split(ticks);
        whole
    }

    /// Converts to nanoseconds, rounded down, and the remainder in units of 1 / frequency
    /// nanoseconds.
    fn split(&self, ticks: u64) -> (i128, u64) {
        let frequency = u128::from(self.frequency.max(1));
        // A product of 65 and 30 bits: no step of this leaves 128 bits.
        let ticks = u128::from(ticks).wrapping_add(u128::from(self.offset_ticks));
        let since = ticks.wrapping_mul(u128::from(GIGA));
        let whole = since
            .checked_div(frequency)
            .and_then(|whole| i128::try_from(whole).ok())
            .unwrap_or(i128::MAX);
        let rest =
            since.checked_rem(frequency).and_then(|rest| u64::try_from(rest).ok()).unwrap_or(0);
        (i128::from(self.offset_seconds).wrapping_mul(i128::from(GIGA)).saturating_add(whole), rest)
    }
}

/// Rounding of the conversion from ticks to nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// The exact quotient, floored: [`Clock::nanoseconds`].
    Floor,
    /// Double precision, like babeltrace2 2.0 and 2.1: up to some nanoseconds off if the frequency
    /// is not 1 GHz.
    Double,
}

/// Converts clock values to nanoseconds since the epoch without a division for each value.
///
/// Results that do not fit an `i64` (the years 1677 to 2262) saturate.
#[derive(Debug, Clone)]
pub struct Converter {
    clock: Clock,
    rule: Rule,
}

#[derive(Debug, Clone)]
enum Rule {
    /// Frequency 1 GHz: adds the ticks to the base.
    Add(i64),
    /// Double precision with this frequency, added to the base.
    Double(i64, f64),
    /// Exact, by the distance from an anchor.
    Anchor(Anchor),
}

/// A clock value with a known exact conversion. Values up to 2^33 ticks after it are converted with
/// two multiplications.
#[derive(Debug, Clone)]
struct Anchor {
    ticks: u64,
    nanoseconds: i64,
    /// Remainder of the anchor's conversion, in units of 1 / frequency nanoseconds.
    rest: u64,
    /// Values at a smaller distance are converted from this anchor.
    reach: u64,
    frequency: u64,
    /// floor((2^64 - 1) / frequency).
    reciprocal: u64,
}

impl Converter {
    /// Creates a converter for one clock.
    #[must_use]
    pub fn new(clock: &Clock, rounding: Rounding) -> Self {
        let frequency = clock.frequency.max(1);
        let base = i64::try_from(clock.nanoseconds(0)).ok();
        let rule = match (rounding, base) {
            (_, Some(base)) if frequency == GIGA => Rule::Add(base),
            (Rounding::Double, Some(_)) => Rule::Double(double_base(clock), frequency as f64),
            // If the base does not fit 64 bits, each value is converted on its own.
            _ => Rule::Anchor(Anchor {
                ticks: 0,
                nanoseconds: 0,
                rest: 0,
                reach: 0,
                frequency,
                reciprocal: u64::MAX.checked_div(frequency).unwrap_or(0),
            }),
        };
        Self { clock: clock.clone(), rule }
    }

    /// Converts a clock value to nanoseconds since the epoch.
    #[inline]
    pub fn nanoseconds(&mut self, ticks: u64) -> i64 {
        match &mut self.rule {
            Rule::Add(base) => base.saturating_add_unsigned(ticks),
            Rule::Double(base, frequency) => match double_nanoseconds(*frequency, ticks) {
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
    /// Exact: `distance * 10^9 + rest` fits 64 bits, and the quotient by the reciprocal is at most
    /// one too small.
    #[inline]
    fn convert(&self, ticks: u64) -> Option<i64> {
        let distance = ticks.wrapping_sub(self.ticks);
        if distance >= self.reach {
            return None;
        }
        // Within reach these fit 64 bits.
        let total = distance.wrapping_mul(GIGA).wrapping_add(self.rest);
        let mut quotient =
            (u128::from(total).wrapping_mul(u128::from(self.reciprocal)) >> 64) as u64;
        if total.wrapping_sub(quotient.wrapping_mul(self.frequency)) >= self.frequency {
            quotient = quotient.wrapping_add(1);
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

/// Converts in double precision; saturates if the quotient does not fit.
#[inline]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float is rounded towards 0, and saturates"
)]
fn double_nanoseconds(frequency: f64, ticks: u64) -> u64 {
    // Signed numbers convert to and from double precision in one instruction each, with the same
    // result.
    let signed = ticks.cast_signed();
    let nanoseconds = 1e9 * signed as f64 / frequency;
    if signed >= 0 && nanoseconds < SIGNED {
        return (nanoseconds as i64).cast_unsigned();
    }
    (1e9 * ticks as f64 / frequency) as u64
}

/// 2^63.
const SIGNED: f64 = 9_223_372_036_854_775_808.0;

fn double_base(clock: &Clock) -> i64 {
    let seconds = i128::from(clock.offset_seconds).saturating_mul(i128::from(GIGA));
    saturate(seconds).saturating_add_unsigned(double_nanoseconds(
        clock.frequency.max(1) as f64,
        clock.offset_ticks,
    ))
}
