//! The rows of a histogram. Their form follows from the trigger.

use super::{Key, Row, Value};

/// The keys and values of a trigger, each with its modifier.
pub(super) struct Form {
    pub(super) keys: Vec<Part>,
    pub(super) values: Vec<Part>,
}

/// A key or value.
pub(super) struct Part {
    pub(super) name: String,
    modifier: Option<String>,
}

impl Part {
    fn parse(text: &str) -> Self {
        // Names of variables of other events have dots too.
        let known = |modifier: &str| {
            let word = modifier.split('=').next().unwrap_or_default();
            MODIFIERS.contains(&word)
        };
        match text.rsplit_once('.').filter(|(_, modifier)| known(modifier)) {
            Some((name, modifier)) => {
                Self { name: name.to_owned(), modifier: Some(modifier.to_owned()) }
            }
            None => Self { name: text.to_owned(), modifier: None },
        }
    }

    pub(super) fn is(&self, modifier: &str) -> bool {
        self.modifier.as_deref().is_some_and(|own| own.split('=').next() == Some(modifier))
    }

    pub(super) fn is_stack(&self) -> bool {
        self.is("stacktrace") || ["stacktrace", "common_stacktrace"].contains(&self.name.as_str())
    }
}

/// The least bytes of a text that is a key.
const TEXT: usize = 50;

const MODIFIERS: [&str; 11] = [
    "hex",
    "sym",
    "sym-offset",
    "syscall",
    "execname",
    "log2",
    "buckets",
    "usecs",
    "stacktrace",
    "percent",
    "graph",
];

impl Form {
    /// Reads the trigger `hist:[NAME:]keys=KEY[,KEY]:vals=VALUE[,VALUE]…`.
    pub(super) fn parse(trigger: &str) -> Self {
        let list = |begin: &str| -> Vec<Part> {
            let rest = trigger.split_once(begin).map_or("", |(_, rest)| rest);
            let end = rest.find([':', ' ']).unwrap_or(rest.len());
            let words = rest.get(..end).unwrap_or_default().split(',');
            words.filter(|word| !word.is_empty()).map(Part::parse).collect()
        };
        Self { keys: list("keys="), values: list(":vals=") }
    }

    /// Reads rows. An error has the number of the line, from 0.
    pub(super) fn rows(&self, lines: &[&str]) -> Result<Vec<Row>, (usize, String)> {
        let first = self.keys.first().map_or("", |key| key.name.as_str());
        let is_begin = |line: &str| {
            line.strip_prefix("{ ").is_some_and(|rest| {
                rest.strip_prefix(first).is_some_and(|rest| rest.starts_with([':', '.']))
                    || rest == "stacktrace:"
                    || rest == "common_stacktrace:"
            })
        };
        let begins: Vec<usize> =
            lines.iter().enumerate().filter(|(_, line)| is_begin(line)).map(|(at, _)| at).collect();
        if let Some(at) = lines.iter().position(|line| !line.is_empty() && !line.starts_with('#'))
            && begins.first() != Some(&at)
        {
            let shown = lines.get(at).copied().unwrap_or_default();
            return Err((at, format!("it is no row: {shown}")));
        }
        let ends = begins.iter().skip(1).copied().chain([lines.len()]);
        let mut rows = Vec::new();
        for (begin, end) in begins.iter().copied().zip(ends) {
            let own = lines.get(begin..end).unwrap_or_default();
            let row = self.row(own);
            rows.push(row.ok_or_else(|| (begin, format!("it is no row: {}", own.join("\\n"))))?);
        }
        Ok(rows)
    }

    /// Reads the lines of a row. The values are after the last brace behind which values are.
    fn row(&self, lines: &[&str]) -> Option<Row> {
        for (at, line) in lines.iter().enumerate().rev() {
            for (brace, _) in line.rmatch_indices('}') {
                let Some(values) = self.values(line.get(brace..)?.get(1..)?) else { continue };
                let mut head: Vec<&str> = lines.get(..at)?.to_vec();
                head.push(line.get(..brace)?);
                let head = head.join("\n");
                let Some(keys) = self.keys(head.strip_prefix("{ ")?) else { continue };
                let more = lines.get(at..)?.iter().skip(1).filter(|line| !line.trim().is_empty());
                let more = more.map(|line| line.trim().to_owned()).collect();
                return Some(Row { keys, values, more });
            }
        }
        None
    }

