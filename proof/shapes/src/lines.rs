//! Lines of text: Babeltrace's, and those of `report`. The fields of a class say what comes next.

use anyhow::{Context as _, Result, ensure};
use rig::lines::Rest;

use super::form::Form;
use super::found::{Event, Found, built_in};
use super::shape::{Field, Format, Shape};

fn token(rest: &mut Rest<'_>, ends: &[u8]) -> Found {
    Found::Token(String::from_utf8_lossy(rest.until(ends)).into_owned())
}

/// The events in what Babeltrace printed, or `report --style babeltrace`.
pub(super) fn babeltrace(shape: &Shape, format: Format, bytes: &[u8]) -> Result<Vec<Event>> {
    let needle = |class: usize| format!("{}: {{ cpu_id = ", shape.name_of(class)).into_bytes();
    let needles: Vec<Vec<u8>> = (0..shape.classes.len()).map(needle).collect();
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let read = |line: &[u8]| {
        pretty(shape, format, &needles, line)
            .with_context(|| String::from_utf8_lossy(line).chars().take(600).collect::<String>())
    };
    lines.map(read).collect()
}

/// The class of the event in a line and what is behind its name.
fn class_of<'a>(needles: &[Vec<u8>], line: &'a [u8]) -> Result<(usize, Rest<'a>)> {
    let find = |needle: &[u8]| line.windows(needle.len()).position(|window| window == needle);
    let places =
        needles.iter().enumerate().filter_map(|(class, needle)| Some((find(needle)?, class)));
    let (place, class) = places.min().context("INVENTED: no event of the shape")?;
    Ok((class, Rest(&line[place + needles[class].len()..])))
}

fn pretty(shape: &Shape, format: Format, needles: &[Vec<u8>], line: &[u8]) -> Result<Event> {
    let (class, mut rest) = class_of(needles, line)?;
    let cpu: u64 = std::str::from_utf8(rest.until(b" "))?.parse()?;
    let mut contexts = Vec::new();
    rest.expect(" }, {")?;
    let names = built_in(shape);
    if !names.is_empty() || !shape.user_contexts.is_empty() {
        for name in names {
            member(&mut rest, name, contexts.is_empty())?;
            let value = match name {
                "procname" => Found::Text(rest.quoted()?),
                _ => token(&mut rest, b", "),
            };
            contexts.push((name.to_owned(), value));
        }
        for field in &shape.user_contexts {
            let value = pretty_field(&mut rest, field, format, contexts.is_empty())?;
            contexts.push((field.name.clone(), value));
        }
        rest.expect(" }, {")?;
    }
    let mut fields = Vec::new();
    for field in &shape.classes[class].fields {
        let value = pretty_field(&mut rest, field, format, fields.is_empty());
        fields.push((field.name.clone(), value.with_context(|| format!("field {}", field.name))?));
    }
    ensure!(rest.0 == b" }", "more fields: {:?}", String::from_utf8_lossy(rest.0));
    Ok(Event {
        class,
        cpu: u32::try_from(cpu).ok().filter(|cpu| *cpu != u32::MAX),
        contexts,
        fields,
    })
}

fn member(rest: &mut Rest<'_>, name: &str, first: bool) -> Result<()> {
    if !first {
        rest.expect(",")?;
    }
    rest.expect(" ")?;
    // CTF 1.8 asks for a `_` before each name, which some readers take away with those that belong
    // to the name.
    while rest.take("_") {}
    rest.expect(name.trim_start_matches('_'))?;
    rest.expect(" = ")
}

fn pretty_field(rest: &mut Rest<'_>, field: &Field, format: Format, first: bool) -> Result<Found> {
    let mut count = None;
    if field.form.is_counted() && (format != Format::Ctf2 || has_length(rest, &field.name, first)) {
        member(rest, &format!("{}_length", field.name.trim_start_matches('_')), first)?;
        count = token(rest, b", ").integer();
    }
    member(rest, &field.name, first && count.is_none())?;
    let value = match &field.form {
        form if form.is_text() => Found::Text(rest.quoted()?),
        Form::Bytes { .. } | Form::Sequence { .. } | Form::Array { .. } | Form::Standard { .. } => {
            list(rest)?
        }
        Form::Enum { .. } => {
            rest.expect("( ")?;
            let label = if rest.take("<unknown>") { None } else { Some(rest.quoted()?) };
            rest.expect(" : container = ")?;
            let number = token(rest, b" ");
            rest.expect(" )")?;
            Found::Label(label, Box::new(number))
        }
        _ => token(rest, b", "),
    };
    if let (Some(count), Found::List(list)) = (count, &value) {
        ensure!(count == list.len() as i128, "{count} elements are told, {} are there", list.len());
    }
    Ok(value)
}

fn has_length(rest: &Rest<'_>, name: &str, first: bool) -> bool {
    let begin = String::from_utf8_lossy(&rest.0[..rest.0.len().min(60)]).into_owned();
    let begin = if first { begin.as_str() } else { begin.trim_start_matches(',') };
    let name = name.trim_start_matches('_');
    begin.trim_start_matches([' ', '_']).starts_with(&format!("{name}_length = "))
}

