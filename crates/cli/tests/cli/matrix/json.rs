//! JSON lines, parsed by `serde_json`; members keep their order.

use super::event::{Event, Value};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, is: bool) -> Result<Value, E> {
        Ok(Value::Bool(is))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Real(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = sequence.next_element()? {
            list.push(element);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Value::Record(members))
    }
}

/// A line with an event, or an object in one.
pub(super) struct Line(Vec<(String, Value)>);

impl Line {
    /// Its member of this name.
    pub(super) fn member(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let Value::Text(text) = self.member(name)? else { return None };
        Some(text)
    }

    pub(super) fn number(&self, name: &str) -> Option<i128> {
        let Value::Number(number) = self.member(name)? else { return None };
        Some(*number)
    }

    /// The object that is its member of this name.
    pub(super) fn object(&self, name: &str) -> Self {
        Self(self.members(name))
    }

    pub(super) fn members(&self, name: &str) -> Vec<(String, Value)> {
        let Some(Value::Record(members)) = self.member(name) else { return Vec::new() };
        members.clone()
    }
}

/// The lines behind the first, which describes the traces.
pub(super) fn lines(text: &str) -> Result<Vec<Line>, String> {
    let line = |line| match serde_json::from_str(line) {
        Ok(Value::Record(members)) => Ok(Line(members)),
        other => Err(format!("{line}: {other:?}")),
    };
    text.lines().skip(1).map(line).collect()
}

/// The events of sessions and CTF traces.
pub(super) fn events(text: &str) -> Result<Vec<Event>, String> {
    let event = |line: &Line| {
        let time: jiff::Timestamp = line.text("time")?.parse().ok()?;
        Some(Event {
            ns: time.as_nanosecond(),
            cpu: line.number("cpu").and_then(|cpu| u32::try_from(cpu).ok()),
            name: line.text("event")?.to_owned(),
            contexts: line.members("context"),
            fields: line.members("fields"),
        })
    };
    lines(text)?.iter().map(|line| event(line).ok_or_else(|| format!("{:?}", line.0))).collect()
}

/// The position of the trace of an event's line.
pub(super) fn trace_of(line: &str) -> Option<usize> {
    let Value::Record(members) = serde_json::from_str(line).ok()? else { return None };
    usize::try_from(Line(members).number("trace")?).ok()
}

/// The description of each trace in the first line.
pub(super) fn traces(text: &str) -> Option<Vec<Line>> {
    let Value::Record(head) = serde_json::from_str(text.lines().next()?).ok()? else { return None };
    let Value::List(traces) = Line(head).member("traces")?.clone() else { return None };
    let of_trace =
        |trace| if let Value::Record(members) = trace { Some(Line(members)) } else { None };
    traces.into_iter().map(of_trace).collect()
}

/// The first line says that a trace lost something.
pub(super) fn says_losses(text: &str) -> Option<bool> {
    let losses =
        |trace: &Line| if let Value::Bool(is) = trace.member("losses")? { Some(*is) } else { None };
    traces(text)?.iter().map(losses).try_fold(false, |any, losses| Some(any | losses?))
}
