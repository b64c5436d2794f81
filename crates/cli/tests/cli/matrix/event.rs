//! An event as the truth has it, or as a reader of some format found it.

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(i128),
    Real(f64),
    Text(String),
    /// Bytes that are no text: a list of numbers in CTF, hexadecimal digits elsewhere.
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Record(Vec<(String, Value)>),
    /// A value of an enumeration, and its label.
    Label(Option<String>, i128),
}

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// Nanoseconds from the clock's origin.
    pub(super) ns: i128,
    /// CPU of its stream; none where it is bound to none, or where the format does not say.
    pub(super) cpu: Option<u32>,
    pub(super) name: String,
    pub(super) contexts: Vec<(String, Value)>,
    pub(super) fields: Vec<(String, Value)>,
}

/// A named value.
pub(super) fn named(name: &str, value: Value) -> (String, Value) {
    (name.to_owned(), value)
}

/// `value` with the six digits that `%g` shows.
fn six_digits(value: f64) -> String {
    format!("{value:.5e}")
}

/// As `%g` prints it.
fn general(value: f64) -> String {
    // The samples have no number that `%g` prints with an exponent.
    let digits = format!("{value:.6}");
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Value {
    /// Whether a reader found this value, in the form in which its format shows it.
    pub(super) fn is(&self, found: &Self) -> bool {
        match (self, found) {
            (Self::Bool(is), Self::Number(found)) => i128::from(*is) == *found,
            (Self::Real(is), Self::Real(found)) => six_digits(*is) == six_digits(*found),
            (Self::Real(is), Self::Number(found)) => six_digits(*is) == six_digits(*found as f64),
            // Babeltrace prints a whole real as an integer.
            (Self::Number(is), Self::Real(found)) => *is as f64 == *found,
            (Self::Bytes(is), Self::Text(found)) => {
                is.iter().map(|b| format!("{b:02x}")).collect::<String>() == *found
            }
            (Self::Bytes(is), Self::List(found)) => {
                is.len() == found.len()
                    && is.iter().zip(found).all(|(b, found)| Self::Number((*b).into()).is(found))
            }
            // Babeltrace does not say of a list whether it is of bytes.
            (Self::List(is), Self::Text(found)) => {
                let byte = |value: &Self| match value {
                    Self::Number(byte) => u8::try_from(*byte).ok(),
                    _ => None,
                };
                let bytes: Option<Vec<u8>> = is.iter().map(byte).collect();
                bytes.is_some_and(|bytes| Self::Bytes(bytes).is(&Self::Text(found.clone())))
            }
            (Self::List(is), Self::List(found)) => {
                is.len() == found.len() && is.iter().zip(found).all(|(is, found)| is.is(found))
            }
            (Self::Record(is), Self::Record(found)) => are(is, found),
            // Perfetto has the label alone, and JSON an object.
            (Self::Label(Some(label), _), Self::Text(found)) => label == found,
            (Self::Label(None, is), Self::Number(found)) => is == found,
            (Self::Label(label, number), Self::Record(members)) => {
                let label = label.clone().map_or(Self::Null, Self::Text);
                are(&[named("value", Self::Number(*number)), named("label", label)], members)
            }
            _ => self == found,
        }
    }

    /// As the style `fields` of `report` shows it; all numbers are decimal.
    pub(super) fn plain(&self) -> String {
        let join = |parts: Vec<String>| format!("{{{}}}", parts.join(","));
        match self {
            Self::Null => String::new(),
            Self::Bool(is) => is.to_string(),
            Self::Number(number) | Self::Label(None, number) => number.to_string(),
            Self::Real(value) => general(*value),
            Self::Text(text) if text.is_empty() || text.contains([' ', '"']) => {
                format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
            }
            Self::Text(text) | Self::Label(Some(text), _) => text.clone(),
            Self::Bytes(bytes) => bytes.iter().map(|b| format!("{b:02x}")).collect(),
            Self::List(list) => join(list.iter().map(Self::plain).collect()),
            Self::Record(members) => join(
                members.iter().map(|(name, value)| format!("{name}={}", value.plain())).collect(),
            ),
        }
    }
}

/// Whether a reader found these values, in this order and under these names.
fn are(is: &[(String, Value)], found: &[(String, Value)]) -> bool {
    is.len() == found.len()
        && is.iter().zip(found).all(|((name, is), (other, found))| name == other && is.is(found))
}

/// Compares the events that a reader found with the truth: none is missing, none is invented, all
/// values are right. `cpu`: the format says which CPU an event is of.
pub(super) fn compare(mut truth: Vec<Event>, found: &[Event], cpu: bool) -> Result<(), String> {
    if !found.is_sorted_by_key(|event| event.ns) {
        return Err("events are not in the order of their times".into());
    }
    let key = |event: &Event| (event.ns, event.name.clone(), event.cpu.filter(|_| cpu));
    truth.sort_by_key(key);
    let mut found: Vec<&Event> = found.iter().collect();
    found.sort_by_key(|event| key(event));
    for (is, found) in truth.iter().zip(&found) {
        let is_same = key(is) == key(found)
            && are(&is.contexts, &found.contexts)
            && are(&is.fields, &found.fields);
        if !is_same {
            return Err(format!("the truth is\n  {is:?}\nfound was\n  {found:?}"));
        }
    }
    match truth.len() == found.len() {
        true => Ok(()),
        false => Err(format!("{} events were found, there are {}", found.len(), truth.len())),
    }
}
