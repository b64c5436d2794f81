//! JSON lines.

use anyhow::{Context as _, Result, bail, ensure};
use rig::json::{self, Json};

use super::form::Form;
use super::found::{Event, Found};
use super::shape::Shape;

/// The events of a file.
pub(super) fn read(shape: &Shape, bytes: &[u8]) -> Result<Vec<Event>> {
    let text = std::str::from_utf8(bytes).context("JSON that is not UTF-8")?;
    let names: Vec<String> = (0..shape.classes.len()).map(|class| shape.name_of(class)).collect();
    let mut lines = text.lines();
    let head = json::parse(lines.next().context("no first line")?)?;
    ensure!(
        head.get("schema").and_then(Json::text) == Some("lastwords.events.v1"),
        "the schema: {head:?}"
    );
    lines
        .map(|line| {
            event(shape, &names, line).with_context(|| line.chars().take(400).collect::<String>())
        })
        .collect()
}

fn event(shape: &Shape, names: &[String], line: &str) -> Result<Event> {
    let json = json::parse(line)?;
    let name = json.get("event").and_then(Json::text).context("no name")?;
    let class = names
        .iter()
        .position(|known| known == name)
        .with_context(|| format!("INVENTED: {name}"))?;
    let cpu = match json.get("cpu") {
        Some(Json::Number(digits)) => Some(digits.parse()?),
        _ => None,
    };
    let mut contexts = Vec::new();
    if let Some(Json::Object(members)) = json.get("context") {
        for (name, value) in members {
            let form = shape
                .user_contexts
                .iter()
                .find(|field| field.name == *name)
                .map(|field| &field.form);
            contexts.push((name.clone(), found(value, form)));
        }
    }
    let Some(Json::Object(members)) = json.get("fields") else { bail!("no fields") };
    let forms = shape.classes[class]
        .fields
        .iter()
        .map(|field| Some(&field.form))
        .chain(std::iter::repeat(None));
    let fields = members
        .iter()
        .zip(forms)
        .map(|((name, value), form)| (name.clone(), found(value, form)))
        .collect();
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
            Found::Label(
                label,
                Box::new(json.get("value").map_or(Found::Token(String::new()), |v| found(v, None))),
            )
        }
        Json::Object(_) => Found::Token("an object".into()),
    }
}
