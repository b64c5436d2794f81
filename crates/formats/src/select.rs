//! Which events to show.

use lastwords_trace::schema::Schema;

/// Which events to show; the default shows all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only streams of these CPUs; empty = all.
    pub cpus: Vec<u32>,
    /// Only events whose `provider:name` matches one of these globs (`*` any text, `?` any character); empty = all.
    pub events: Vec<String>,
    /// Not before this time, nanoseconds since the epoch.
    pub since: Option<i64>,
    /// Not after this time, nanoseconds since the epoch.
    pub until: Option<i64>,
    /// Only the last so many of those that match.
    pub last: Option<u64>,
}

impl Selection {
    /// A stream of this CPU is shown.
    #[must_use]
    pub fn wants_cpu(&self, cpu: Option<u32>) -> bool {
        self.cpus.is_empty() || cpu.is_some_and(|cpu| self.cpus.contains(&cpu))
    }

    /// An event of this name is shown.
    #[must_use]
    pub fn wants_name(&self, name: &str) -> bool {
        self.events.is_empty() || self.events.iter().any(|glob| matches(glob, name))
    }

    /// An event of this time is shown.
    #[inline]
    #[must_use]
    pub fn wants_time(&self, nanoseconds: i64) -> bool {
        self.since.is_none_or(|since| nanoseconds >= since) && self.until.is_none_or(|until| nanoseconds <= until)
    }

    /// For each channel and event class of a schema, by position: it is shown.
    pub(crate) fn classes(&self, schema: &Schema) -> Vec<Vec<bool>> {
        let wants = |channel: &lastwords_trace::schema::Channel| {
            channel.events.iter().map(|event| self.wants_name(&event.name)).collect()
        };
        schema.channels.iter().map(wants).collect()
    }
}

/// `name` matches `glob`: `*` stands for any text, `?` for any character. Takes time in proportion to the product of
/// both lengths at worst.
#[must_use]
pub fn matches(glob: &str, name: &str) -> bool {
    let glob: Vec<char> = glob.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut g, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some('*') => {
                star = Some((g, n));
                g += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                g += 1;
                n += 1;
            }
            _ => match &mut star {
                Some((at, from)) => {
                    *from += 1;
                    (g, n) = (*at + 1, *from);
                }
                None => return false,
            },
        }
    }
    glob.get(g..).is_none_or(|rest| rest.iter().all(|c| *c == '*'))
}