fn list(rest: &mut Rest<'_>) -> Result<Found> {
    let mut list = Vec::new();
    if rest.take("{ ") {
        while !rest.take("}") {
            let digits = rest.until(b" ");
            list.push(Found::Token(format!("0x{}", String::from_utf8_lossy(digits))));
            rest.expect(" ")?;
        }
        return Ok(Found::List(list));
    }
    rest.expect("[")?;
    while !rest.take(" ]") {
        if !list.is_empty() {
            rest.expect(",")?;
        }
        rest.expect(&format!(" [{}] = ", list.len()))?;
        list.push(token(rest, b", "));
    }
    Ok(Found::List(list))
}

/// The events in what `recover --to text` wrote.
pub(super) fn text(shape: &Shape, bytes: &[u8]) -> Result<Vec<Event>> {
    let needle = |class: usize| match &shape.classes[class].mark {
        Some(format) => {
            format!(" marker: {}", format.split_once('|').map_or("", |(head, _)| head)) + "|"
        }
        None => format!(" {}:", shape.name_of(class)),
    };
    let needles: Vec<Vec<u8>> =
        (0..shape.classes.len()).map(|class| needle(class).into_bytes()).collect();
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let read = |line: &[u8]| {
        columns(shape, &needles, line)
            .with_context(|| String::from_utf8_lossy(line).chars().take(600).collect::<String>())
    };
    lines.map(read).collect()
}

fn columns(shape: &Shape, needles: &[Vec<u8>], line: &[u8]) -> Result<Event> {
    let (class, mut rest) = class_of(needles, line)?;
    let mut head = Rest(&line[..line.len() - rest.0.len() - needles[class].len()]);
    head.until(b"[");
    head.expect("[")?;
    let cpu = token(&mut head, b"]").integer();
    head.expect("]")?;
    let mut contexts = Vec::new();
    let names = built_in(shape);
    let mut thread = head.0.strip_prefix(b" ").unwrap_or(head.0);
    if names.contains(&"procname") {
        let end = if names.iter().any(|name| matches!(*name, "vtid" | "vpid")) {
            thread.iter().rposition(|byte| *byte == b'-').context("a thread")?
        } else {
            thread.len()
        };
        contexts.push(("procname".to_owned(), Found::Text(thread[..end].to_vec())));
        thread = thread.get(end + 1..).unwrap_or_default();
    }
    if names.contains(&"vtid") {
        contexts
            .push(("vtid".to_owned(), Found::Token(String::from_utf8_lossy(thread).into_owned())));
    }
    let mut fields = Vec::new();
    let in_message = shape.classes[class].mark.is_some();
    for field in &shape.classes[class].fields {
        let value = if in_message {
            let value = value(&mut rest, &field.form, true);
            rest.expect("|")?;
            value
        } else {
            rest.expect(&format!(" {}=", field.name))?;
            value(&mut rest, &field.form, false)
        };
        fields.push((field.name.clone(), value.with_context(|| format!("field {}", field.name))?));
    }
    if names.contains(&"vpid") {
        rest.expect(" vpid=")?;
        contexts.push(("vpid".to_owned(), token(&mut rest, b" ")));
    }
    for field in &shape.user_contexts {
        rest.expect(&format!(" {}=", field.name))?;
        contexts.push((field.name.clone(), value(&mut rest, &field.form, false)?));
    }
    ensure!(rest.0.is_empty(), "more fields: {:?}", String::from_utf8_lossy(rest.0));
    Ok(Event { class, cpu: cpu.and_then(|cpu| u32::try_from(cpu).ok()), contexts, fields })
}

/// A value of a line for people; in a message, text has no quotes.
fn value(rest: &mut Rest<'_>, form: &Form, in_message: bool) -> Result<Found> {
    let ends: &[u8] = if in_message { b"|" } else { b" " };
    Ok(match form {
        form if form.is_text() && in_message => Found::Text(rest.escaped(b'|')?),
        form if form.is_text() => word(rest)?,
        Form::Enum { labels, .. } => {
            let found = word_or_message(rest, ends)?;
            match &found {
                Found::Text(text) if !labels.iter().any(|(_, label)| label.as_bytes() == text) => {
                    Found::Token(String::from_utf8_lossy(text).into_owned())
                }
                _ => found,
            }
        }
        Form::Bytes { .. } => Found::Text(rest.until(ends).to_vec()),
        Form::Sequence { .. } | Form::Array { .. } | Form::Standard { .. } => {
            rest.expect("{")?;
            let mut list = Vec::new();
            while !rest.take("}") {
                ensure!(list.is_empty() || rest.take(","), "no comma");
                list.push(token(rest, b",}"));
            }
            Found::List(list)
        }
        _ => token(rest, ends),
    })
}

/// A plain word, or a text in quotes.
fn word(rest: &mut Rest<'_>) -> Result<Found> {
    word_or_message(rest, b" ")
}

fn word_or_message(rest: &mut Rest<'_>, ends: &[u8]) -> Result<Found> {
    Ok(Found::Text(if rest.0.starts_with(b"\"") {
        rest.quoted()?
    } else {
        rest.until(ends).to_vec()
    }))
}
