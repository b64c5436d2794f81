//! The typed view of one event: its fields as columns.
//!
//! The types come from the classes of the event in all traces. A field has one type, or is JSON if
//! its classes differ. Values come from the column `fields` of the table `events`, which has them
//! exactly.

use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int64Builder, StringBuilder, UInt64Builder,
};
use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use lastwords_arrow::Table;
use lastwords_open::Selected;
use lastwords_render::iter::split_name;
use lastwords_render::json::Plan;
use lastwords_render::streams::scope_code;
use lastwords_trace::class::Scope;
use lastwords_trace::visit::{Node, Shape};
use serde::Deserialize;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The columns of `events` that a view begins with.
const HEAD: [&str; 10] =
    ["crash_id", "trace", "channel", "ts", "time", "before_end_ns", "cpu", "tid", "pid", "comm"];
/// The column of `events` with all fields.
const FIELDS: &str = "fields";

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Long,
    Unsigned,
    Float,
    Bool,
    Text,
    /// The label of an enumeration.
    Label,
    /// All else, as JSON.
    Json,
}

impl Kind {
    fn data_type(self) -> DataType {
        match self {
            Self::Long => DataType::Int64,
            Self::Unsigned => DataType::UInt64,
            Self::Float => DataType::Float64,
            Self::Bool => DataType::Boolean,
            Self::Text | Self::Label | Self::Json => DataType::Utf8,
        }
    }

    /// Returns the type of a scalar field, and whether it has labels.
    fn from_shape(shape: &Shape) -> Option<(Self, bool)> {
        Some(match shape {
            Shape::Integer { length, signed, mappings, .. } => {
                let is_long = *signed || *length < 64;
                (if is_long { Self::Long } else { Self::Unsigned }, !mappings.is_empty())
            }
            Shape::BitArray { .. } => (Self::Unsigned, false),
            Shape::Bool => (Self::Bool, false),
            Shape::Float(_) => (Self::Float, false),
            Shape::Text(_) | Shape::Blob => (Self::Text, false),
            _ => return None,
        })
    }
}

/// A field as a column.
#[derive(Debug, Clone)]
struct Column {
    /// The name of the field.
    field: String,
    /// The name of the column.
    name: String,
    kind: Kind,
}

/// The view of an event.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// The whole names of the event.
    names: Vec<String>,
    head: Vec<&'static str>,
    columns: Vec<Column>,
    /// The columns of each field.
    by_field: HashMap<String, Vec<usize>>,
    schema: SchemaRef,
}

impl View {
    /// Makes the view of the event with a name, with or without its provider. `wanted` has the
    /// names of the columns that are wanted; without it, all are. Returns none if no trace
    /// describes such an event.
    ///
    /// # Errors
    /// The view has no column of a name.
    pub(crate) fn new(
        selected: &Selected,
        name: &str,
        wanted: Option<&[String]>,
    ) -> Result<Option<Self>, String> {
        let (names, mut columns) = classes(selected, name);
        if names.is_empty() {
            return Ok(None);
        }
        let is_wanted = |name: &str| wanted.is_none_or(|own| own.iter().any(|own| own == name));
        let known = |name: &String| {
            HEAD.contains(&name.as_str()) || columns.iter().any(|column| column.name == *name)
        };
        if let Some(unknown) = wanted.into_iter().flatten().find(|name| !known(name)) {
            return Err(format!("the event {name} has no column {unknown}"));
        }
        columns.retain(|column| is_wanted(&column.name));
        let head: Vec<&str> = HEAD.into_iter().filter(|name| is_wanted(name)).collect();
        let mut by_field: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, column) in columns.iter().enumerate() {
            by_field.entry(column.field.clone()).or_default().push(at);
        }
        let table = Table::Events.schema();
        let own = head.iter().filter_map(|name| table.field_with_name(name).ok().cloned());
        let field = |column: &Column| Field::new(&column.name, column.kind.data_type(), true);
        let fields: Vec<Field> = own.chain(columns.iter().map(field)).collect();
        let schema = Arc::new(Schema::new(fields).with_metadata(table.metadata().clone()));
        Ok(Some(Self { names, head, columns, by_field, schema }))
    }

    /// Returns the schema.
    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Returns globs that match the event, and no other.
    pub(crate) fn globs(&self) -> Vec<String> {
        let escape = |c: char| match c {
            '*' | '?' | '[' => format!("[{c}]"),
            c => c.to_string(),
        };
        self.names.iter().map(|name| name.chars().map(escape).collect()).collect()
    }

    /// Returns the columns of `events` from which the view is made.
    pub(crate) fn columns(&self) -> Option<Vec<String>> {
        let fields = (!self.columns.is_empty()).then_some(FIELDS);
        // A batch without columns has no rows.
        let head = if self.head.is_empty() { &HEAD[3..4] } else { &self.head[..] };
        Some(head.iter().copied().chain(fields).map(str::to_owned).collect())
    }

    /// Makes the view of a batch of `events`. Adds the values that their columns cannot hold to
    /// `unfit`: they are null.
    ///
    /// # Errors
    /// The batch is none of `events`.
    pub(crate) fn batch(
        &self,
        events: &RecordBatch,
        unfit: &mut u64,
    ) -> Result<RecordBatch, ArrowError> {
        let mut arrays = Vec::with_capacity(self.schema.fields().len());
        for name in &self.head {
            let at = events.schema().index_of(name)?;
            arrays.push(Arc::clone(events.column(at)));
        }
        if !self.columns.is_empty() {
            let texts = events.column(events.schema().index_of(FIELDS)?).as_string::<i32>();
            let builder = |column: &Column| Builder::new(column.kind);
            let builders = self.columns.iter().map(builder).collect();
            let mut cells = Cells { view: self, builders, row: 0, unfit };
            for row in 0..texts.len() {
                cells.row = row;
                let text = if texts.is_null(row) { "{}" } else { texts.value(row) };
                serde_json::Deserializer::from_str(text)
                    .deserialize_map(&mut cells)
                    .map_err(|error| ArrowError::JsonError(error.to_string()))?;
                cells.end_row();
            }
            arrays.extend(cells.builders.into_iter().map(Builder::finish));
        }
        RecordBatch::try_new(self.schema(), arrays)
    }
}