    /// Reads ` NAME: VALUE NAME: VALUE…`.
    fn values(&self, text: &str) -> Option<Vec<(String, Value)>> {
        let mut values = Vec::new();
        let mut rest = text;
        loop {
            rest = rest.trim_start_matches(' ');
            if rest.is_empty() {
                return Some(values);
            }
            let (name, after) = rest.split_once(':')?;
            if name.is_empty() || name.contains(['{', '}', '\n']) {
                return None;
            }
            let after = after.trim_start_matches(' ');
            let end = after.find(' ').unwrap_or(after.len());
            let (word, behind) = after.split_at(end);
            // A bar may be empty.
            let is_next = word.ends_with(':');
            let word = if is_next { "" } else { word };
            values.push((name.to_owned(), self.value(name, word)?));
            rest = if is_next { after } else { behind };
        }
    }

    fn value(&self, name: &str, word: &str) -> Option<Value> {
        let has = |modifier| self.values.iter().any(|part| part.name == name && part.is(modifier));
        if name.ends_with(" (%)") || word.starts_with('#') || word.is_empty() {
            return (word.is_empty() || !word.contains(|c: char| c.is_alphabetic()))
                .then(|| Value::Text(word.to_owned()));
        }
        let radix = if has("hex") { 16 } else { 10 };
        u64::from_str_radix(word, radix).ok().map(Value::Number)
    }

    /// Reads the parts of a key. Each ends where the name of the next stands.
    fn keys(&self, text: &str) -> Option<Vec<(String, Key)>> {
        let mut keys = Vec::new();
        let mut rest = text;
        for (at, part) in self.keys.iter().enumerate() {
            let next = self.keys.get(at.saturating_add(1));
            if part.is_stack() {
                let (name, stack) = rest.split_once('\n')?;
                let lines: Vec<&str> = stack.lines().collect();
                let is_frame = |line: &&&str| line.starts_with("         ");
                let frames = lines.iter().take_while(is_frame).count();
                let of = |line: &&str| line.trim().to_owned();
                let stack = lines.get(..frames)?.iter().map(of).collect();
                keys.push((name.trim_end_matches(':').to_owned(), Key::Stack(stack)));
                rest = lines.get(frames).copied().unwrap_or_default();
                rest = rest.strip_prefix(", ").unwrap_or(rest);
                continue;
            }
            let (name, value) = rest.split_once(": ")?;
            let value = match next {
                // A blank is before the brace.
                None => value.strip_suffix(' ').unwrap_or(value),
                Some(next) => {
                    let begin = format!(", {}", next.name);
                    let ends = value.match_indices(&begin).find(|(end, found)| {
                        let behind = value.get(end.saturating_add(found.len())..);
                        behind.is_some_and(|behind| behind.starts_with([':', '.', '\n']))
                    });
                    let (value, behind) = value.split_at(ends?.0);
                    rest = behind.get(2..)?;
                    value
                }
            };
            keys.push((name.to_owned(), key(part, value)?));
        }
        Some(keys)
    }
}

/// Reads a part of a key.
fn key(part: &Part, value: &str) -> Option<Key> {
    let word = value.trim();
    let in_brackets = |radix: u32| {
        let (head, number) = value.trim_end().rsplit_once('[')?;
        let number = u64::from_str_radix(number.strip_suffix(']')?.trim(), radix).ok()?;
        Some(Key::Named { name: head.trim_end().to_owned(), number })
    };
    if part.is("hex") {
        return u64::from_str_radix(word, 16).ok().map(Key::Number);
    }
    if part.is("sym") || part.is("sym-offset") {
        let (number, name) = word.strip_prefix('[')?.split_once(']')?;
        let number = u64::from_str_radix(number, 16).ok()?;
        return Some(Key::Named { name: name.trim().to_owned(), number });
    }
    if part.is("execname") || part.is("syscall") {
        return in_brackets(10);
    }
    if part.is("log2") {
        return word.strip_prefix("~ 2^")?.trim().parse().ok().map(Key::Power);
    }
    if part.is("buckets") {
        let (first, last) = word.strip_prefix("~ ")?.split_once('-')?;
        return Some(Key::Range { first: first.parse().ok()?, last: last.parse().ok()? });
    }
    // Texts are filled up with blanks, numbers are shorter.
    let number = word.parse().ok().filter(|_| value.len() < TEXT);
    Some(match number {
        Some(number) => Key::Number(number),
        None if value.len() > TEXT => Key::Text(value.to_owned()),
        None => Key::Text(value.trim_end_matches(' ').to_owned()),
    })
}
