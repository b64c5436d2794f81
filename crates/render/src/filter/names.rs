//! Finds the names that a filter reads, or a user wants to see, in event classes.

use crate::streams::channel;
use lastwords_ctf::read::Trace;
use lastwords_filter::{BuiltIn, Name, Step};
use lastwords_trace::class::{FieldClass, Scope, Struct};
use lastwords_trace::schema::EnvValue;
use lastwords_trace::visit::NodeId;
use std::collections::{BTreeSet, HashMap};

/// The scopes of an event, in the order in which they are decoded.
pub(crate) const SCOPES: [Scope; 3] =
    [Scope::CommonContext, Scope::SpecificContext, Scope::Payload];

/// The value of a name in the events of a class.
pub(crate) enum Source<'t> {
    /// The value that [`Values`] has at the name's position.
    Field,
    Text(String),
    Integer(i64),
    Level(u8, &'static str),
    /// The CPU of the stream.
    Cpu,
    /// The name of the thread whose id is in the values, behind those of the names.
    ThreadName(HashMap<i64, &'t str>),
}

/// A node whose value is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) node: NodeId,
    /// Position among the values.
    pub(crate) slot: usize,
    /// The position in each array around the node, the outermost first.
    pub(crate) elements: Vec<u64>,
}

/// The nodes whose values are wanted, for each of [`SCOPES`].
#[derive(Default)]
pub(crate) struct Targets {
    pub(crate) of: [Vec<Target>; 3],
    /// Structures and arrays are wanted too, not only single values.
    pub(crate) with_containers: bool,
}

/// Looks for names in an event class.
pub(crate) struct Lookup<'t, 'a> {
    /// The trace.
    pub(crate) trace: &'t Trace,
    /// Positions of the stream class and of the event class in it.
    pub(crate) class: (usize, usize),
    /// Position for the value of the id of a thread whose name is wanted.
    pub(crate) thread: usize,
    /// The nodes that were found.
    pub(crate) targets: &'a mut Targets,
}

impl<'t> Lookup<'t, '_> {
    /// Finds the source of a name, and adds the nodes that have it to the targets of their scopes.
    /// `slot` is the position of its value.
    pub(crate) fn name(&mut self, name: &Name, slot: usize) -> Option<Source<'t>> {
        let is_above = BuiltIn::is_above_fields(name);
        let in_payload = !name.is_context() && !is_above;
        if in_payload && self.add(Scope::Payload, name.steps(), slot)
            || !is_above && self.add_context(name.steps(), slot)
        {
            return Some(Source::Field);
        }
        // Contexts of packets have their own names, but for the CPU, which is that of the stream.
        let built_in =
            BuiltIn::from_name(name).filter(|of| !name.is_context() || *of == BuiltIn::Cpu)?;
        self.built_in(built_in, slot)
    }

    /// Finds the source of a name that means the same for traces of several kinds. Fields of the
    /// payload are not looked at.
    pub(crate) fn built_in(&mut self, built_in: BuiltIn, slot: usize) -> Option<Source<'t>> {
        let class = self.trace.class();
        let own = class.streams.get(self.class.0)?;
        let described = own.events.get(self.class.1)?;
        match built_in {
            BuiltIn::Cpu => Some(Source::Cpu),
            BuiltIn::Comm if self.context(&["comm", "procname"], slot) => Some(Source::Field),
            BuiltIn::Comm => {
                let names = class.thread_names();
                (!names.is_empty() && self.context(&["tid", "vtid"], self.thread))
                    .then_some(Source::ThreadName(names))
            }
            BuiltIn::Pid if self.context(&["pid", "vpid"], slot) => Some(Source::Field),
            BuiltIn::Pid => match class.property("vpid").or_else(|| class.property("pid"))? {
                EnvValue::Integer(pid) => Some(Source::Integer(*pid)),
                EnvValue::Text(_) => None,
            },
            // What ftrace calls a pid is the id of a thread.
            BuiltIn::Tid => {
                let is_there = self.context(&["tid", "vtid"], slot)
                    || (class.is_ftrace() && self.context(&["pid"], slot));
                is_there.then_some(Source::Field)
            }
            BuiltIn::Level => described
                .log_level
                .map(|severity| Source::Level(severity.number(), severity.word())),
            BuiltIn::Event => {
                Some(Source::Text(described.name.clone().unwrap_or_else(|| "<unknown>".to_owned())))
            }
            BuiltIn::Channel => Some(Source::Text(channel(own))),
        }
    }

    /// Adds the first context that has one of these names. Returns true if there is one.
    pub(crate) fn context(&mut self, names: &[&str], slot: usize) -> bool {
        let steps = |name: &&str| [Step::Member((*name).to_owned())];
        names.iter().any(|name| self.add_context(&steps(name), slot))
    }

    fn add_context(&mut self, steps: &[Step], slot: usize) -> bool {
        self.add(Scope::SpecificContext, steps, slot) || self.add(Scope::CommonContext, steps, slot)
    }

    /// Adds the nodes of a scope to which the steps lead. Returns true if there are any.
    fn add(&mut self, scope: Scope, steps: &[Step], slot: usize) -> bool {
        let (stream, event) = self.class;
        let Some(root) = self.trace.class().scope(scope, stream, event) else { return false };
        let Targets { of, with_containers } = &mut *self.targets;
        let Some(targets) = SCOPES.iter().position(|of| *of == scope).and_then(|at| of.get_mut(at))
        else {
            return false;
        };
        let (before, with_containers) = (targets.len(), *with_containers);
        let mut finder = Finder { next: 0, slot, elements: Vec::new(), with_containers, targets };
        finder.structure(root, Some(steps));
        targets.len() > before
    }
}

