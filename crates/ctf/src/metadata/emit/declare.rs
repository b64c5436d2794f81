//! Declarations of the fields of one scope in TSDL.
//!
//! CTF 2 expresses a field's meaning by roles and refers to fields by location. TSDL does both by
//! names. So each structure's members get names first ([`Declarer::names`]): a member with a role
//! gets the name of its role, any other member a name without a meaning. References then use these
//! names.

use super::tokens::{is_identifier, member_identifier, order, push, quoted, unique};
use crate::names::identifier;
use lastwords_trace::class::{
    Array, Bits, Encoding, Field, FieldClass, Float, Integer, Length, Mapping, Path, Range, Role,
    Scope, Struct, Text, Variant,
};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

/// A declaration; the error says why there is none, and begins with the field.
type Declared<T> = Result<T, String>;

/// Names that have a meaning of their own wherever they occur in packet headers, packet contexts
/// and event headers.
const RESERVED: [&str; 12] = [
    "magic",
    "uuid",
    "stream_id",
    "stream_instance_id",
    "packet_size",
    "content_size",
    "timestamp_begin",
    "timestamp_end",
    "events_discarded",
    "packet_seq_num",
    "id",
    "timestamp",
];

/// Returns true if a member of the structure, or of a structure in it, has the role.
pub(super) fn has_role(root: Option<&Struct>, role: Role) -> bool {
    fn inside(class: &FieldClass, role: Role) -> bool {
        match class {
            FieldClass::Integer(integer) | FieldClass::Variable(integer) => integer.has(role),
            FieldClass::Struct(of) => has_role(Some(of), role),
            FieldClass::Array(array) => inside(&array.element, role),
            FieldClass::Variant(variant) => {
                variant.options.iter().any(|option| inside(&option.class, role))
            }
            FieldClass::Optional(optional) => inside(&optional.class, role),
            _ => false,
        }
    }
    root.is_some_and(|root| root.fields.iter().any(|field| inside(&field.class, role)))
}

/// The kind of parent that a field class has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parent {
    /// A member of a structure.
    Member,
    /// An option of a variant.
    Option,
    /// An element of an array.
    Element,
}

/// The members of a structure: their names in TSDL, and their positions by their original names.
#[derive(Debug)]
pub(super) struct Names<'a> {
    shown: Vec<String>,
    by_name: HashMap<&'a str, usize>,
    taken: HashSet<String>,
}

/// The names of members made so far, by the scope and address of their structure.
pub(super) type Known<'a> = HashMap<(Scope, *const Struct), Rc<Names<'a>>>;

