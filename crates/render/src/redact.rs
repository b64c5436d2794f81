//! Hides values by the names of their fields, before writers get them.

use lastwords_ctf::program::{Hides, How};
use lastwords_glob::{is_named, matches};
use lastwords_trace::source::OpenSpan;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// The fields that are hidden. A clone shares what is known of them.
#[derive(Debug, Clone, Default)]
pub struct Redaction {
    rules: Arc<[Rule]>,
}

/// Hides the values of fields that match.
#[derive(Debug)]
struct Rule {
    /// The rule as it was given.
    text: String,
    /// A glob over the names of events ([`is_named`]); none for all events.
    event: Option<String>,
    /// A glob over the names of fields.
    field: String,
    /// The values are hashed, not dropped.
    is_hash: bool,
    /// A field matched. Whoever opens or reads traces sets it, and it is read when that is done; it
    /// orders no other memory.
    is_used: AtomicBool,
}

impl Rule {
    fn matches(&self, event: &str, field: &str) -> bool {
        // The contexts of all events have a star for a name.
        let of_event = |glob: &String| event == "*" || is_named(glob, event);
        let is_match = matches(&self.field, field) && self.event.as_ref().is_none_or(of_event);
        if is_match {
            self.is_used.store(true, Relaxed);
        }
        is_match
    }
}

impl Redaction {
    /// Makes a redaction of rules: `FIELD`, or `EVENT/FIELD` for fields of some events, each part a
    /// glob. The first values are dropped, the others are hashed. If rules of both kinds match, the
    /// value is dropped.
    #[must_use]
    pub fn new(dropped: &[String], hashed: &[String]) -> Self {
        let rule = |text: &String, is_hash| {
            let (event, field) = match text.split_once('/') {
                Some((event, field)) => (Some(event.to_owned()), field.to_owned()),
                None => (None, text.clone()),
            };
            Rule { text: text.clone(), event, field, is_hash, is_used: AtomicBool::new(false) }
        };
        let dropped = dropped.iter().map(|text| rule(text, false));
        Self { rules: dropped.chain(hashed.iter().map(|text| rule(text, true))).collect() }
    }

    /// Returns the rules that no field has matched so far.
    pub fn unused(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().filter(|rule| !rule.is_used.load(Relaxed)).map(|rule| rule.text.as_str())
    }

    /// Returns true if nothing is hidden.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Hides fields of a span. The text has `key=value` pairs, and a value may contain blanks and
    /// equals signs. So the whole text from the first hidden field on is hidden.
    pub fn span(&self, span: &mut OpenSpan) {
        let name = format!("{}::{}", span.target, span.name);
        span.fields = self.fields(&name, &span.fields);
    }

    /// Returns the fields of a span as they are shown.
    fn fields(&self, span: &str, fields: &str) -> String {
        let event = format!("span:new {span}");
        for (equals, _) in fields.match_indices('=') {
            let (before, _) = fields.split_at(equals);
            // A key may contain blanks, too, and a span's name a brace.
            let starts = before.match_indices([' ', '{']).map(|(at, _)| at.saturating_add(1));
            for start in std::iter::once(0).chain(starts) {
                let Some(key) = before.get(start..) else { continue };
                if let Some(how) = self.how(&event, key) {
                    let (_, value) = fields.split_at(equals.saturating_add(1));
                    return format!("{before}={}", how.text(value));
                }
            }
        }
        fields.to_owned()
    }

    /// Returns a span as events show it, `target::name{fields}`.
    fn shown_span(&self, shown: &str) -> String {
        match shown.split_once('{') {
            None => shown.to_owned(),
            Some((name, fields)) => {
                let fields = fields.strip_suffix('}').unwrap_or(fields);
                format!("{name}{{{}}}", self.fields(name, fields))
            }
        }
    }

    fn how(&self, event: &str, field: &str) -> Option<How> {
        let matching = self.rules.iter().filter(|rule| rule.matches(event, field));
        // All rules that match are used. A rule that drops comes before one that hashes.
        let first = matching.fold(None, |first, rule| first.or(Some(rule)))?;
        Some(if first.is_hash { How::Hash } else { How::Drop })
    }
}

impl Hides for Redaction {
    fn field(&self, event: &str, field: &str) -> Option<How> {
        let of_span = || {
            let all = self.clone();
            How::Rewrite(Arc::new(move |shown| all.shown_span(shown)))
        };
        self.how(event, field).or_else(|| (field == "span").then(of_span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redaction(dropped: &[&str], hashed: &[&str]) -> Redaction {
        let [dropped, hashed] = [dropped, hashed]
            .map(|rules| rules.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>());
        Redaction::new(&dropped, &hashed)
    }

    #[test]
    fn rules_choose_fields() {
        let redaction = redaction(&["pass*", "auth:log*/peer"], &["user", "*word"]);
        let is = |event: &str, field: &str| match redaction.field(event, field) {
            None => "-",
            Some(How::Drop) => "drop",
            Some(How::Hash) => "hash",
            Some(How::Rewrite(_)) => "rewrite",
        };
        assert_eq!(redaction.unused().count(), 4);
        assert_eq!(is("auth:login", "password"), "drop");
        assert_eq!(is("auth:login", "byword"), "hash");
        assert_eq!(redaction.unused().collect::<Vec<_>>(), ["auth:log*/peer", "user"]);
        assert_eq!(is("auth:login", "user"), "hash");
        assert_eq!(is("auth:login", "peer"), "drop");
        assert_eq!(is("net:rx", "peer"), "-");
        assert_eq!(is("*", "peer"), "drop");
        assert_eq!(is("net:rx", "span"), "rewrite");
        assert_eq!(is("net:rx", "message"), "-");
    }

    #[test]
    fn a_span_is_hidden_from_the_first_hidden_field_on() {
        let redaction = redaction(&["password", "two words"], &[]);
        let shown = |text: &str| redaction.shown_span(text);
        assert_eq!(shown("svc::f{id=7 n=1}"), "svc::f{id=7 n=1}");
        assert_eq!(shown("svc::f"), "svc::f");
        assert_eq!(shown("svc::f{id=7 password=a b=c n=1}"), "svc::f{id=7 password=<redacted>}");
        assert_eq!(shown("svc::f{password=}x}"), "svc::f{password=<redacted>}");
        assert_eq!(shown("svc::f{a=1 two words=x}"), "svc::f{a=1 two words=<redacted>}");
        assert_eq!(shown("a{b}::f{password=x}"), "a{b}::f{password=<redacted>}");
        // What is cut may have been a brace.
        assert_eq!(shown("svc::f{password=abc…"), "svc::f{password=<redacted>}");
    }
}
