//! JSON lines. Numbers stay as their digits: serde_json, as the workspace has it, rounds floats.

use anyhow::{Context as _, Result, bail, ensure};

use super::found::{Event, Found};
use super::shape::Shape;
use super::value::Form;

#[derive(Debug, Clone, PartialEq)]
enum Json {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

/// The events of a file.
pub(super) fn read(shape: &Shape, bytes: &[u8]) -> Result<Vec<Event>> {
    let text = std::str::from_utf8(bytes).context("JSON that is not UTF-8")?;
    let names: Vec<String> = (0..shape.classes.len()).map(|class| shape.name_of(class)).collect();
    let mut lines = text.lines();
    let head = parse(lines.next().context("no first line")?)?;
    ensure!(head.get("schema").and_then(Json::text) == Some("lastwords.events.v1"), "the schema: {head:?}");
    lines.map(|line| event(shape, &names, line).with_context(|| line.chars().take(400).collect::<String>())).collect()
}

fn event(shape: &Shape, names: &[String], line: &str) -> Result<Event> {
    let json = parse(line)?;
    let name = json.get("event").and_then(Json::text).context("no name")?;
    let class = names.iter().position(|known| known == name).with_context(|| format!("INVENTED: {name}"))?;
    let cpu = match json.get("cpu") {
        Some(Json::Number(digits)) => Some(digits.parse()?),
        _ => None,
    };
    let mut contexts = Vec::new();
    if let Some(Json::Object(members)) = json.get("context") {
        for (name, value) in members {
            let form = shape.user_contexts.iter().find(|field| field.name == *name).map(|field| &field.form);
            contexts.push((name.clone(), found(value, form)));
        }
    }
    let Some(Json::Object(members)) = json.get("fields") else { bail!("no fields") };
    let forms = shape.classes[class].fields.iter().map(|field| Some(&field.form)).chain(std::iter::repeat(None));
    let fields = members.iter().zip(forms).map(|((name, value), form)| (name.clone(), found(value, form))).collect();
    Ok(Event { class, cpu, contexts, fields })
}

fn found(json: &Json, form: Option<&Form>) -> Found {
    match json {
        Json::Null => Found::Token("null".into()),
        Json::Bool(value) => Found::Bool(*value),
        Json::Number(digits) => Found::Token(digits.clone()),
        Json::Text(text) => Found::Text(text.clone().into_bytes()),
        Json::List(list) => Found::List(list.iter().map(|json| found(json, None)).collect()),
        Json::Object(_) if matches!(form, Some(Form::Enum { .. })) => {
            let label = json.get("label").and_then(Json::text).map(|text| text.as_bytes().to_vec());
            Found::Label(label, Box::new(json.get("value").map_or(Found::Token(String::new()), |v| found(v, None))))
        }
        Json::Object(_) => Found::Token("an object".into()),
    }
}

fn parse(text: &str) -> Result<Json> {
    let mut rest = text;
    let json = value(&mut rest)
        .with_context(|| format!("not JSON: before {:?}", &rest.chars().take(60).collect::<String>()))?;
    ensure!(rest.is_empty(), "not JSON: {rest:?} is left");
    Ok(json)
}

fn take(rest: &mut &str, prefix: &str) -> bool {
    let found = rest.strip_prefix(prefix);
    *rest = found.unwrap_or(rest);
    found.is_some()
}

/// One value. What is written has no blanks between tokens.
fn value(rest: &mut &str) -> Result<Json> {
    if take(rest, "{") {
        let mut members: Vec<(String, Json)> = Vec::new();
        while !take(rest, "}") {
            ensure!(members.is_empty() || take(rest, ","), "no comma");
            let Json::Text(name) = value(rest)? else { bail!("a name that is no text") };
            ensure!(take(rest, ":"), "no colon");
            ensure!(members.iter().all(|(other, _)| *other != name), "two members {name}");
            members.push((name, value(rest)?));
        }
        return Ok(Json::Object(members));
    }
    if take(rest, "[") {
        let mut list = Vec::new();
        while !take(rest, "]") {
            ensure!(list.is_empty() || take(rest, ","), "no comma");
            list.push(value(rest)?);
        }
        return Ok(Json::List(list));
    }
    if take(rest, "\"") {
        return string(rest).map(Json::Text);
    }
    for (word, json) in [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))] {
        if take(rest, word) {
            return Ok(json);
        }
    }
    let end = rest.find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c))).unwrap_or(rest.len());
    ensure!(end > 0, "no value");
    let (digits, behind) = rest.split_at(end);
    *rest = behind;
    Ok(Json::Number(digits.to_owned()))
}

/// A string behind its first quote.
fn string(rest: &mut &str) -> Result<String> {
    let mut text = String::new();
    let mut high = None;
    loop {
        let c = rest.chars().next().context("a string without an end")?;
        *rest = &rest[c.len_utf8()..];
        match c {
            '"' => {
                ensure!(high.is_none(), "half a surrogate pair");
                return Ok(text);
            }
            '\\' => {
                let c = rest.chars().next().context("an escape without an end")?;
                *rest = &rest[c.len_utf8()..];
                match c {
                    '"' | '\\' | '/' => text.push(c),
                    'b' => text.push('\u{8}'),
                    'f' => text.push('\u{c}'),
                    'n' => text.push('\n'),
                    'r' => text.push('\r'),
                    't' => text.push('\t'),
                    'u' => {
                        let digits = rest.get(..4).context("four digits")?;
                        let unit = u32::from_str_radix(digits, 16)?;
                        *rest = &rest[4..];
                        match (high.take(), unit) {
                            (None, 0xd800..0xdc00) => high = Some(unit),
                            (Some(high), 0xdc00..0xe000) => {
                                let code = 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00);
                                text.push(char::from_u32(code).context("a character")?);
                            }
                            (None, _) => text.push(char::from_u32(unit).context("a character")?),
                            _ => bail!("half a surrogate pair"),
                        }
                    }
                    _ => bail!("the escape \\{c}"),
                }
            }
            _ => {
                ensure!(u32::from(c) >= 32, "a bare control character");
                text.push(c);
            }
        }
    }
}
