//! OTLP, decoded by OpenTelemetry's own messages (`otlp.py`): programs that die in several ways,
//! compared with their own accounts.

mod account;
mod child;
mod kills;

use crate::support::{Place, ran};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of the package `opentelemetry-proto`, which `cargo xtask setup` installs.
const VERSION: &str = "1.45.2";

/// A log record or a span.
#[derive(Debug, Clone)]
pub(crate) struct Decoded {
    /// The object, whose members keep their order.
    pub(crate) line: String,
    object: Map<String, Value>,
}

impl Decoded {
    pub(crate) fn text(&self, name: &str) -> &str {
        self.object[name].as_str().unwrap_or_else(|| panic!("{name} in {self:?}"))
    }

    pub(crate) fn number(&self, name: &str) -> i128 {
        number(&self.object[name]).unwrap_or_else(|| panic!("{name} in {self:?}"))
    }

    pub(crate) fn is_span(&self) -> bool {
        self.text("kind") == "span"
    }

    pub(crate) fn resource(&self, name: &str) -> Option<&Value> {
        self.object["resource"].get(name)
    }

    pub(crate) fn attributes(&self) -> &Map<String, Value> {
        self.object["attributes"].as_object().expect("attributes")
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&Value> {
        self.attributes().get(name)
    }

    /// It is the record with the verdict on a trace.
    pub(crate) fn is_verdict(&self) -> bool {
        self.text("name") == "lastwords.verdict"
    }
}

/// An integer.
pub(crate) fn number(value: &Value) -> Option<i128> {
    value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))
}

/// The records and spans of files, file by file, in their order.
pub(crate) fn decode(files: &[PathBuf]) -> Vec<Vec<Decoded>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package = folder.join("../../target/tools/opentelemetry-proto").join(VERSION);
    let mut python = Command::new("python3");
    python.arg(folder.join("tests/otlp.py")).args(files).env("PYTHONPATH", &package);
    let ran = ran(python.output().expect("python3 is needed: cargo xtask setup"));
    assert_eq!(ran.status, 0, "{} (opentelemetry-proto {VERSION}: cargo xtask setup)", ran.err);
    let mut found: Vec<Vec<Decoded>> = Vec::new();
    for line in ran.out.lines() {
        let Ok(Value::Object(object)) = serde_json::from_str(line) else { panic!("{line}") };
        match found.last_mut() {
            Some(last) if !object.contains_key("file") => {
                last.push(Decoded { line: line.to_owned(), object });
            }
            _ => found.push(Vec::new()),
        }
    }
    assert_eq!(found.len(), files.len());
    found
}

/// Writes inputs as OTLP; what was decoded.
pub(crate) fn converted(place: &Place, args: &[&str]) -> Vec<Decoded> {
    let file = place.at("converted.otlp");
    let out = file.to_str().expect("UTF-8");
    place.ok(&[&["convert"], args, &["--force", "-o", out]].concat());
    decode(&[file]).remove(0)
}

#[test]
fn a_selection_selects_records_and_spans_by_name() {
    let place = Place::new();
    child::died(&place, "abort 7").ended();
    let named = |found: &[Decoded], is_span: bool| -> Vec<String> {
        let own = found.iter().filter(|one| one.is_span() == is_span && !one.is_verdict());
        own.map(|one| one.text("name").to_owned()).collect()
    };
    let whole = converted(&place, &["orders"]);
    let json = place.ok(&["convert", "orders", "--to", "json", "-o", "-"]);
    let events = json.lines().skip(1).filter(|line| !line.contains("\"channel\":\"errors\""));
    // Each span that was closed takes two events, and one that was open takes one.
    let open = |one: &&Decoded| one.attribute("lastwords.open").is_some();
    let count = whole.iter().filter(|one| one.is_span() && !open(one)).count();
    let opened = whole.iter().filter(|one| one.is_span()).filter(open).count();
    assert_eq!(named(&whole, false).len() + 2 * count + opened, events.count());
    assert!(count > 3 && opened > 0, "{count} {opened}");
    let last = converted(&place, &["orders", "--last", "3"]);
    let (all, three) = (named(&whole, false), named(&last, false));
    assert!(three.len() <= 3 && all.iter().filter(|name| three.contains(name)).count() > 0);
    let ready = converted(&place, &["orders", "-e", "*:ready", "--filter", "n > 0"]);
    assert!(!ready.is_empty() && named(&ready, true).is_empty());
    assert!(named(&ready, false).iter().all(|name| name.ends_with(":ready")), "{ready:?}");
    // One record of a verdict for each trace, whatever is selected.
    for found in [&whole, &last, &ready] {
        assert_eq!(found.iter().filter(|one| one.is_verdict()).count(), 1);
    }
    // Without the openings, the closings are records, and are counted.
    let closings = converted(&place, &["orders", "-e", "span:close*"]);
    let verdict = closings.iter().find(|one| one.is_verdict()).expect("a verdict");
    assert_eq!(named(&closings, false).len(), count);
    assert_eq!(
        verdict.attribute("lastwords.spans.without_begin").and_then(number),
        Some(count as i128)
    );
}
