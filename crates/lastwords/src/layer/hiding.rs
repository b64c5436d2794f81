//! Fields that rules hide by name: what takes the values of an event or span gets texts instead of
//! them, so that nothing behind it ever has the values.

use std::fmt;

use tracing_core::Metadata;
use tracing_core::field::{Field, Visit};

use super::message;
use super::site::Site;
use crate::session::hidden::{self, Mark, Way};

/// How each field of a callsite is hidden, if a field is.
pub(super) type Ways = &'static [Option<Way>];

/// Returns how the callsite's fields are hidden; none if no rule hides a field. The memory is never
/// freed: a callsite is evaluated when it is first reached and when rules change.
pub(super) fn ways(metadata: &Metadata<'_>) -> Option<Ways> {
    if hidden::turn() == 0 {
        return None;
    }
    let ways: Vec<_> = metadata.fields().iter().map(|field| hidden::way(field.name())).collect();
    ways.iter().any(Option::is_some).then(|| &*Vec::leak(ways))
}

/// Calls `record` with what takes the values: `to`, or what hides values from it.
#[inline]
pub(super) fn values(site: &Site, to: &mut dyn Visit, record: impl FnOnce(&mut dyn Visit)) {
    match site.hides() {
        None => record(to),
        Some(ways) => record(&mut Hiding { ways: Some(ways), to }),
    }
}

/// Does the same for values of a callsite that is not known.
pub(super) fn values_by_name(to: &mut dyn Visit, record: impl FnOnce(&mut dyn Visit)) {
    match hidden::turn() {
        0 => record(to),
        _ => record(&mut Hiding { ways: None, to }),
    }
}

/// Passes values on, and texts instead of hidden ones.
struct Hiding<'a> {
    /// None if the rules are to be asked for each field.
    ways: Option<Ways>,
    to: &'a mut dyn Visit,
}

impl Hiding<'_> {
    fn mark(&self, field: &Field, text: fmt::Arguments<'_>) -> Option<Mark> {
        let way = match self.ways {
            Some(ways) => *ways.get(field.index())?,
            None => hidden::way(field.name()),
        };
        Some(Mark::new(way?, text))
    }

    /// Calls `pass` with what takes the value, unless the field is hidden: then gives it a text.
    fn pass(&mut self, field: &Field, text: fmt::Arguments<'_>, pass: impl FnOnce(&mut dyn Visit)) {
        match self.mark(field, text) {
            None => pass(self.to),
            Some(mark) => self.to.record_str(field, mark.as_str()),
        }
    }
}

impl Visit for Hiding<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.pass(field, format_args!("{value}"), |to| to.record_u64(field, value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.pass(field, format_args!("{value}"), |to| to.record_i64(field, value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.pass(field, format_args!("{value}"), |to| to.record_f64(field, value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.pass(field, format_args!("{value}"), |to| to.record_bool(field, value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.pass(field, format_args!("{value}"), |to| to.record_str(field, value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // A constant message is in the program, and no value.
        let is_constant = || field.name() == "message" && message::constant(value).is_some();
        match self.mark(field, format_args!("{value:?}")) {
            Some(mark) if !is_constant() => self.to.record_str(field, mark.as_str()),
            _ => self.to.record_debug(field, value),
        }
    }
}
