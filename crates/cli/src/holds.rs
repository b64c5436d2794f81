//! How long a ring holds what is recorded, for people.

use lastwords_open::Holds;

/// `holds about 12 s at the observed rate of 1.2 M events/s`.
pub(crate) fn text(holds: &Holds) -> String {
    let rate = match holds.events_per_second {
        0.0 => String::new(),
        rate => format!(" of {}events/s", scaled(rate, &["", "k ", "M ", "G "], 1000.0)),
    };
    format!("holds about {} at the observed rate{rate}", time(holds.seconds))
}

/// A time with its unit: `12 s`, `3.4 min`.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{} us", digits(s * 1e6)),
        s if s < 1.0 => format!("{} ms", digits(s * 1e3)),
        s if s < 120.0 => format!("{} s", digits(s)),
        s if s < 7200.0 => format!("{} min", digits(s / 60.0)),
        s if s < 172_800.0 => format!("{} h", digits(s / 3600.0)),
        s => format!("{} days", digits(s / 86_400.0)),
    }
}

fn scaled(value: f64, units: &[&str], step: f64) -> String {
    let mut value = value;
    let mut units = units.iter().copied();
    let mut unit = units.next().unwrap_or_default();
    for next in units {
        if value < step {
            break;
        }
        value /= step;
        unit = next;
    }
    format!("{} {unit}", digits(value))
}

/// Two digits that count.
fn digits(value: f64) -> String {
    match value {
        v if v < 0.01 => "less than 0.01".to_owned(),
        v if v < 1.0 => format!("{v:.2}"),
        v if v < 10.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_words() {
        let of = |seconds, events_per_second| text(&Holds { seconds, events_per_second });
        assert_eq!(of(12.0, 1_200_025.0), "holds about 12 s at the observed rate of 1.2 M events/s");
        assert_eq!(of(24.0, 25.0), "holds about 24 s at the observed rate of 25 events/s");
    }
}
