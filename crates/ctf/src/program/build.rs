//! Compiles a trace class to its program: the scopes of each stream class and event record class.

use super::compile::{Compiler, Known};
use super::fault::SchemaError;
use super::hide::Hides;
use super::op::Code;
use super::orders::Orders;
use super::slots::{ClassSlots, Place, Slots};
use super::stride::{Simple, Stride};
use super::{DENSE, EventProgram, NONE, Program, StreamProgram, header, weight};
use lastwords_bytes::Budget;
use lastwords_trace::class::{FieldClass, Role, Scope, Struct, TraceClass};
use std::collections::HashMap;
use std::sync::Arc;

/// The name of any event, for fields that all events have.
const ANY: &str = "*";

/// Compiles a trace class. `hides` chooses hidden fields of events.
pub(super) fn program(
    class: TraceClass,
    budget: &Arc<Budget>,
    hides: Option<&dyn Hides>,
) -> Result<Program, SchemaError> {
    let slots = collect(&class, budget)?;
    let header =
        visited(slots.seen_by(Place::TRACE), Scope::PacketHeader, class.header.as_ref(), None)?;
    if class.streams.len() > 1
        && !class.header.as_ref().is_some_and(|h| has_role(h, Role::StreamClassId))
    {
        return Err(SchemaError::NoId(None));
    }
    let mut streams = Vec::new();
    let mut by_id = HashMap::new();
    for position in 0..class.streams.len() {
        streams.push(stream(&class, position, &slots, hides)?);
        let id = class.streams.get(position).map_or(0, |stream| stream.id);
        by_id.entry(id).or_insert(position);
    }
    Ok(Program { header, streams, by_id, slots: slots.len(), class, budget: Arc::clone(budget) })
}

fn collect<'b>(class: &TraceClass, budget: &'b Budget) -> Result<Slots<'b>, SchemaError> {
    let mut slots = Slots::new(budget);
    if let Some(header) = &class.header {
        let of_trace = |scope| class.scope(scope, 0, 0).filter(|_| scope == Scope::PacketHeader);
        slots.collect(Place::TRACE, header, &of_trace)?;
    }
    for (position, stream) in class.streams.iter().enumerate() {
        let of_stream = [&stream.packet_context, &stream.event_header, &stream.common_context];
        for root in of_stream.into_iter().flatten() {
            slots.collect(Place::stream(position), root, &|scope| {
                class.scope(scope, position, usize::MAX)
            })?;
        }
        for (number, event) in stream.events.iter().enumerate() {
            for root in [&event.specific_context, &event.payload].into_iter().flatten() {
                let place = Place { stream: position, event: number };
                slots.collect(place, root, &|scope| class.scope(scope, position, number))?;
            }
        }
    }
    Ok(slots)
}

fn visited(
    slots: ClassSlots<'_>,
    scope: Scope,
    root: Option<&Struct>,
    hides: Option<(&dyn Hides, &str)>,
) -> Result<Code, SchemaError> {
    root.map_or_else(|| Ok(Code::default()), |root| Compiler::visited(slots, scope, root, hides))
}

fn stream(
    class: &TraceClass,
    position: usize,
    all: &Slots<'_>,
    hides: Option<&dyn Hides>,
) -> Result<StreamProgram, SchemaError> {
    let slots = all.seen_by(Place::stream(position));
    let Some(stream) = class.streams.get(position) else {
        return Err(SchemaError::TooMany("stream classes"));
    };
    let root = stream.event_header.as_ref();
    let header = visited(slots, Scope::EventHeader, root, None)?;
    let (_, known) = Compiler::merged(slots, &[(Scope::EventHeader, root)], Known::NOTHING, false)?;
    if stream.events.len() > 1 && !root.is_some_and(|h| has_role(h, Role::EventClassId)) {
        return Err(SchemaError::NoId(Some(stream.id)));
    }
    let wants_header =
        (0..stream.events.len()).any(|n| class.depends_on(position, n, &[Scope::EventHeader]));
    let mut program = StreamProgram {
        context: visited(slots, Scope::PacketContext, stream.packet_context.as_ref(), None)?,
        context_weight: weight::of_scope(stream.packet_context.as_ref()),
        word: root.and_then(header::word).filter(|_| !wants_header),
        header,
        common: visited(
            slots,
            Scope::CommonContext,
            stream.common_context.as_ref(),
            // The contexts are of all events of the stream.
            hides.map(|hides| (hides, ANY)),
        )?,
        events: Vec::new(),
        dense: Vec::new(),
        simple: Vec::new(),
        sparse: HashMap::new(),
    };
    let of_all = weight::of_trace(class).saturating_add(weight::of_scope(root));
    let orders = Orders::default().and(root).and(stream.common_context.as_ref());
    for (number, event) in stream.events.iter().enumerate() {
        let slots = all.seen_by(Place { stream: position, event: number });
        let hides = hides.map(|hides| (hides, event.name.as_deref().unwrap_or_default()));
        let orders = orders.and(event.specific_context.as_ref()).and(event.payload.as_ref());
        let scopes = [
            (Scope::CommonContext, stream.common_context.as_ref()),
            (Scope::SpecificContext, event.specific_context.as_ref()),
            (Scope::Payload, event.payload.as_ref()),
        ];
        let (merged, _) = Compiler::merged(slots, &scopes, known, orders.are_mixed())?;
        let name = event.name.as_ref().map_or(0, |name| name.len() as u64);
        let of_scopes = scopes.iter().map(|(_, root)| weight::of_scope(*root));
        let weight = of_scopes.fold(of_all.saturating_add(name), u64::saturating_add);
        program.events.push(EventProgram {
            specific: visited(
                slots,
                Scope::SpecificContext,
                event.specific_context.as_ref(),
                hides,
            )?,
            payload: visited(slots, Scope::Payload, event.payload.as_ref(), hides)?,
            stride: Stride::new(&merged)
                .filter(|stride| weight::is_event_free(weight, stride.least())),
            weight,
            merged,
        });
        program.enter(event.id, number);
    }
    let simple = |class: &u32| {
        Some(Simple { class: *class, stride: program.events.get(*class as usize)?.stride? })
    };
    program.simple = program.dense.iter().map(simple).collect();
    Ok(program)
}

impl StreamProgram {
    fn enter(&mut self, id: u64, number: usize) {
        if let Some(place) = usize::try_from(id).ok().filter(|_| id < DENSE) {
            if self.dense.len() <= place {
                self.dense.resize(place.saturating_add(1), NONE);
            }
            if let Some(entry) = self.dense.get_mut(place).filter(|entry| **entry == NONE) {
                *entry = u32::try_from(number).unwrap_or(NONE);
            }
        } else {
            self.sparse.entry(id).or_insert(number);
        }
    }
}

fn has_role(root: &Struct, role: Role) -> bool {
    root.fields.iter().any(|field| class_has_role(&field.class, role))
}

fn class_has_role(class: &FieldClass, role: Role) -> bool {
    match class {
        FieldClass::Integer(integer) | FieldClass::Variable(integer) => integer.has(role),
        FieldClass::Struct(of) => has_role(of, role),
        FieldClass::Array(array) => class_has_role(&array.element, role),
        FieldClass::Variant(variant) => {
            variant.options.iter().any(|option| class_has_role(&option.class, role))
        }
        FieldClass::Optional(optional) => class_has_role(&optional.class, role),
        _ => false,
    }
}