/// Declares the fields of one scope.
pub(super) struct Declarer<'a, 'k> {
    scope: Scope,
    /// The structures that references may lead to.
    roots: [Option<&'a Struct>; 6],
    /// The name of the stream's clock.
    clock: Option<&'a str>,
    known: &'k mut Known<'a>,
    /// The structures that contain the field, each with the number of names that lead to it.
    around: Vec<(&'a Struct, usize)>,
    /// The names from the scope's root to the field.
    names: Vec<&'a str>,
}

impl<'a, 'k> Declarer<'a, 'k> {
    pub(super) fn new(
        scope: Scope,
        roots: [Option<&'a Struct>; 6],
        clock: Option<&'a str>,
        known: &'k mut Known<'a>,
    ) -> Self {
        Self { scope, roots, clock, known, around: Vec::new(), names: Vec::new() }
    }

    pub(super) fn root(&mut self, root: &'a Struct) -> Declared<String> {
        self.structure(root, 1)
    }

    fn structure(&mut self, of: &'a Struct, depth: usize) -> Declared<String> {
        let names = self.names(self.scope, of);
        self.around.push((of, self.names.len()));
        let mut text = "struct {\n".to_owned();
        let tabs = "\t".repeat(depth.saturating_add(1));
        for (place, (field, shown)) in of.fields.iter().zip(&names.shown).enumerate() {
            self.names.push(&field.name);
            let declared = self
                .check(field, place)
                .and_then(|()| self.class(&field.class, Parent::Member, depth.saturating_add(1)));
            let (kind, behind) = declared.map_err(|why| format!("{:?}: {why}", field.name))?;
            self.names.pop();
            push(&mut text, format_args!("{tabs}{kind} {shown}{behind};\n"));
        }
        self.around.pop();
        text.push_str(&"\t".repeat(depth));
        text.push('}');
        if of.alignment > 1 {
            push(&mut text, format_args!(" align({})", of.alignment));
        }
        Ok(text)
    }

    /// Returns the names of a structure's members. A member with a role gets the name of the role.
    /// A name that users chose gets an underscore in front.
    fn names(&mut self, scope: Scope, of: &'a Struct) -> Rc<Names<'a>> {
        if let Some(names) = self.known.get(&(scope, std::ptr::from_ref(of))) {
            return Rc::clone(names);
        }
        let mut names = Names { shown: Vec::new(), by_name: HashMap::new(), taken: HashSet::new() };
        let roles: Vec<Option<&str>> =
            of.fields.iter().map(|field| role_of(scope, &field.class)).collect();
        // Readers remove the first underscore, so names that differ only in it are equal.
        names.taken.extend(roles.iter().flatten().map(|name| (*name).to_owned()));
        for (position, (field, role)) in of.fields.iter().zip(roles).enumerate() {
            names.by_name.entry(&field.name).or_insert(position);
            let shown = role.map_or_else(
                || {
                    unique(escaped(scope, &field.name), |name| {
                        names.taken.insert(bare(name).to_owned())
                    })
                },
                str::to_owned,
            );
            names.shown.push(shown);
        }
        let names = Rc::new(names);
        self.known.insert((scope, std::ptr::from_ref(of)), Rc::clone(&names));
        names
    }

    /// Refuses a role that the member's name cannot express at its position.
    fn check(&self, field: &Field, place: usize) -> Declared<()> {
        let is_uuid = is_uuid(&field.class);
        let is_inner = self.around.len() > 1;
        let Some((root, _)) = self.around.last() else { return Ok(()) };
        let role = role_of(self.scope, &field.class);
        if let Some(name) = role {
            let same = |other: &&Field| role_of(self.scope, &other.class) == Some(name);
            if root.fields.iter().filter(same).nth(1).is_some() {
                return Err(format!("CTF 1.8 allows only one field with the meaning of `{name}`"));
            }
            if is_inner && self.scope != Scope::EventHeader {
                return Err(format!(
                    "CTF 1.8 allows a field with the meaning of `{name}` only in the outermost structure"
                ));
            }
        }
        match &field.class {
            FieldClass::Integer(integer)
                if integer.has(Role::Magic) && (place > 0 || integer.bits.length != 32) =>
            {
                Err("CTF 1.8 has the magic number first, of 32 bits".into())
            }
            FieldClass::Blob(blob) if is_uuid && blob.length != Length::Fixed(16) => {
                Err("CTF 1.8 has UUIDs of 16 bytes only".into())
            }
            _ => Ok(()),
        }
    }

    /// Returns the type of a class, and the text that follows the name.
    fn class(
        &mut self,
        class: &'a FieldClass,
        parent: Parent,
        depth: usize,
    ) -> Declared<(String, String)> {
        let alone = |text: String| Ok((text, String::new()));
        match class {
            FieldClass::Integer(integer) => alone(self.integer(integer, parent)?),
            FieldClass::Bool(bits) | FieldClass::BitArray(bits) | FieldClass::BitMap(bits, _) => {
                alone(self.integer(&Integer::new(*bits, false, 10), parent)?)
            }
            FieldClass::Float(float) => alone(floating(float)?),
            FieldClass::Text(text) => self.text(text),
            FieldClass::Blob(blob) => Ok((octets(16, "none"), self.length(&blob.length)?)),
            FieldClass::Struct(of) => alone(self.structure(of, depth)?),
            FieldClass::Array(array) => self.array(array, depth),
            FieldClass::Variant(variant) => alone(self.variant(variant, depth)?),
            FieldClass::Variable(_) => Err("CTF 1.8 has no integers of variable length".into()),
            FieldClass::Optional(_) => Err("CTF 1.8 cannot say that a field may be absent".into()),
        }
    }

    fn array(&mut self, array: &'a Array, depth: usize) -> Declared<(String, String)> {
        if array.alignment > array.element.alignment() {
            return Err("CTF 1.8 cannot align an array further than its elements".into());
        }
        let length = self.length(&array.length)?;
        let (element, behind) = self.class(&array.element, Parent::Element, depth)?;
        Ok((element, length + &behind))
    }

    fn integer(&self, integer: &Integer, parent: Parent) -> Declared<String> {
        let Bits { length, alignment, order: byte_order, reversed } = integer.bits;
        if reversed {
            return Err("CTF 1.8 cannot reverse the bits of a byte".into());
        }
        let timed = integer.has(Role::Clock) || integer.has(Role::PacketEnd);
        let is_header = self.scope <= Scope::EventHeader;
        let by_map = parent == Parent::Option
            && self.scope == Scope::EventHeader
            && integer.roles == [Role::Clock];
        if is_header && parent != Parent::Member && !integer.roles.is_empty() && !by_map {
            return Err("CTF 1.8 derives the meaning of a field from its name: an option or element has none".into());
        }
        let map = match self.clock {
            Some(clock) if timed && is_header => format!(" map = clock.{clock}.value;"),
            None if timed && is_header => {
                return Err("CTF 1.8 has no time of a stream without a clock".into());
            }
            _ => String::new(),
        };
        let (signed, byte_order) = (integer.signed, order(byte_order));
        let base = if matches!(integer.base, 2 | 8 | 16) { integer.base } else { 10 };
        let plain = format!(
            "integer {{ size = {length}; align = {alignment}; signed = {signed}; byte_order = {byte_order}; base = {base};{map} }}"
        );
        let labels = enumeration(integer);
        Ok(if labels.is_empty() { plain } else { format!("enum : {plain} {{ {labels} }}") })
    }

    fn text(&mut self, text: &Text) -> Declared<(String, String)> {
        if text.encoding != Encoding::Utf8 {
            return Err("CTF 1.8 has no text but UTF-8".into());
        }
        Ok(match &text.length {
            None => ("string { encoding = UTF8; }".to_owned(), String::new()),
            Some(length) => (octets(10, "UTF8"), self.length(length)?),
        })
    }

    fn length(&mut self, length: &Length) -> Declared<String> {
        match length {
            Length::Fixed(count) => Ok(format!("[{count}]")),
            Length::Of(path) => {
                let (names, class) = self.reference(path)?;
                let is_number = matches!(class, FieldClass::Integer(integer) if !integer.signed);
                let wrong =
                    || format!("CTF 1.8 takes lengths from unsigned integers: {path} is none");
                if is_number { Ok(format!("[{}]", names.join("."))) } else { Err(wrong()) }
            }
        }
    }

    fn variant(&mut self, variant: &'a Variant, depth: usize) -> Declared<String> {
        let (tag, class) = self.reference(&variant.selector)?;
        let selector = &variant.selector;
        let [tag] = tag.as_slice() else {
            return Err(format!(
                "CTF 1.8 selects by a field of the structures around a variant: {selector} is none"
            ));
        };
        let FieldClass::Integer(integer) = class else {
            return Err(format!("CTF 1.8 selects by enumerations: {selector} is none"));
        };
        let tabs = "\t".repeat(depth);
        let mut text = format!("variant <{tag}> {{\n");
        let mut taken = HashSet::new();
        for option in &variant.options {
            let wanted: BTreeSet<Range> = option.ranges.iter().copied().collect();
            let fits = |mapping: &&Mapping| {
                is_identifier(&mapping.label)
                    && mapping.ranges.iter().copied().collect::<BTreeSet<_>>() == wanted
                    && !taken.contains(bare(&mapping.label))
            };
            let mut labels = integer.mappings.iter().filter(fits);
            let named = labels.clone().find(|mapping| bare(&mapping.label) == bare(&option.name));
            let label = named.or(labels.next()).map(|mapping| mapping.label.as_str()).ok_or_else(|| {
                format!("CTF 1.8 selects by labels: {selector} has none for the values of the option {:?}", option.name)
            })?;
            taken.insert(bare(label));
            let (kind, behind) =
                self.class(&option.class, Parent::Option, depth.saturating_add(1))?;
            push(&mut text, format_args!("{tabs}\t{kind} {label}{behind};\n"));
        }
        push(&mut text, format_args!("{tabs}}}"));
        Ok(text)
    }

    /// Returns the reference to a field, and the field's class. The reference starts at the
    /// innermost structure that contains both fields, or at the root of a scope. Babeltrace 2.0 and
    /// 2.1 abort at a reference in an event's own context.
    fn reference(&mut self, path: &Path) -> Declared<(Vec<String>, &'a FieldClass)> {
        let absent = || format!("CTF 1.8 cannot refer to {path} from here");
        if self.scope == Scope::SpecificContext {
            return Err(format!(
                "Babeltrace cannot read an event's own context with a length or selector ({path})"
            ));
        }
        if path.scope == self.scope {
            let leads = |depth: usize| {
                let names = self.names.get(..depth).unwrap_or_default();
                path.names.len() > depth
                    && names.iter().zip(&path.names).all(|(one, other)| one == other)
            };
            let found =
                self.around.iter().rposition(|(_, depth)| leads(*depth)).ok_or_else(absent)?;
            let Some((root, depth)) = self.around.get(found).copied() else { return Err(absent()) };
            let inner: Vec<&Struct> =
                self.around.iter().skip(found.saturating_add(1)).map(|(of, _)| *of).collect();
            let (names, class) = self
                .walk(self.scope, root, path.names.get(depth..).unwrap_or_default())
                .ok_or_else(absent)?;
            let mut hidden = false;
            for of in inner {
                let known = self.names(self.scope, of);
                hidden |= names.first().is_some_and(|name| known.taken.contains(bare(name)));
            }
            if !hidden {
                return Ok((names, class));
            }
        }
        let position = Scope::ALL.iter().position(|scope| *scope == path.scope).unwrap_or_default();
        let root = self.roots.get(position).copied().flatten().ok_or_else(absent)?;
        let (names, class) = self.walk(path.scope, root, &path.names).ok_or_else(absent)?;
        Ok((path.scope.tsdl_name().split('.').map(str::to_owned).chain(names).collect(), class))
    }

    /// Follows names through structures only.
    fn walk(
        &mut self,
        scope: Scope,
        root: &'a Struct,
        names: &[String],
    ) -> Option<(Vec<String>, &'a FieldClass)> {
        let mut shown = Vec::new();
        let mut of = root;
        let mut names = names.iter();
        loop {
            let known = self.names(scope, of);
            let position = *known.by_name.get(names.next()?.as_str())?;
            shown.push(known.shown.get(position)?.clone());
            let class = &of.fields.get(position)?.class;
            match class {
                FieldClass::Struct(inner) if !names.as_slice().is_empty() => of = inner,
                _ if names.as_slice().is_empty() => return Some((shown, class)),
                _ => return None,
            }
        }
    }
}

fn is_uuid(class: &FieldClass) -> bool {
    match class {
        FieldClass::Array(array) => array.is_uuid,
        FieldClass::Blob(blob) => blob.is_uuid,
        _ => false,
    }
}

/// Returns the name by which readers recognize a member's role. In an event header, any integer can
/// carry the time.
fn role_of(scope: Scope, class: &FieldClass) -> Option<&'static str> {
    if scope == Scope::PacketHeader && is_uuid(class) {
        return Some("uuid");
    }
    let FieldClass::Integer(integer) = class else { return None };
    integer.roles.iter().find_map(|role| {
        Some(match (scope, role) {
            (Scope::PacketHeader, Role::Magic) => "magic",
            (Scope::PacketHeader, Role::StreamClassId) => "stream_id",
            (Scope::PacketHeader, Role::StreamId) => "stream_instance_id",
            (Scope::PacketContext, Role::PacketLength) => "packet_size",
            (Scope::PacketContext, Role::ContentLength) => "content_size",
            (Scope::PacketContext, Role::Clock) => "timestamp_begin",
            (Scope::PacketContext, Role::PacketEnd) => "timestamp_end",
            (Scope::PacketContext, Role::Discarded) => "events_discarded",
            (Scope::PacketContext, Role::Sequence) => "packet_seq_num",
            (Scope::EventHeader, Role::EventClassId) => "id",
            _ => return None,
        })
    })
}

/// Returns a name that has no meaning to readers.
fn escaped(scope: Scope, name: &str) -> String {
    if scope > Scope::EventHeader {
        return format!("_{}", identifier(name));
    }
    let name = member_identifier(name);
    if RESERVED.contains(&bare(&name)) { format!("{name}_") } else { name }
}

/// Returns the name as readers show it.
fn bare(name: &str) -> &str {
    name.strip_prefix('_').unwrap_or(name)
}

/// Lists the labels of an integer and their values. Ranges are cut to 64 bits.
fn enumeration(integer: &Integer) -> String {
    let (least, most) =
        if integer.signed { (i64::MIN.into(), i64::MAX.into()) } else { (0, u64::MAX.into()) };
    let mut text = String::new();
    for mapping in integer.mappings.iter() {
        for Range { lower, upper } in &mapping.ranges {
            let (lower, upper) = ((*lower).max(least), (*upper).min(most));
            if lower > upper {
                continue;
            }
            let comma = if text.is_empty() { "" } else { ", " };
            push(&mut text, format_args!("{comma}{} = {lower}", quoted(&mapping.label)));
            if upper != lower {
                push(&mut text, format_args!(" ... {upper}"));
            }
        }
    }
    text
}

fn floating(float: &Float) -> Declared<String> {
    let (exponent, mantissa) = match float.bits.length {
        32 => (8, 24),
        64 => (11, 53),
        length => return Err(format!("CTF 1.8 readers know no floats of {length} bits")),
    };
    if float.bits.reversed {
        return Err("CTF 1.8 cannot reverse the bits of a byte".into());
    }
    let (alignment, byte_order) = (float.bits.alignment, order(float.bits.order));
    Ok(format!(
        "floating_point {{ exp_dig = {exponent}; mant_dig = {mantissa}; align = {alignment}; byte_order = {byte_order}; }}"
    ))
}

fn octets(base: u8, encoding: &str) -> String {
    format!(
        "integer {{ size = 8; align = 8; signed = false; encoding = {encoding}; base = {base}; }}"
    )
}
