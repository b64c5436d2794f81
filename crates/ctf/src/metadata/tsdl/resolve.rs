//! Turns declarations into the model: resolves references, derives roles from names, finds clocks.

use super::block::{Event, Stream};
use super::declared::Declared;
use super::location::{TypeLocation, check, role};
use super::timestamps::{is_timestamp, mapped};
use super::types::{Integer, Length, Member, Type, shown};
use super::{Missing, Wrong, group};
use crate::metadata::unknown_clock;
use crate::program::MAX_ALIGNMENT;
use lastwords_bytes::{Budget, ByteOrder};
use lastwords_trace::class::{
    self, Bits, Clock, Encoding, EventClass, Field, FieldClass, Float, Identity, Labels, Mapping,
    Origin, Path, Range, Role, Scope, StreamClass, Struct, TraceClass, VariantOption,
};
use lastwords_trace::schema::EnvValue;
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// Largest number of clocks. Each timestamp field searches all of them for its own.
const MAX_CLOCKS: usize = 1 << 10;
const WHAT: &str = "the types that these metadata use";

/// Returns the model of the declarations.
pub(super) fn trace_class(mut declared: Declared, budget: &Budget) -> Result<TraceClass, Wrong> {
    let Some((uuid, order)) = declared.trace.as_ref().map(|trace| (trace.uuid, trace.order)) else {
        let first = declared.missing.0.told().into_iter().next().map(|first| format!("; {first}"));
        return Err(Wrong {
            line: 1,
            what: format!("expected a trace block{}", first.unwrap_or_default()),
        });
    };
    if declared.clocks.len() > MAX_CLOCKS {
        return Err(Wrong { line: 1, what: format!("more than {MAX_CLOCKS} clocks") });
    }
    let number = |(key, value): &(String, EnvValue)| match value {
        EnvValue::Integer(number) => Some((key.clone(), u64::try_from(*number).ok()?)),
        EnvValue::Text(_) => None,
    };
    let env = declared.env.iter().filter_map(number).collect();
    let mut missing = std::mem::take(&mut declared.missing);
    let clocks = clocks(&declared);
    let mut resolver = Resolver {
        clocks,
        budget,
        is_spent: Cell::new(false),
        lost_clocks: Vec::new(),
        env,
        roots: Default::default(),
    };
    let header = resolver.scope(
        Scope::PacketHeader,
        declared.trace.as_ref().and_then(|trace| trace.header.clone()),
    )?;
    let mut classes = Vec::new();
    for (id, stream, events) in group::streams(&declared, &mut missing) {
        match resolver.stream(id, stream, &events, &mut missing) {
            Err(wrong) if resolver.is_spent.get() => return Err(wrong),
            Err(Wrong { line, what }) => {
                missing.add(Wrong {
                    line,
                    what: format!("stream class {id} and its {} events: {what}", events.len()),
                });
            }
            Ok(class) => classes.push(class),
        }
    }
    resolver.lost_clocks.drain(..).for_each(|wrong| missing.add(wrong));
    Ok(TraceClass {
        uuid,
        identity: Identity {
            namespace: is_lttng(&declared).then(|| "lttng.org,2009".to_owned()),
            name: uuid.is_some().then(String::new),
            uid: uuid.as_ref().map(crate::names::uuid_text),
        },
        env: declared.env,
        header,
        clocks: resolver.clocks,
        streams: classes,
        missing: missing.0.told(),
        ..TraceClass::new(1, order)
    })
}

fn is_lttng(declared: &Declared) -> bool {
    let name =
        |value: &EnvValue| matches!(value, EnvValue::Text(text) if text.starts_with("lttng"));
    declared.env.iter().any(|(key, value)| key == "tracer_name" && name(value))
}

pub(super) fn clocks(declared: &Declared) -> Vec<Clock> {
    let clock = |clock: &super::block::Clock| Clock {
        id: clock.name.clone(),
        identity: Identity {
            namespace: None,
            name: Some(clock.name.clone()),
            uid: clock.uuid.as_ref().map(crate::names::uuid_text),
        },
        frequency: clock.frequency,
        offset_seconds: clock.offset_seconds,
        offset_cycles: clock.offset_cycles,
        origin: if clock.absolute { Origin::UnixEpoch } else { Origin::Unknown },
        precision: clock.precision,
        description: clock.description.clone(),
        ..Clock::default()
    };
    declared.clocks.iter().map(clock).collect()
}

