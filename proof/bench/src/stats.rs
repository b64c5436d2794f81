//! Statistics of a row of samples.

/// The spread of samples: least, quartiles, most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) min: f64,
    pub(super) p25: f64,
    pub(super) median: f64,
    pub(super) p75: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Of these samples; `None` if there are none.
    pub(super) fn from_samples(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            min: *sorted.first()?,
            p25: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            p75: quantile(&sorted, 0.75),
            max: *sorted.last()?,
        })
    }
}

/// Between the two nearest samples where it falls between two. `sorted` is not empty.
pub(super) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        assert_eq!(Spread::from_samples(&[]), None);
        let one = Spread { min: 2.0, p25: 2.0, median: 2.0, p75: 2.0, max: 2.0 };
        assert_eq!(Spread::from_samples(&[2.0]), Some(one));
        let four = Spread { min: 1.0, p25: 1.75, median: 2.5, p75: 3.25, max: 4.0 };
        assert_eq!(Spread::from_samples(&[4.0, 1.0, 3.0, 2.0]), Some(four));
    }
}
