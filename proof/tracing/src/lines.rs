//! Lines of text as Babeltrace prints them, and `lastwords report --style babeltrace`.

use anyhow::{Context as _, Result, ensure};
use rig::json::Json;
use rig::lines::Rest;

use crate::found::Event;

/// All up to this text, which is taken too.
fn before<'a>(rest: &mut Rest<'a>, end: &str) -> Result<&'a str> {
    let at = rest.0.windows(end.len()).position(|window| window == end.as_bytes());
    let at = at.with_context(|| format!("no {end:?}"))?;
    let before = std::str::from_utf8(&rest.0[..at])?;
    rest.0 = &rest.0[at + end.len()..];
    Ok(before)
}

/// A text in quotes, or a token up to one of these bytes.
fn value(rest: &mut Rest<'_>, ends: &[u8]) -> Result<Json> {
    if rest.0.starts_with(b"\"") {
        return Ok(Json::Text(String::from_utf8(rest.quoted()?)?));
    }
    Ok(Json::Number(String::from_utf8(rest.until(ends).to_vec())?))
}

/// A value, or an option: `{ value }`, or `{ { } }` if there is none.
fn optional(rest: &mut Rest<'_>) -> Result<Option<Json>> {
    if rest.take("( ") {
        return Ok(Some(Json::Number(before(rest, " )")?.to_owned())));
    }
    if !rest.take("{ ") {
        return value(rest, b" ,").map(Some);
    }
    if rest.take("{ } }") {
        return Ok(None);
    }
    let value = value(rest, b" ,")?;
    rest.expect(" }")?;
    Ok(Some(value))
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

/// The events of such lines.
pub(crate) fn babeltrace(bytes: &[u8]) -> Result<Vec<Event>> {
    all(bytes, |rest| {
        before(rest, ") ")?;
        before(rest, ") ")?;
        let name = before(rest, ": { cpu_id = ")?.to_owned();
        before(rest, " }, { vtid = ")?;
        let tid = before(rest, " }, {")?.parse()?;
        let mut fields = Vec::new();
        while !rest.take(" }") {
            ensure!(fields.is_empty() || rest.take(","), "no comma");
            rest.expect(" ")?;
            let field = before(rest, " = ")?.to_owned();
            if let Some(value) = optional(rest)? {
                fields.push((field, value));
            }
        }
        // Enumerations say which optional fields are there, and a number fills their last byte.
        fields.retain(|(field, _)| !field.starts_with("_") || !field.contains("present"));
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
}
