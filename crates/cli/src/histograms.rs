//! Histograms of the kernel's tracer as JSON (docs/JSON.md), and lines of their text.

use lastwords_ftrace::histogram::{Histogram, Key, Row, Value};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::json;

/// A histogram.
#[derive(serde::Serialize)]
pub(crate) struct One {
    instance: String,
    event: String,
    trigger: String,
    state: String,
    rows: Vec<Of>,
    hits: u64,
    entries: u64,
    dropped: u64,
}

#[derive(serde::Serialize)]
struct Of {
    keys: Members<Key>,
    values: Members<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    more: Vec<String>,
}

impl From<Histogram> for One {
    fn from(of: Histogram) -> Self {
        let row = |row: Row| Of {
            keys: Members(row.keys),
            values: Members(row.values),
            more: row.more.iter().map(|line| line.trim_end().to_owned()).collect(),
        };
        Self {
            instance: of.instance,
            event: of.event,
            trigger: of.trigger,
            state: of.state,
            rows: of.rows.into_iter().map(row).collect(),
            hits: of.hits,
            entries: of.entries,
            dropped: of.dropped,
        }
    }
}

/// Returns a line of a histogram's text without control characters but its tabs.
pub(crate) fn safe(line: &str) -> String {
    line.split('\t').map(crate::table::plain).collect::<Vec<_>>().join("\t")
}

/// Names and what they have, as an object in this order.
struct Members<T>(Vec<(String, T)>);

impl<T: AsJson> Serialize for Members<T> {
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
            Self::Unknown => json!(null),
        }
    }
}

impl AsJson for Value {
    fn as_json(&self) -> serde_json::Value {
        match self {
            Self::Number(number) => json!(number),
            Self::Text(text) => json!(text),
            Self::Unknown => json!(null),
        }
    }
}
