//! Takes the fields of an event: as JSON, and the promoted ones as values of their columns.

use crate::rows::{Builder, Cell};
use crate::schema::{Kind, PROMOTED};
use lastwords_ctf::program::Code;
use lastwords_render::json::{Fields, Plan};
use lastwords_trace::class::Encoding;
use lastwords_trace::nul;
use lastwords_trace::visit::{Node, NodeId, Shape, Visitor};

/// The promoted column of a node, and how its values get there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// No column.
    None,
    /// A column of integers, of a signed integer.
    Signed(usize),
    /// A column of integers, of an unsigned integer.
    Unsigned(usize),
    /// A column of texts, of a text in UTF-8.
    Text(usize),
    /// The column cannot hold values of this type.
    Unfit,
}

/// The payload of an event class, prepared for many events.
pub(crate) struct Scope<'t> {
    json: Plan<'t>,
    /// The promoted column of each node.
    targets: Vec<Target>,
}

impl<'t> Scope<'t> {
    /// Prepares a scope.
    pub(crate) fn new(code: &'t Code) -> Self {
        Self { json: Plan::new(code), targets: targets(code.nodes()) }
    }

    /// Returns true if a field has a column of its own.
    pub(crate) fn has_columns(&self) -> bool {
        self.targets.iter().any(|target| *target != Target::None)
    }
}

/// Returns the promoted column of each node: of members of the scope itself, and of the value of an
/// optional member.
fn targets(nodes: &[Node]) -> Vec<Target> {
    let mut optional = None;
    let column = |name: &str| PROMOTED.iter().position(|(known, _)| *known == name);
    let mut of = |node: &Node| {
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
    nodes.iter().map(|node| of(node).map_or(Target::None, |column| target(column, node))).collect()
}

fn target(column: usize, node: &Node) -> Target {
    match (PROMOTED.get(column).map(|(_, kind)| *kind), &node.shape) {
        (Some(Kind::Long), Shape::Integer { signed: true, .. }) => Target::Signed(column),
        (Some(Kind::Long), Shape::Integer { signed: false, .. }) => Target::Unsigned(column),
        (Some(Kind::Text), Shape::Text(Encoding::Utf8)) => Target::Text(column),
        _ => Target::Unfit,
    }
}

/// The promoted columns, and the row whose values they take.
pub(crate) struct Promoted<'a> {
    /// The columns that are wanted, in the order of [`PROMOTED`].
    pub(crate) columns: &'a mut [Option<Builder>],
    pub(crate) row: usize,
    /// The number of values that their columns cannot hold.
    pub(crate) unfit: &'a mut u64,
    /// The bytes of the texts in the columns.
    pub(crate) bytes: &'a mut usize,
}

impl Promoted<'_> {
    #[inline]
    fn put(&mut self, column: usize, cell: Cell<'_>) {
        if let Some(Some(builder)) = self.columns.get_mut(column) {
            builder.push(self.row, cell);
        }
    }
}

/// Visits the values of a scope.
pub(crate) struct Taker<'a, 't> {
    targets: &'a [Target],
    json: Option<Fields<'a, 't>>,
    to: Promoted<'a>,
}

impl<'a, 't> Taker<'a, 't> {
    /// Appends the members of the scope to `json`, if it is wanted.
    pub(crate) fn new(
        scope: &'a Scope<'t>,
        json: Option<&'a mut Vec<u8>>,
        to: Promoted<'a>,
    ) -> Self {
        let json = json.map(|out| Fields::exact(out, &scope.json));
        Self { targets: &scope.targets, json, to }
    }

    #[inline]
    fn target(&self, node: NodeId) -> Target {
        self.targets.get(node as usize).copied().unwrap_or(Target::None)
    }

    #[cold]
    fn misfit(&mut self) {
        *self.to.unfit = self.to.unfit.saturating_add(1);
    }
}

impl Visitor for Taker<'_, '_> {
    #[inline]
    fn integer(&mut self, node: NodeId, value: u64) {
        match self.target(node) {
            Target::None => {}
            Target::Signed(column) => self.to.put(column, Cell::Number(Some(value.cast_signed()))),
            Target::Unsigned(column) => match i64::try_from(value) {
                Ok(value) => self.to.put(column, Cell::Number(Some(value))),
                Err(_) => self.misfit(),
            },
            Target::Text(_) | Target::Unfit => self.misfit(),
        }
        self.json.iter_mut().for_each(|json| json.integer(node, value));
    }

    fn float(&mut self, node: NodeId, value: f64) {
        if self.target(node) != Target::None {
            self.misfit();
        }
        self.json.iter_mut().for_each(|json| json.float(node, value));
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        match self.target(node) {
            Target::None => {}
            Target::Text(column) => match std::str::from_utf8(nul::until(bytes)) {
                Ok(text) => {
                    *self.to.bytes = self.to.bytes.saturating_add(text.len());
                    self.to.put(column, Cell::Text(Some(text)));
                }
                Err(_) => self.misfit(),
            },
            _ => self.misfit(),
        }
        self.json.iter_mut().for_each(|json| json.text(node, bytes));
    }

    fn blob(&mut self, node: NodeId, bytes: &[u8]) {
        if self.target(node) != Target::None {
            self.misfit();
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
