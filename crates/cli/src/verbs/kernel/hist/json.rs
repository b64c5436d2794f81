//! Histograms as JSON (docs/JSON.md).

use lastwords_ftrace::histogram::{Histogram, Key, Row, Value};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::json;

/// The name of the layout.
const SCHEMA: &str = "lastwords.histograms.v1";

/// All histograms of an instance or file.
#[derive(serde::Serialize)]
pub(super) struct Histograms<'a> {
    schema: &'static str,
    source: &'a str,
    histograms: Vec<One<'a>>,
}

#[derive(serde::Serialize)]
struct One<'a> {
    instance: &'a str,
    event: &'a str,
    trigger: &'a str,
    state: &'a str,
    rows: Vec<Of<'a>>,
    hits: u64,
    entries: u64,
    dropped: u64,
}

#[derive(serde::Serialize)]
struct Of<'a> {
    keys: Members<'a, Key>,
    values: Members<'a, Value>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    more: &'a [String],
}

/// Names and what they have, as an object in this order.
struct Members<'a, T>(&'a [(String, T)]);

impl<T: AsJson> Serialize for Members<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (at, (name, value)) in self.0.iter().enumerate() {
            // Values of one name are those of modifiers.
            let before = self.0.iter().take(at).filter(|(other, _)| other == name).count();
            match before {
                0 => map.serialize_entry(name, &value.as_json())?,
                _ => map.serialize_entry(&format!("{name}_{}", before + 1), &value.as_json())?,
            }
        }
        map.end()
    }
}

trait AsJson {
    fn as_json(&self) -> serde_json::Value;
}

impl AsJson for Key {
    fn as_json(&self) -> serde_json::Value {
        match self {
            Self::Number(number) => json!(number),
            Self::Text(text) => json!(text),
            Self::Named { name, number } => json!({ "value": number, "label": name }),
            Self::Power(power) => json!({ "power": power }),
            Self::Range { first, last } => json!({ "first": first, "last": last }),
            Self::Stack(functions) => json!(functions),
        }
    }
}

impl AsJson for Value {
    fn as_json(&self) -> serde_json::Value {
        match self {
            Self::Number(number) => json!(number),
            Self::Text(text) => json!(text),
        }
    }
}

/// Returns the histograms of an instance or file.
pub(super) fn of<'a>(source: &'a str, histograms: &'a [Histogram]) -> Histograms<'a> {
    let row = |row: &'a Row| Of {
        keys: Members(&row.keys),
        values: Members(&row.values),
        more: &row.more,
    };
    let one = |of: &'a Histogram| One {
        instance: &of.instance,
        event: &of.event,
        trigger: &of.trigger,
        state: &of.state,
        rows: of.rows.iter().map(row).collect(),
        hits: of.hits,
        entries: of.entries,
        dropped: of.dropped,
    };
    Histograms { schema: SCHEMA, source, histograms: histograms.iter().map(one).collect() }
}