struct Resolver<'b> {
    clocks: Vec<Clock>,
    budget: &'b Budget,
    /// The budget is spent: nothing more can be resolved.
    is_spent: Cell<bool>,
    /// References to clocks that are not declared.
    lost_clocks: Vec<Wrong>,
    /// Numbers of the environment, which lengths can refer to.
    env: HashMap<String, u64>,
    /// The types of the scopes that can be referred to, in the order of the scopes.
    roots: [Option<Rc<Type>>; 6],
}

impl Resolver<'_> {
    fn scope(&mut self, scope: Scope, root: Option<Rc<Type>>) -> Result<Option<Struct>, Wrong> {
        let position = Scope::ALL.iter().position(|other| *other == scope).unwrap_or(0);
        if let Some(location) = self.roots.get_mut(position) {
            location.clone_from(&root);
        }
        let Some(root) = root else { return Ok(None) };
        let mut location = TypeLocation { scope, names: Vec::new(), around: Vec::new(), line: 0 };
        match self.class(&root, &mut location)? {
            FieldClass::Struct(of) => Ok(Some(of)),
            _ => {
                Err(Wrong { line: 0, what: format!("{}: expected a structure", scope.tsdl_name()) })
            }
        }
    }

    fn stream(
        &mut self,
        id: u64,
        stream: Option<&Stream>,
        events: &[&Event],
        missing: &mut Missing,
    ) -> Result<StreamClass, Wrong> {
        let none = Stream::default();
        let stream = stream.unwrap_or(&none);
        let mut class = StreamClass {
            id,
            packet_context: self.scope(Scope::PacketContext, stream.packet_context.clone())?,
            event_header: self.scope(Scope::EventHeader, stream.event_header.clone())?,
            common_context: self.scope(Scope::CommonContext, stream.event_context.clone())?,
            ..StreamClass::default()
        };
        let of_stream = [
            (Scope::PacketContext, &stream.packet_context),
            (Scope::EventHeader, &stream.event_header),
            (Scope::CommonContext, &stream.event_context),
        ];
        class.clock = self.clock_of(&of_stream, None, stream.line)?;
        let mut ids: HashMap<u64, usize> = HashMap::new();
        for event in events {
            let count = ids.entry(event.id.unwrap_or(0)).or_default();
            *count = count.saturating_add(1);
        }
        for event in events {
            let id = event.id.unwrap_or(0);
            let known = match ids.get(&id) {
                Some(1) => self.event(id, event, class.clock),
                _ => Err(Wrong {
                    line: event.line,
                    what: format!("a second event of id {id} in its stream class"),
                }),
            };
            match known {
                Ok((event, clock)) => {
                    class.events.push(event);
                    class.clock = clock;
                }
                Err(wrong) if self.is_spent.get() => return Err(wrong),
                Err(Wrong { line, what }) => {
                    let name = event.name.as_deref().unwrap_or_default();
                    missing.add(Wrong {
                        line,
                        what: format!("event {id} ({name}) of stream class {}: {what}", class.id),
                    });
                }
            }
        }
        Ok(class)
    }

    /// Returns an event class, and the clock of its stream class, which is `clock` so far.
    fn event(
        &mut self,
        id: u64,
        event: &Event,
        clock: Option<usize>,
    ) -> Result<(EventClass, Option<usize>), Wrong> {
        let class = EventClass {
            id,
            name: Some(event.name.clone().unwrap_or_default()),
            log_level: event.log_level,
            emf_uri: event.emf_uri.clone(),
            specific_context: self.scope(Scope::SpecificContext, event.context.clone())?,
            payload: self.scope(Scope::Payload, event.fields.clone())?,
            ..EventClass::default()
        };
        let scopes = [(Scope::SpecificContext, &event.context), (Scope::Payload, &event.fields)];
        Ok((class, self.clock_of(&scopes, clock, event.line)?))
    }

    /// Finds the clock that the fields of scopes map to. Those before them map to `found`.
    fn clock_of(
        &mut self,
        scopes: &[(Scope, &Option<Rc<Type>>)],
        mut found: Option<usize>,
        line: u32,
    ) -> Result<Option<usize>, Wrong> {
        let mut names = Vec::new();
        for (scope, root) in scopes {
            if let Some(root) = root {
                mapped(root, *scope, "", &mut names);
            }
        }
        for name in names {
            let clock = self.clock(name.as_deref(), line)?;
            if found.is_some_and(|found| found != clock) {
                let what = "stream: its fields map to more than one clock";
                return Err(Wrong { line, what: what.into() });
            }
            found = Some(clock);
        }
        Ok(found)
    }

    /// Returns the position of the named clock, or of the only clock if no name is given. A named
    /// clock that is not declared is one whose times are not known: it counts nanoseconds from an
    /// unknown origin.
    fn clock(&mut self, name: Option<&str>, line: u32) -> Result<usize, Wrong> {
        match name {
            Some(name) => {
                let known = self.clocks.iter().position(|clock| clock.id == name);
                if known.is_none() && self.clocks.len() >= MAX_CLOCKS {
                    return Err(Wrong { line, what: format!("more than {MAX_CLOCKS} clocks") });
                }
                Ok(known.unwrap_or_else(|| {
                    let what =
                        format!("clock.{name}.value: there is no such clock: its frequency and origin are not known");
                    self.lost_clocks.push(Wrong { line, what });
                    self.clocks.push(unknown_clock(name));
                    self.clocks.len().saturating_sub(1)
                }))
            }
            None if self.clocks.len() == 1 => Ok(0),
            None => {
                Err(Wrong { line, what: "a timestamp that maps to none of several clocks".into() })
            }
        }
    }

    fn class(
        &mut self,
        of: &Rc<Type>,
        location: &mut TypeLocation<'_>,
    ) -> Result<FieldClass, Wrong> {
        self.spend(size_of::<Field>().saturating_mul(2), 1, location)?;
        match &**of {
            Type::Integer(integer) => self.integer(integer, location).map(FieldClass::Integer),
            Type::Enum { integer, labels } => {
                self.spend(
                    labels
                        .iter()
                        .map(|(label, _)| label.len().saturating_add(192))
                        .fold(0, usize::saturating_add),
                    labels.len(),
                    location,
                )?;
                let mut integer = self.integer(integer, location)?;
                integer.mappings = mappings(labels);
                Ok(FieldClass::Integer(integer))
            }
            Type::Float { length, alignment, order } => Ok(FieldClass::Float(Float {
                bits: bits(*length, *alignment, *order, location)?,
                attributes: String::new(),
            })),
            Type::Text(encoding) => Ok(text(None, *encoding)),
            Type::Struct { fields, alignment, .. } => self.structure(fields, *alignment, location),
            Type::Array { element, length, .. } => self.array(element, length, location),
            Type::Variant { tag, options, .. } => self.variant(tag.as_deref(), options, location),
        }
    }

    /// Charges the budget for bytes of the model, and for comparisons.
    fn spend(&self, bytes: usize, steps: usize, location: &TypeLocation<'_>) -> Result<(), Wrong> {
        let done = self
            .budget
            .bytes(WHAT, bytes as u64)
            .and_then(|()| self.budget.steps(WHAT, steps as u64));
        done.map_err(|error| {
            self.is_spent.set(true);
            location.wrong(error.to_string())
        })
    }

    fn integer(
        &mut self,
        integer: &Integer,
        location: &TypeLocation<'_>,
    ) -> Result<class::Integer, Wrong> {
        let at = bits(integer.length, integer.alignment, integer.order, location)?;
        let mut class = class::Integer::new(at, integer.signed, integer.base);
        let role = role(location);
        check(role, integer, location)?;
        let clock = if integer.clock.is_some()
            || is_timestamp(location.scope, location.names.last().map_or("", |n| n))
        {
            self.ensure_clock(integer.clock.as_deref());
            self.clock(integer.clock.as_deref(), location.line).map(Some)?
        } else {
            None
        };
        if clock.is_some() && location.scope == Scope::PacketHeader {
            return Err(location.wrong("a field of the packet header maps to a clock"));
        }
        if !integer.signed {
            class.roles.extend(role);
            if clock.is_some() && role != Some(Role::PacketEnd) && !class.has(Role::Clock) {
                class.roles.push(Role::Clock);
            }
        }
        Ok(class)
    }

    /// Adds a clock of nanoseconds if `name` is none and the metadata declare no clock.
    fn ensure_clock(&mut self, name: Option<&str>) {
        if name.is_none() && self.clocks.is_empty() {
            self.clocks.push(unknown_clock("default"));
        }
    }

    fn structure(
        &mut self,
        fields: &[Member],
        alignment: u64,
        location: &mut TypeLocation<'_>,
    ) -> Result<FieldClass, Wrong> {
        if alignment > MAX_ALIGNMENT {
            return Err(
                location.wrong(format!("alignment of {alignment} bits: at most {MAX_ALIGNMENT}"))
            );
        }
        let mut of = Struct { alignment, ..Struct::default() };
        let above: usize = location.names.iter().map(String::len).fold(0, usize::saturating_add);
        for (before, member) in fields.iter().enumerate() {
            self.spend(member.name.len(), (above / 64).saturating_add(1), location)?;
            let mut around = location.around.clone();
            around.push((fields, before, location.names.len()));
            let mut names = location.names.clone();
            names.push(shown(&member.name).to_owned());
            let mut inner =
                TypeLocation { scope: location.scope, names, around, line: member.line };
            let class = self.class(&member.class, &mut inner)?;
            of.fields.push(Field {
                name: shown(&member.name).to_owned(),
                class,
                attributes: String::new(),
            });
        }
        Ok(FieldClass::Struct(of))
    }

    fn array(
        &mut self,
        element: &Rc<Type>,
        length: &Length,
        location: &mut TypeLocation<'_>,
    ) -> Result<FieldClass, Wrong> {
        let length = match length {
            Length::Fixed(length) => class::Length::Fixed(*length),
            Length::Of(reference) if reference.starts_with("env.") => {
                let known = self.env.get(reference.trim_start_matches("env."));
                let length = known.ok_or_else(|| {
                    location
                        .wrong(format!("length {reference}: expected a number of the block `env`"))
                })?;
                class::Length::Fixed(*length)
            }
            Length::Of(reference) => {
                let (path, target) = self.find(reference, location)?;
                match &*target {
                    Type::Integer(integer) | Type::Enum { integer, .. } if !integer.signed => {
                        class::Length::Of(path)
                    }
                    _ => {
                        return Err(location
                            .wrong(format!("length {reference}: expected an unsigned integer")));
                    }
                }
            }
        };
        if let Type::Integer(integer) | Type::Enum { integer, .. } = &**element
            && integer.text
            && integer.length == 8
            && integer.alignment == 8
        {
            return Ok(text(Some(length), Encoding::Utf8));
        }
        let is_uuid = location.scope == Scope::PacketHeader
            && matches!(location.names.as_slice(), [name] if name == "uuid")
            && length == class::Length::Fixed(16);
        // An element has no name of its own: roles and clocks by name are only for members.
        let element = self.class(element, location)?;
        Ok(FieldClass::Array(Box::new(class::Array {
            length,
            element,
            alignment: 1,
            is_uuid,
            attributes: String::new(),
        })))
    }

    fn variant(
        &mut self,
        tag: Option<&str>,
        options: &[Member],
        location: &mut TypeLocation<'_>,
    ) -> Result<FieldClass, Wrong> {
        let tag = tag.ok_or_else(|| location.wrong("variant: expected a tag in `<` and `>`"))?;
        let (selector, target) = self.find(tag, location)?;
        let Type::Enum { labels, .. } = &*target else {
            return Err(location.wrong(format!("variant: its tag {tag} is no enumeration")));
        };
        let mut variant =
            class::Variant { selector, options: Vec::new(), attributes: String::new() };
        self.spend(0, labels.len(), location)?;
        let mut by_label: HashMap<&str, Vec<Range>> = HashMap::new();
        labels.iter().for_each(|(label, range)| by_label.entry(label).or_default().push(*range));
        let above: usize = location.names.iter().map(String::len).fold(0, usize::saturating_add);
        for option in options {
            self.spend(option.name.len(), (above / 64).saturating_add(1), location)?;
            let ranges = by_label.remove(option.name.as_str()).unwrap_or_default();
            let mut inner = TypeLocation {
                scope: location.scope,
                names: location.names.clone(),
                around: location.around.clone(),
                line: option.line,
            };
            let class = self.class(&option.class, &mut inner)?;
            let name = shown(&option.name).to_owned();
            variant.options.push(VariantOption { name, ranges, class, attributes: String::new() });
        }
        Ok(FieldClass::Variant(Box::new(variant)))
    }

    /// Finds the field that a reference means. A reference that begins with the name of a scope
    /// starts at its root. Any other is looked up in the structures around the referring type, the
    /// innermost first.
    fn find(
        &self,
        reference: &str,
        location: &TypeLocation<'_>,
    ) -> Result<(Path, Rc<Type>), Wrong> {
        for (scope, root) in Scope::ALL.iter().zip(&self.roots) {
            let Some(rest) =
                reference.strip_prefix(scope.tsdl_name()).and_then(|rest| rest.strip_prefix('.'))
            else {
                continue;
            };
            let tokens: Vec<&str> = rest.split('.').collect();
            if *scope > location.scope {
                return Err(
                    location.wrong(format!("{reference} comes after the field that refers to it"))
                );
            }
            if let Some(Type::Struct { fields, .. }) = root.as_deref()
                && let Some((names, class)) = self.walk(fields, &tokens, Vec::new(), location)?
            {
                return Ok((Path { scope: *scope, names }, class));
            }
            return Err(location.wrong(format!("there is no field {reference}")));
        }
        let tokens: Vec<&str> = reference.split('.').collect();
        for (fields, before, depth) in location.around.iter().rev() {
            let head = location.names.get(..*depth).unwrap_or_default().to_vec();
            let fields = fields.get(..*before).unwrap_or_default();
            if let Some((names, class)) = self.walk(fields, &tokens, head, location)? {
                return Ok((Path { scope: location.scope, names }, class));
            }
        }
        Err(location.wrong(format!("there is no field {reference} before its use")))
    }

    /// Follows tokens through members, elements and options.
    fn walk(
        &self,
        fields: &[Member],
        tokens: &[&str],
        mut names: Vec<String>,
        location: &TypeLocation<'_>,
    ) -> Result<Target, Wrong> {
        let Some((first, rest)) = tokens.split_first() else { return Ok(None) };
        let Some(member) = self.member(fields, first, location)? else { return Ok(None) };
        names.push(shown(&member.name).to_owned());
        self.descend(&member.class, rest, names, location)
    }

    fn descend(
        &self,
        class: &Rc<Type>,
        tokens: &[&str],
        names: Vec<String>,
        location: &TypeLocation<'_>,
    ) -> Result<Target, Wrong> {
        match (&**class, tokens) {
            (Type::Array { element, .. }, _) => self.descend(element, tokens, names, location),
            (_, []) => Ok(Some((names, Rc::clone(class)))),
            (Type::Struct { fields, .. }, _) => self.walk(fields, tokens, names, location),
            (Type::Variant { options, .. }, [first, rest @ ..]) => {
                match self.member(options, first, location)? {
                    Some(option) => self.descend(&option.class, rest, names, location),
                    None => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    fn member<'m>(
        &self,
        members: &'m [Member],
        name: &str,
        location: &TypeLocation<'_>,
    ) -> Result<Option<&'m Member>, Wrong> {
        self.spend(0, members.len(), location)?;
        Ok(members.iter().find(|member| member.name == name))
    }
}

/// The names that lead to a field, and its type; none if there is no such field.
type Target = Option<(Vec<String>, Rc<Type>)>;

fn bits(
    length: u64,
    alignment: u64,
    order: ByteOrder,
    location: &TypeLocation<'_>,
) -> Result<Bits, Wrong> {
    match (u8::try_from(length), u16::try_from(alignment)) {
        (Ok(length), Ok(alignment)) => Ok(Bits { length, alignment, order, reversed: false }),
        _ => Err(location.wrong(format!("alignment of {alignment} bits: at most {MAX_ALIGNMENT}"))),
    }
}

fn text(length: Option<class::Length>, encoding: Encoding) -> FieldClass {
    FieldClass::Text(class::Text { length, encoding, attributes: String::new() })
}

/// Returns one mapping for each label, sorted.
fn mappings(labels: &[(String, Range)]) -> Labels {
    let mut mappings: std::collections::BTreeMap<&str, Vec<Range>> =
        std::collections::BTreeMap::new();
    for (label, range) in labels {
        mappings.entry(label).or_default().push(*range);
    }
    mappings
        .into_iter()
        .map(|(label, ranges)| Mapping { label: label.to_owned(), ranges })
        .collect()
}