/// Returns the whole names of the event classes of a name, and the columns of their fields.
fn classes(selected: &Selected, name: &str) -> (Vec<String>, Vec<Column>) {
    let (mut names, mut fields): (Vec<String>, Vec<(String, Kind, bool)>) = Default::default();
    for trace in selected.packets() {
        for (stream, class) in trace.class().streams.iter().enumerate() {
            for (at, event) in class.events.iter().enumerate() {
                let Some(whole) = &event.name else { continue };
                if whole != name && split_name(whole).1 != name {
                    continue;
                }
                if !names.contains(whole) {
                    names.push(whole.clone());
                }
                if let Some(code) = scope_code(trace, Scope::Payload, stream, at) {
                    add_fields(code.nodes(), &Plan::new(code), &mut fields);
                }
            }
        }
    }
    (names, named(fields))
}

/// Adds the fields of a class: members of the payload itself.
fn add_fields(nodes: &[Node], plan: &Plan<'_>, fields: &mut Vec<(String, Kind, bool)>) {
    for (at, node) in nodes.iter().enumerate() {
        if node.depth != 1 || node.name.is_empty() || !plan.shows(at) {
            continue;
        }
        let (kind, has_labels) = match &node.shape {
            Shape::Optional | Shape::Variant => optional(nodes.get(at.saturating_add(1)..)),
            shape => Kind::from_shape(shape),
        }
        .unwrap_or((Kind::Json, false));
        match fields.iter_mut().find(|(name, ..)| *name == node.name) {
            Some((_, known, labels)) if *known == kind => *labels |= has_labels,
            Some((_, known, labels)) => (*known, *labels) = (Kind::Json, false),
            None => fields.push((node.name.clone(), kind, has_labels)),
        }
    }
}

/// Returns the type of a field that may be absent: its only option beside an empty structure.
fn optional(behind: Option<&[Node]>) -> Option<(Kind, bool)> {
    let parts = behind?.iter().take_while(|node| node.name.is_empty());
    let own: Vec<&Node> = parts.filter(|node| node.depth == 1).collect();
    match own.as_slice() {
        [value] => Kind::from_shape(&value.shape),
        [none, value] if matches!(none.shape, Shape::Struct) => Kind::from_shape(&value.shape),
        _ => None,
    }
}

/// Gives each field a column of its name. A name that is taken gets `f_` in front.
fn named(fields: Vec<(String, Kind, bool)>) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    let mut add = |field: &str, name: &str, kind| {
        let mut name = name.to_owned();
        let is_taken = |columns: &[Column], name: &str| {
            HEAD.contains(&name) || columns.iter().any(|column| column.name == name)
        };
        while is_taken(&columns, &name) {
            name.insert_str(0, "f_");
        }
        columns.push(Column { field: field.to_owned(), name, kind });
    };
    for (field, kind, has_labels) in fields {
        add(&field, &field, kind);
        if has_labels {
            add(&field, &format!("{field}_label"), Kind::Label);
        }
    }
    columns
}