/// Counts nodes as the compiler of programs does: one for each field, in order, before those inside
/// it.
struct Finder<'a> {
    next: NodeId,
    slot: usize,
    elements: Vec<u64>,
    with_containers: bool,
    targets: &'a mut Vec<Target>,
}

impl Finder<'_> {
    /// Adds a node if `steps` end at it.
    fn found(&mut self, node: NodeId, steps: Option<&[Step]>) {
        if steps.is_some_and(<[Step]>::is_empty) {
            self.targets.push(Target { node, slot: self.slot, elements: self.elements.clone() });
        }
    }

    /// Takes a structure. `steps` lead from there to the value; none if it is elsewhere.
    fn structure(&mut self, of: &Struct, steps: Option<&[Step]>) {
        if self.with_containers {
            self.found(self.next, steps);
        }
        self.next = self.next.saturating_add(1);
        for field in &of.fields {
            self.field(&field.class, steps.and_then(|steps| behind(steps, &field.name)));
        }
    }

    fn field(&mut self, class: &FieldClass, steps: Option<&[Step]>) {
        let node = self.next;
        match class {
            FieldClass::Struct(of) => return self.structure(of, steps),
            FieldClass::Array(array) => {
                if self.with_containers {
                    self.found(node, steps);
                }
                self.next = self.next.saturating_add(1);
                let inner = match steps.and_then(<[Step]>::split_first) {
                    Some((Step::Element(index), rest)) => Some((*index, rest)),
                    _ => None,
                };
                self.elements.extend(inner.map(|(index, _)| index));
                self.field(&array.element, inner.map(|(_, rest)| rest));
                inner.and_then(|_| self.elements.pop());
                return;
            }
            // An option has no name of its own in a path.
            FieldClass::Variant(variant) => {
                self.next = self.next.saturating_add(1);
                return variant.options.iter().for_each(|option| self.field(&option.class, steps));
            }
            FieldClass::Optional(optional) => {
                self.next = self.next.saturating_add(1);
                return self.field(&optional.class, steps);
            }
            _ => {}
        }
        self.next = self.next.saturating_add(1);
        self.found(node, steps);
    }
}

/// Returns the steps behind a member of this name, if they lead to it. A name may have dots
/// (`http.method`).
fn behind<'s>(steps: &'s [Step], name: &str) -> Option<&'s [Step]> {
    let mut rest = name;
    for (at, step) in steps.iter().enumerate() {
        let Step::Member(member) = step else { return None };
        rest = rest.strip_prefix(member.as_str())?;
        if rest.is_empty() {
            return steps.get(at.saturating_add(1)..);
        }
        rest = rest.strip_prefix('.')?;
    }
    None
}

/// Calls `each` with each event class until it returns true; the result says whether it did.
fn any_class(traces: &[Trace], mut each: impl FnMut(&Trace, usize, usize) -> bool) -> bool {
    traces.iter().any(|trace| {
        let streams = trace.class().streams.iter().enumerate();
        streams
            .flat_map(|(stream, class)| (0..class.events.len()).map(move |event| (stream, event)))
            .any(|(stream, event)| each(trace, stream, event))
    })
}

/// Returns true if an event class of the traces has a value of this name; `with_containers`: or a
/// structure or an array.
pub(super) fn is_known(name: &Name, traces: &[Trace], with_containers: bool) -> bool {
    any_class(traces, |trace, stream, event| {
        let mut targets = Targets { with_containers, ..Targets::default() };
        let class = (stream, event);
        Lookup { trace, class, thread: 1, targets: &mut targets }.name(name, 0).is_some()
    })
}

/// Adds the names that the event classes of the traces have. Names of contexts are added with
/// `$ctx.` too.
pub(super) fn add_names(traces: &[Trace], names: &mut BTreeSet<String>) {
    any_class(traces, |trace, stream, event| {
        for scope in SCOPES {
            let Some(root) = trace.class().scope(scope, stream, event) else { continue };
            let before = (scope != Scope::Payload).then_some("$ctx.");
            root.fields
                .iter()
                .for_each(|field| add_field(&field.class, &field.name, before, names));
        }
        false
    });
}

fn add_field(class: &FieldClass, name: &str, before: Option<&str>, names: &mut BTreeSet<String>) {
    match class {
        FieldClass::Struct(of) => {
            of.fields.iter().for_each(|field| {
                add_field(&field.class, &format!("{name}.{}", field.name), before, names)
            });
        }
        FieldClass::Array(array) => add_field(&array.element, &format!("{name}[0]"), before, names),
        FieldClass::Variant(of) => {
            of.options.iter().for_each(|option| add_field(&option.class, name, before, names))
        }
        FieldClass::Optional(optional) => add_field(&optional.class, name, before, names),
        _ => {
            names.extend(before.map(|before| format!("{before}{name}")));
            names.insert(name.to_owned());
        }
    }
}
