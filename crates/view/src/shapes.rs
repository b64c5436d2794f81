//! The fields of event classes by name, by which the page binds the names of a filter as the
//! command line does.

use lastwords_trace::class::{FieldClass, Struct};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Structures, each once. Most classes of a stream have the same context.
#[derive(Default)]
pub(crate) struct Shapes {
    pub(crate) all: Vec<Value>,
    known: HashMap<String, u32>,
}

impl Shapes {
    /// Returns the number of a structure.
    pub(crate) fn number(&mut self, of: &Struct) -> u32 {
        let shape = structure(of);
        let next = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let at = *self.known.entry(shape.to_string()).or_insert(next);
        if at == next {
            self.all.push(shape);
        }
        at
    }
}

/// Returns a structure: `["struct", [name, class], …]`.
fn structure(of: &Struct) -> Value {
    let fields = of.fields.iter().map(|field| json!([field.name, shape(&field.class)]));
    Value::Array([json!("struct")].into_iter().chain(fields).collect())
}

/// Returns the class of a field: a word for a single value, `["array", element]`, or `["options",
/// …]`. Nothing in the JSON of an event distinguishes floats of 32 bits from others, and bytes from
/// text.
fn shape(class: &FieldClass) -> Value {
    match class {
        FieldClass::Struct(of) => structure(of),
        FieldClass::Array(array) => json!(["array", shape(&array.element)]),
        FieldClass::Variant(variant) => {
            let options = variant.options.iter().map(|option| shape(&option.class));
            Value::Array([json!("options")].into_iter().chain(options).collect())
        }
        FieldClass::Optional(optional) => json!(["options", shape(&optional.class)]),
        FieldClass::Float(float) if float.bits.length == 32 => json!("float32"),
        FieldClass::Blob(_) => json!("bytes"),
        _ => json!("value"),
    }
}
