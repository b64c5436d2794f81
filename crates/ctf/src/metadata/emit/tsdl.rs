//! CTF 1.8 metadata of any trace class. Layout: CTF specification 1.8.3, sections 5 to 7 and
//! appendix C.

use super::declare::{Declarer, Known, has_role};
use super::tokens::{member_identifier, order, push, quoted, unique};
use crate::error::{Error, Result};
use crate::names::{identifier, plain, uuid_text};
use lastwords_trace::class::{Clock, Origin, Role, Scope, TraceClass};
use lastwords_trace::schema::EnvValue;
use std::collections::HashSet;

/// Returns the text of the metadata file.
///
/// # Errors
/// CTF 1.8 cannot express a field class; the error names the field.
pub(super) fn metadata(class: &TraceClass) -> Result<String> {
    let mut text = "/* CTF 1.8 */\n\ntrace {\n\tmajor = 1;\n\tminor = 8;\n".to_owned();
    if let Some(uuid) = &class.uuid {
        push(&mut text, format_args!("\tuuid = \"{}\";\n", uuid_text(uuid)));
    }
    push(&mut text, format_args!("\tbyte_order = {};\n", order(class.order)));
    let clocks = clock_names(&class.clocks);
    let mut writer = Writer { text, class, clocks: &clocks, known: Known::new() };
    writer
        .scope("packet.header", Scope::PacketHeader, 0, 0)
        .map_err(schema_error("packet header"))?;
    writer.text.push_str("};\n\n");
    environment(&mut writer.text, &class.env);
    for (clock, name) in class.clocks.iter().zip(&clocks) {
        describe(&mut writer.text, clock, name);
    }
    for stream in 0..class.streams.len() {
        writer.stream(stream)?;
    }
    Ok(writer.text)
}

/// Returns the names of the clocks: unique identifiers.
fn clock_names(clocks: &[Clock]) -> Vec<String> {
    let mut taken = HashSet::new();
    let name = |clock: &Clock| unique(identifier(&clock.id), |name| taken.insert(name.to_owned()));
    clocks.iter().map(name).collect()
}

fn schema_error(what: &str) -> impl FnOnce(String) -> Error + use<> {
    let what = what.to_owned();
    move |why| Error::Schema(format!("{what}, {why}"))
}

fn environment(text: &mut String, env: &[(String, EnvValue)]) {
    text.push_str("env {\n");
    for (key, value) in env {
        let key = member_identifier(key);
        match value {
            EnvValue::Text(value) => {
                push(text, format_args!("\t{key} = {};\n", quoted(&plain(value))))
            }
            EnvValue::Integer(value) => push(text, format_args!("\t{key} = {value};\n")),
        }
    }
    text.push_str("};\n\n");
}

fn describe(text: &mut String, clock: &Clock, name: &str) {
    let frequency = clock.frequency.max(1);
    let seconds = clock
        .offset_seconds
        .saturating_add_unsigned(clock.offset_cycles.checked_div(frequency).unwrap_or(0));
    let description = quoted(&plain(&clock.description));
    let (cycles, absolute) = (
        clock.offset_cycles.checked_rem(frequency).unwrap_or(0),
        clock.origin == Origin::UnixEpoch,
    );
    push(
        text,
        format_args!(
            "clock {{\n\tname = \"{name}\";\n\tdescription = {description};\n\tfreq = {frequency};\n"
        ),
    );
    push(
        text,
        format_args!(
            "\toffset_s = {seconds};\n\toffset = {cycles};\n\tabsolute = {absolute};\n}};\n\n"
        ),
    );
}

struct Writer<'a> {
    text: String,
    class: &'a TraceClass,
    /// The names of the trace's clocks.
    clocks: &'a [String],
    known: Known<'a>,
}

impl<'a> Writer<'a> {
    fn stream(&mut self, at: usize) -> Result<()> {
        let Some(class) = self.class.streams.get(at) else { return Ok(()) };
        if !class.name.is_empty() {
            push(
                &mut self.text,
                format_args!("\n/* channel {} */", plain(&class.name).replace("*/", "* /")),
            );
        }
        self.text.push_str("\nstream {\n");
        // Readers refuse ids that no packet or event carries. Without an id, the only class is
        // meant.
        let (id, words) = (class.id, format!("channel {}", class.id));
        let has_stream = has_role(self.class.header.as_ref(), Role::StreamClassId);
        if has_stream {
            push(&mut self.text, format_args!("\tid = {id};\n"));
        }
        for (name, scope, what) in [
            ("packet.context", Scope::PacketContext, "packet context"),
            ("event.header", Scope::EventHeader, "event header"),
            ("event.context", Scope::CommonContext, "context"),
        ] {
            self.scope(name, scope, at, 0).map_err(schema_error(&format!("{words}, {what}")))?;
        }
        self.text.push_str("};\n");
        let has_id = has_role(class.event_header.as_ref(), Role::EventClassId);
        (0..class.events.len()).try_for_each(|event| self.event(at, event, has_id, has_stream))
    }

    /// Declares an event. `has_id`: event headers carry the id of their class. `has_stream`:
    /// packets carry the id of their stream class.
    fn event(&mut self, stream: usize, at: usize, has_id: bool, has_stream: bool) -> Result<()> {
        let Some(class) = self.class.streams.get(stream) else { return Ok(()) };
        let Some(event) = class.events.get(at) else { return Ok(()) };
        self.text.push_str("\nevent {\n");
        let name = plain(event.name.as_deref().unwrap_or_default());
        if event.name.is_some() {
            push(&mut self.text, format_args!("\tname = {};\n", quoted(&name)));
        }
        if has_id {
            push(&mut self.text, format_args!("\tid = {};\n", event.id));
        }
        if has_stream {
            push(&mut self.text, format_args!("\tstream_id = {};\n", class.id));
        }
        if let Some(level) = event.log_level {
            push(&mut self.text, format_args!("\tloglevel = {};\n", level.number()));
        }
        if !event.emf_uri.is_empty() {
            push(
                &mut self.text,
                format_args!("\tmodel.emf.uri = {};\n", quoted(&plain(&event.emf_uri))),
            );
        }
        for (word, scope) in [("context", Scope::SpecificContext), ("fields", Scope::Payload)] {
            let words = format!("channel {}, event {name:?}, field", class.id);
            self.scope(word, scope, stream, at).map_err(schema_error(&words))?;
        }
        self.text.push_str("};\n");
        Ok(())
    }

    fn scope(
        &mut self,
        name: &str,
        scope: Scope,
        stream: usize,
        event: usize,
    ) -> std::result::Result<(), String> {
        let Some(root) = self.class.scope(scope, stream, event) else { return Ok(()) };
        let roots = Scope::ALL.map(|scope| self.class.scope(scope, stream, event));
        let clock = self
            .class
            .streams
            .get(stream)
            .and_then(|stream| stream.clock)
            .filter(|_| scope != Scope::PacketHeader);
        let clock = clock.and_then(|at| self.clocks.get(at)).map(String::as_str);
        let body = Declarer::new(scope, roots, clock, &mut self.known).root(root)?;
        push(&mut self.text, format_args!("\t{name} := {body};\n"));
        Ok(())
    }
}
