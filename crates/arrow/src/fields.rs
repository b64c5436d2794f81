//! Takes the fields of an event: as JSON, and the promoted ones as values of their columns.

use crate::schema::{Kind, PROMOTED};
use lastwords_ctf::program::Code;
use lastwords_render::json::{Fields, Plan};
use lastwords_trace::class::Encoding;
use lastwords_trace::nul;
use lastwords_trace::visit::{Node, NodeId, Shape, Visitor};

/// The value of a promoted field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Slot {
    /// The event does not have the field, or its value does not fit.
    #[default]
    None,
    /// Integer.
    Long(i64),
    /// Text: the range in the bytes of the event.
    Text(std::ops::Range<usize>),
}

/// A scope of an event class, prepared for many events.
pub(crate) struct Scope<'t> {
    json: Plan<'t>,
    code: &'t Code,
    /// The promoted column of each node.
    columns: Vec<Option<usize>>,
}

impl<'t> Scope<'t> {
    /// Prepares a scope. `is_promoted` says that fields have columns of their own.
    pub(crate) fn new(code: &'t Code, is_promoted: bool) -> Self {
        let columns = if is_promoted { columns(code.nodes()) } else { Vec::new() };
        Self { json: Plan::new(code), code, columns }
    }

    /// Returns true if a field has a column of its own.
    pub(crate) fn has_columns(&self) -> bool {
        self.columns.iter().any(Option::is_some)
    }
}

/// Returns the promoted column of each node: of members of the scope itself, and of the value of an
/// optional member.
fn columns(nodes: &[Node]) -> Vec<Option<usize>> {
    let mut optional = None;
    let column = |name: &str| PROMOTED.iter().position(|(known, _)| *known == name);
    let of = |node: &Node| {
        if node.depth != 1 {
            return None;
        }
        let is_value = !matches!(node.shape, Shape::Struct | Shape::Array);
        match (node.name.is_empty(), &node.shape) {
            (false, Shape::Variant | Shape::Optional) => {
                optional = column(&node.name);
                None
            }
            (false, _) => {
                optional = None;
                column(&node.name).filter(|_| is_value)
            }
            (true, Shape::Array) => {
                optional = None;
                None
            }
            (true, _) => optional.filter(|_| is_value),
        }
    };
    nodes.iter().map(of).collect()
}

/// The fields of one event, taken apart for their columns.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// The values of the promoted columns.
    pub(crate) slots: Vec<Slot>,
    /// The bytes of texts in `slots`.
    pub(crate) texts: Vec<u8>,
    /// The number of values that their columns cannot hold.
    pub(crate) unfit: u64,
}

impl Taken {
    /// Forgets the values of an event.
    pub(crate) fn clear(&mut self) {
        self.texts.clear();
        self.slots.clear();
        self.slots.resize(PROMOTED.len(), Slot::None);
    }
}

/// Visits the values of a scope.
pub(crate) struct Taker<'a, 't> {
    scope: &'a Scope<'t>,
    json: Option<Fields<'a, 't>>,
    taken: &'a mut Taken,
}

impl<'a, 't> Taker<'a, 't> {
    /// Appends the members of the scope to `json`, if it is wanted.
    pub(crate) fn new(
        scope: &'a Scope<'t>,
        json: Option<&'a mut Vec<u8>>,
        taken: &'a mut Taken,
    ) -> Self {
        Self { scope, json: json.map(|out| Fields::exact(out, &scope.json)), taken }
    }

    fn column(&self, node: NodeId) -> Option<usize> {
        self.scope.columns.get(node as usize).copied().flatten()
    }

    fn put(&mut self, column: usize, slot: Slot) {
        let kind = PROMOTED.get(column).map(|(_, kind)| *kind);
        let fits = match slot {
            Slot::None => false,
            Slot::Long(_) => kind == Some(Kind::Long),
            Slot::Text(_) => kind == Some(Kind::Text),
        };
        match self.taken.slots.get_mut(column) {
            Some(place) if fits => *place = slot,
            _ => self.taken.unfit = self.taken.unfit.saturating_add(1),
        }
    }
}

impl Visitor for Taker<'_, '_> {
    fn integer(&mut self, node: NodeId, value: u64) {
        if let Some(column) = self.column(node) {
            let slot = match self.scope.code.nodes().get(node as usize).map(|node| &node.shape) {
                Some(Shape::Integer { signed: true, .. }) => Slot::Long(value.cast_signed()),
                Some(Shape::Integer { signed: false, .. }) => {
                    i64::try_from(value).map_or(Slot::None, Slot::Long)
                }
                _ => Slot::None,
            };
            self.put(column, slot);
        }
        self.json.iter_mut().for_each(|json| json.integer(node, value));
    }

    fn float(&mut self, node: NodeId, value: f64) {
        if let Some(column) = self.column(node) {
            self.put(column, Slot::None);
        }
        self.json.iter_mut().for_each(|json| json.float(node, value));
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        if let Some(column) = self.column(node) {
            let bytes = nul::until(bytes);
            let is_utf8 = matches!(
                self.scope.code.nodes().get(node as usize).map(|node| &node.shape),
                Some(Shape::Text(Encoding::Utf8))
            ) && std::str::from_utf8(bytes).is_ok();
            let from = self.taken.texts.len();
            self.taken.texts.extend_from_slice(bytes);
            let slot = match is_utf8 {
                true => Slot::Text(from..self.taken.texts.len()),
                false => Slot::None,
            };
            self.put(column, slot);
        }
        self.json.iter_mut().for_each(|json| json.text(node, bytes));
    }

    fn blob(&mut self, node: NodeId, bytes: &[u8]) {
        if let Some(column) = self.column(node) {
            self.put(column, Slot::None);
        }
        self.json.iter_mut().for_each(|json| json.blob(node, bytes));
    }

    fn begin(&mut self, node: NodeId) {
        self.json.iter_mut().for_each(|json| json.begin(node));
    }

    fn end(&mut self, node: NodeId) {
        self.json.iter_mut().for_each(|json| json.end(node));
    }

    fn begin_array(&mut self, node: NodeId, count: u64) {
        self.json.iter_mut().for_each(|json| json.begin_array(node, count));
    }

    fn element(&mut self, index: u64) {
        self.json.iter_mut().for_each(|json| json.element(index));
    }

    fn end_array(&mut self, node: NodeId) {
        self.json.iter_mut().for_each(|json| json.end_array(node));
    }

    fn begin_case(&mut self, node: NodeId, case: Option<usize>) {
        self.json.iter_mut().for_each(|json| json.begin_case(node, case));
    }

    fn end_case(&mut self, node: NodeId) {
        self.json.iter_mut().for_each(|json| json.end_case(node));
    }
}
