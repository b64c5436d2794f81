//! Lines of text: Babeltrace's, and those of `lastwords recover --to text`.

use anyhow::{Context as _, Result, bail, ensure};
use lastwords_testkit::json::Json;

use crate::found::Event;

/// The rest of a line.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, prefix: &str) -> bool {
        let found = self.0.strip_prefix(prefix.as_bytes());
        self.0 = found.unwrap_or(self.0);
        found.is_some()
    }

    fn expect(&mut self, prefix: &str) -> Result<()> {
        let begin = String::from_utf8_lossy(&self.0[..self.0.len().min(60)]).into_owned();
        ensure!(self.take(prefix), "expected {prefix:?} before {begin:?}");
        Ok(())
    }

    /// All up to this text, which is taken too.
    fn before(&mut self, end: &str) -> Result<&'a str> {
        let at = self.0.windows(end.len()).position(|window| window == end.as_bytes());
        let at = at.with_context(|| format!("no {end:?}"))?;
        let before = std::str::from_utf8(&self.0[..at])?;
        self.0 = &self.0[at + end.len()..];
        Ok(before)
    }

    /// A text in quotes, or a token up to one of these bytes.
    fn value(&mut self, ends: &[u8]) -> Result<Json> {
        if self.take("\"") {
            return Ok(Json::Text(self.quoted()?));
        }
        let end = self.0.iter().position(|byte| ends.contains(byte)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        Ok(Json::Number(String::from_utf8(token.to_vec())?))
    }

    /// A value, or an option: `{ value }`, or `{ { } }` if there is none.
    fn optional(&mut self) -> Result<Option<Json>> {
        if self.take("( ") {
            return Ok(Some(Json::Number(self.before(" )")?.to_owned())));
        }
        if !self.take("{ ") {
            return self.value(b" ,").map(Some);
        }
        if self.take("{ } }") {
            return Ok(None);
        }
        let value = self.value(b" ,")?;
        self.expect(" }")?;
        Ok(Some(value))
    }

    /// A text up to the closing quote, which is taken too.
    fn quoted(&mut self) -> Result<String> {
        let mut text = Vec::new();
        loop {
            match *self.0 {
                [b'"', ref rest @ ..] => {
                    self.0 = rest;
                    return Ok(String::from_utf8(text)?);
                }
                [b'\\', b'x', ref rest @ ..] => {
                    let digits = rest
                        .get(..2)
                        .and_then(|digits| std::str::from_utf8(digits).ok())
                        .context("digits")?;
                    text.push(u8::from_str_radix(digits, 16)?);
                    self.0 = &rest[2..];
                }
                [b'\\', escaped, ref rest @ ..] => {
                    let at = br#"abefnrtv\'"?"#.iter().position(|known| *known == escaped);
                    let at = at.with_context(|| format!("the escape \\{}", char::from(escaped)))?;
                    text.push(b"\x07\x08\x1b\x0c\n\r\t\x0b\\'\"?"[at]);
                    self.0 = rest;
                }
                [byte, ref rest @ ..] => {
                    text.push(byte);
                    self.0 = rest;
                }
                [] => bail!("a text without an end"),
            }
        }
    }
}

fn all(bytes: &[u8], of: impl Fn(&mut Rest<'_>) -> Result<Event>) -> Result<Vec<Event>> {
    let lines = bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty() && !line.starts_with(b"#"));
    let read = |line: &[u8]| {
        of(&mut Rest(line))
            .with_context(|| String::from_utf8_lossy(line).chars().take(400).collect::<String>())
    };
    lines.map(read).collect()
}

/// The events that Babeltrace printed.
pub(crate) fn babeltrace(bytes: &[u8]) -> Result<Vec<Event>> {
    all(bytes, |rest| {
        rest.before(") ")?;
        rest.before(") ")?;
        let name = rest.before(": { cpu_id = ")?.to_owned();
        rest.before(" }, { vtid = ")?;
        let tid = rest.before(" }, {")?.parse()?;
        let mut fields = Vec::new();
        while !rest.take(" }") {
            ensure!(fields.is_empty() || rest.take(","), "no comma");
            rest.expect(" ")?;
            let field = rest.before(" = ")?.to_owned();
            if let Some(value) = rest.optional()? {
                fields.push((field, value));
            }
        }
        // Enumerations say which optional fields are there, and a number fills their last byte.
        fields.retain(|(field, _)| !field.starts_with("_") || !field.contains("present"));
        Ok(Event { name, tid, fields })
    })
}

/// The events of a text.
pub(crate) fn text(bytes: &[u8]) -> Result<Vec<Event>> {
    all(bytes, |rest| {
        rest.before("] ")?;
        // The thread's name has no blanks here.
        let thread = rest.before(" ")?;
        let (_, tid) = thread.rsplit_once('-').context("a thread")?;
        let tid = tid.parse()?;
        let line = std::str::from_utf8(rest.0)?;
        // The name ends where fields begin; it has colons of its own.
        let name = rest.before(": ").unwrap_or(line).trim_end_matches(':').to_owned();
        let mut fields = Vec::new();
        while !rest.0.is_empty() && name.len() < line.trim_end_matches(':').len() {
            ensure!(fields.is_empty() || rest.take(" "), "no blank");
            let field = rest.before("=")?.to_owned();
            fields.push((field, rest.value(b" ")?));
        }
        Ok(Event { name, tid, fields })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_babeltrace_prints() {
        let line = "[06:44:58.5] (+?.?) vm:(23691) a::b:c: d: { cpu_id = 0 }, { vtid = 7 }, { x = -1, y = \"\\x1a\\\"é, \" }\n";
        let events = babeltrace(line.as_bytes()).unwrap();
        let fields = [
            ("x".into(), Json::Number("-1".into())),
            ("y".into(), Json::Text("\u{1a}\"é, ".into())),
        ];
        assert_eq!(
            (&*events[0].name, events[0].tid, &events[0].fields[..]),
            ("a::b:c: d", 7, &fields[..])
        );
        let line = b"[0] (+1) vm:(1) a:b: { cpu_id = 0 }, { vtid = 7 }, { _x_present = ( \"absent\" : container = 0 ), x = { { } }, y = { 5 } }";
        assert_eq!(babeltrace(line).unwrap()[0].fields, [("y".into(), Json::Number("5".into()))]);
        assert_eq!(
            babeltrace(b"[0] (+1) vm:(1) a:b: { cpu_id = 0 }, { vtid = 7 }, { }").unwrap()[0]
                .fields,
            []
        );
    }

    #[test]
    fn lines_of_text() {
        let events = text(
            "06:44:58.5 INFO  [000] thread-0-23700 p:up.rs:1: a=1 b=\"x \\n\" c=<,\n".as_bytes(),
        )
        .unwrap();
        let fields = [
            ("a".into(), Json::Number("1".into())),
            ("b".into(), Json::Text("x \n".into())),
            ("c".into(), Json::Number("<,".into())),
        ];
        assert_eq!(
            (&*events[0].name, events[0].tid, &events[0].fields[..]),
            ("p:up.rs:1", 23700, &fields[..])
        );
        let events = text(b"06:44:58.5 INFO  [000] main-7 p:ready\n").unwrap();
        assert_eq!((&*events[0].name, events[0].tid, events[0].fields.len()), ("p:ready", 7, 0));
    }
}
