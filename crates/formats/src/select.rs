//! Which events to show.

use lastwords_trace::schema::Schema;
use lastwords_trace::source::Stream;

/// Which events to show; the default shows all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only streams of these CPUs; empty = all.
    pub cpus: Vec<u32>,
    /// Only channels whose name matches one of these globs ([`matches()`]); empty = all.
    pub channels: Vec<String>,
    /// Only events whose `provider:name` matches one of these globs ([`matches()`]); empty = all.
    pub events: Vec<String>,
    /// Not before this time, nanoseconds since the epoch.
    pub since: Option<i64>,
    /// Not after this time, nanoseconds since the epoch.
    pub until: Option<i64>,
    /// Only the last so many of those that match.
    pub last: Option<u64>,
    /// An event that several channels of a session have is shown once, as the first of them that is shown has it.
    pub once: bool,
}

impl Selection {
    /// A stream of this CPU is shown.
    #[must_use]
    pub fn wants_cpu(&self, cpu: Option<u32>) -> bool {
        self.cpus.is_empty() || cpu.is_some_and(|cpu| self.cpus.contains(&cpu))
    }

    /// A stream of a source is shown, by its CPU and its channel.
    #[must_use]
    pub fn wants_stream(&self, stream: &Stream, schema: &Schema) -> bool {
        let name = schema.channels.get(stream.channel).map_or("", |channel| &channel.name);
        self.wants_cpu(stream.cpu) && (self.channels.is_empty() || self.channels.iter().any(|glob| matches(glob, name)))
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

/// `name` matches `glob`, as in a session's rules: `*` stands for any text, `?` for any character, `[a-z]` and `[!a-z]` for those of
/// a class and all others. Takes time in proportion to the product of both lengths at worst.
#[must_use]
pub fn matches(glob: &str, name: &str) -> bool {
    let glob: Vec<char> = glob.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut g, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if glob.get(g) == Some(&'*') {
            star = Some((g, n));
            g += 1;
        } else if let Some(len) = one(&glob[g..], name[n]) {
            g += len;
            n += 1;
        } else if let Some((at, from)) = &mut star {
            *from += 1;
            (g, n) = (*at + 1, *from);
        } else {
            return false;
        }
    }
    glob.get(g..).is_none_or(|rest| rest.iter().all(|c| *c == '*'))
}

/// Matches one character; how much of the glob stands for it, if that does.
fn one(glob: &[char], c: char) -> Option<usize> {
    match glob.first()? {
        '?' => Some(1),
        // Without a closing bracket the bracket stands for itself.
        '[' => match class(&glob[1..], c) {
            Some((matches, len)) => matches.then_some(1 + len),
            None => (c == '[').then_some(1),
        },
        own => (*own == c).then_some(1),
    }
}

/// A class behind its opening bracket: whether it matches, and its length with the closing bracket.
fn class(body: &[char], c: char) -> Option<(bool, usize)> {
    let is_negated = matches!(body.first(), Some('!' | '^'));
    let first = usize::from(is_negated);
    // A bracket that stands first is one of the class.
    let end = first + 1 + body.get(first + 1..)?.iter().position(|c| *c == ']')?;
    let (mut at, mut found) = (first, false);
    while at < end {
        let is_range = at + 2 < end && body[at + 1] == '-';
        let high = if is_range { body[at + 2] } else { body[at] };
        found |= (body[at]..=high).contains(&c);
        at += if is_range { 3 } else { 1 };
    }
    Some((found != is_negated, end + 1))
}

#[cfg(test)]
mod tests {
    use super::matches;

    /// The cases of the rules that sessions record by, and those that differ where a class is taken for letters.
    #[test]
    fn globs() {
        let cases = [
            ("*", "a:b", true),
            ("a:*", "ab:b", false),
            ("*:b?", "x:bc", true),
            ("*:b?", "x:b", false),
            ("net:[rt]x", "net:tx", true),
            ("net:[!rt]x", "net:tx", false),
            ("net:[^rt]x", "net:ax", true),
            ("net:[a-m]*", "net:open", false),
            ("net:[a-mo]*", "net:open", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("*[0-9]", "x12", true),
            ("[x", "[x", true),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("", "", true),
            ("", "a", false),
        ];
        for (glob, name, expected) in cases {
            assert_eq!(matches(glob, name), expected, "{glob} on {name}");
        }
    }
}