/// Builds a column.
enum Builder {
    Long(Int64Builder),
    Unsigned(UInt64Builder),
    Float(Float64Builder),
    Bool(BooleanBuilder),
    Text(Kind, StringBuilder),
}

/// An enumeration in JSON.
#[derive(Deserialize)]
struct Enumeration<'a> {
    #[serde(borrow)]
    value: &'a RawValue,
    #[serde(borrow)]
    label: Option<Cow<'a, str>>,
}

/// A text in JSON.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Returns a text of JSON.
fn text(raw: &str) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Text<'_>>(raw).ok().map(|text| text.0)
}

impl Builder {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Long => Self::Long(Int64Builder::new()),
            Kind::Unsigned => Self::Unsigned(UInt64Builder::new()),
            Kind::Float => Self::Float(Float64Builder::new()),
            Kind::Bool => Self::Bool(BooleanBuilder::new()),
            Kind::Text | Kind::Label | Kind::Json => Self::Text(kind, StringBuilder::new()),
        }
    }

    fn len(&self) -> usize {
        use arrow_array::builder::ArrayBuilder as _;
        match self {
            Self::Long(own) => own.len(),
            Self::Unsigned(own) => own.len(),
            Self::Float(own) => own.len(),
            Self::Bool(own) => own.len(),
            Self::Text(_, own) => own.len(),
        }
    }

    /// Appends a value of JSON. Returns false if the column cannot hold it: it is null then.
    fn append(&mut self, raw: &str) -> bool {
        let own = raw.starts_with('{').then(|| serde_json::from_str::<Enumeration<'_>>(raw).ok());
        let own = own.flatten();
        let number = own.as_ref().map_or(raw, |own| own.value.get());
        let is_null = raw == "null";
        match self {
            Self::Long(to) => put(number.parse().ok(), is_null, |value| to.append_option(value)),
            Self::Unsigned(to) => {
                put(number.parse().ok(), is_null, |value| to.append_option(value))
            }
            Self::Float(to) => {
                put(raw.trim_matches('"').parse().ok(), is_null, |value| to.append_option(value))
            }
            Self::Bool(to) => put(raw.parse().ok(), is_null, |value| to.append_option(value)),
            Self::Text(kind, to) => {
                let value = match kind {
                    Kind::Json => Some(Cow::Borrowed(raw)),
                    Kind::Label => own.and_then(|own| own.label),
                    _ => text(raw),
                };
                let is_null = is_null || *kind == Kind::Label;
                put(value, is_null, |value| to.append_option(value))
            }
        }
    }

    fn append_null(&mut self) {
        match self {
            Self::Long(to) => to.append_null(),
            Self::Unsigned(to) => to.append_null(),
            Self::Float(to) => to.append_null(),
            Self::Bool(to) => to.append_null(),
            Self::Text(_, to) => to.append_null(),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Long(mut own) => Arc::new(own.finish()),
            Self::Unsigned(mut own) => Arc::new(own.finish()),
            Self::Float(mut own) => Arc::new(own.finish()),
            Self::Bool(mut own) => Arc::new(own.finish()),
            Self::Text(_, mut own) => Arc::new(own.finish()),
        }
    }
}

/// Appends a value or null. Returns false if there is a value that the column cannot hold.
fn put<T>(value: Option<T>, is_null: bool, append: impl FnOnce(Option<T>)) -> bool {
    let fits = is_null || value.is_some();
    append(value);
    fits
}

/// The columns of a batch that are being made.
struct Cells<'a> {
    view: &'a View,
    builders: Vec<Builder>,
    row: usize,
    unfit: &'a mut u64,
}

impl Cells<'_> {
    fn end_row(&mut self) {
        let next = self.row.saturating_add(1);
        for builder in self.builders.iter_mut().filter(|builder| builder.len() < next) {
            builder.append_null();
        }
    }
}

impl<'de> Visitor<'de> for &mut Cells<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fields of an event")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some((name, raw)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
            let Some(columns) = self.view.by_field.get(&*name.0) else { continue };
            for at in columns {
                let Some(builder) = self.builders.get_mut(*at) else { continue };
                // A name may be there twice: its first value counts.
                if builder.len() == self.row && !builder.append(raw.get()) {
                    *self.unfit = self.unfit.saturating_add(1);
                }
            }
        }
        Ok(())
    }
}
