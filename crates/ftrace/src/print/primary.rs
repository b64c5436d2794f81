//! Parses operands: fields, constants, casts, `sizeof`, helpers.

use crate::Field;

use super::Unknown;
use super::arith::{Int, named};
use super::lex::Token;
use super::parse::{Parsed, Parser};
use super::tree::{Expr, Helper, Locator, Table};

/// Bytes of a locator.
const LOCATOR: u32 = 4;
/// Most rows of a table of names.
const MOST_NAMES: usize = 4096;

/// Functions of the kernel that return their argument, as far as the printed text is concerned.
const SAME: [&str; 17] = [
    "pte_val",
    "pmd_val",
    "pud_val",
    "p4d_val",
    "pgd_val",
    "native_make_pte",
    "native_make_pmd",
    "native_make_pud",
    "native_make_p4d",
    "native_make_pgd",
    "__pte",
    "__pmd",
    "__pud",
    "__p4d",
    "__pgd",
    "likely",
    "unlikely",
];

/// The type in the parentheses of a cast.
enum TypeName {
    Value(Int),
    Pointer(Int),
    /// A pointer to structures of this size in bytes.
    Structure(u64),
    /// An unknown type: the value is not converted.
    Unknown,
}

/// A row of a table of names.
enum Row {
    Named(u64, Box<[u8]>),
    /// The value is not known.
    Unknown,
    /// The end of the table.
    End,
}

impl Parser<'_> {
    pub(crate) fn postfix(&mut self) -> Parsed<Expr> {
        let mut base = self.primary()?;
        while self.takes("[") {
            let index = self.expression()?;
            self.expect("]")?;
            base = element(base, index);
        }
        while self.takes("->") || self.takes(".") {
            let Some(Token::Word(name)) = self.peek() else {
                return Err("a member without a name".into());
            };
            self.at = self.at.saturating_add(1);
            base =
                self.unknown_of(Unknown::Other(format!("the member {name} of a structure")), base);
        }
        Ok(base)
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let token = self.peek().ok_or("the end of the text instead of an operand")?;
        match token {
            Token::Number(value, kind) => {
                self.at = self.at.saturating_add(1);
                Ok(Expr::Int(*value, *kind))
            }
            Token::Text(_) => Ok(Expr::Text(self.strings().into())),
            Token::Sign("(")
                if self.tokens.get(self.at.saturating_add(1)) == Some(&Token::Sign("{")) =>
            {
                self.statements()
            }
            Token::Sign("(") => self.parenthesis(),
            Token::Word("REC") => {
                self.at = self.at.saturating_add(1);
                self.record_field()
            }
            Token::Word("sizeof") => {
                self.at = self.at.saturating_add(1);
                self.size_of()
            }
            Token::Word(name) => {
                self.at = self.at.saturating_add(1);
                if self.takes("(") { self.call(name) } else { self.constant(name) }
            }
            Token::Sign(sign) => Err(format!("{sign:?} instead of an operand")),
        }
    }

    /// Reads adjacent strings, which are one string.
    pub(crate) fn strings(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(Token::Text(text)) = self.peek() {
            out.extend_from_slice(text);
            self.at = self.at.saturating_add(1);
        }
        out
    }

    fn constant(&mut self, name: &str) -> Parsed<Expr> {
        let value = match name {
            "NULL" | "false" => 0,
            "true" => 1,
            "PAGE_SIZE" => i64::from(self.machine.page_size),
            "PAGE_SHIFT" => i64::from(self.machine.page_size.max(1).ilog2()),
            _ => match self.symbols.constant(name).or_else(|| super::tables::enumerator(name)) {
                Some(value) => value,
                None => return self.local(name),
            },
        };
        let kind = if i32::try_from(value).is_ok() { Int::INT } else { Int::S64 };
        Ok(Expr::Int(value.cast_unsigned(), kind))
    }

    fn parenthesis(&mut self) -> Parsed<Expr> {
        let begin = self.at;
        if let Some(kind) = self.cast() {
            let operand = self.unary()?;
            return Ok(match (kind, operand) {
                (TypeName::Value(kind), Expr::Int(value, _)) => Expr::Int(kind.wrap(value), kind),
                // The same bytes are read as another type of equal size.
                (TypeName::Value(kind), Expr::Field { offset, kind: old })
                    if old.size == kind.size =>
                {
                    Expr::Field { offset, kind }
                }
                (TypeName::Pointer(_), Expr::Field { offset, kind: old })
                    if old.size == self.machine.word_size =>
                {
                    Expr::Field { offset, kind: self.word() }
                }
                (TypeName::Value(kind), operand) => Expr::Cast(kind, Box::new(operand)),
                (TypeName::Pointer(kind), operand) => Expr::PointerCast(kind, Box::new(operand)),
                (TypeName::Structure(size), operand) => Expr::Structure(size, Box::new(operand)),
                (TypeName::Unknown, operand) => operand,
            });
        }
        self.at = begin.saturating_add(1);
        if matches!(self.peek(), Some(Token::Word("REC")))
            && self.tokens.get(self.at.saturating_add(1)) == Some(&Token::Sign(")"))
        {
            self.at = self.at.saturating_add(2);
            return if self.sees("->") {
                self.record_field()
            } else {
                Err("the whole event as a value".into())
            };
        }
        let inner = self.expression()?;
        self.expect(")")?;
        Ok(inner)
    }

    /// Parses a type in parentheses, if an operand of a cast follows it. Otherwise the position of
    /// the parser is undefined afterwards.
    fn cast(&mut self) -> Option<TypeName> {
        self.at = self.at.saturating_add(1);
        let kind = self.type_name()?;
        if !self.takes(")") {
            return None;
        }
        let operand = match self.peek()? {
            Token::Word(_) | Token::Number(..) | Token::Text(_) | Token::Sign("(") => true,
            Token::Sign(s) => {
                !matches!(kind, TypeName::Unknown)
                    && matches!(*s, "-" | "~" | "+" | "!" | "*" | "&")
            }
        };
        operand.then_some(kind)
    }

    /// Parses the words and stars of a type.
    fn type_name(&mut self) -> Option<TypeName> {
        let mut words = Vec::new();
        let mut stars = 0;
        while let Some(token) = self.peek() {
            match token {
                Token::Word("REC" | "sizeof") => return None,
                Token::Word("const") if stars > 0 => {}
                Token::Word(word) if stars == 0 && words.len() < 6 => words.push(*word),
                Token::Sign("*") if !words.is_empty() => stars = u32::saturating_add(stars, 1),
                _ => break,
            }
            self.at = self.at.saturating_add(1);
        }
        let first = words.iter().find(|w| !matches!(**w, "const" | "volatile"))?;
        let is_structure = matches!(*first, "struct" | "union" | "void");
        let plain = named(&words, self.machine.word_size);
        match (plain, stars) {
            (Some(kind), 0) => Some(TypeName::Value(kind)),
            (Some(kind), 1) => Some(TypeName::Pointer(kind)),
            (_, 2..) => Some(TypeName::Pointer(self.word())),
            (None, 1) if is_structure => Some(match self.structure_size(&words) {
                Some(size) => TypeName::Structure(size),
                None => TypeName::Pointer(Int::U8),
            }),
            (None, 1) => Some(TypeName::Pointer(Int::U8)),
            (None, _) if is_structure || words.len() == 1 => Some(TypeName::Unknown),
            _ => None,
        }
    }

    pub(crate) fn word(&self) -> Int {
        Int { size: self.machine.word_size, signed: false }
    }

    /// Returns the size of `struct name`. Pages have 64 bytes in all 64-bit kernels that
    /// distributions build.
    fn structure_size(&self, words: &[&str]) -> Option<u64> {
        let [kind @ ("struct" | "union"), name] = words else { return None };
        let size = self.symbols.constant(&format!("sizeof({kind} {name})"));
        let usual = (*name == "page" && self.machine.word_size == 8).then_some(64);
        size.and_then(|size| u64::try_from(size).ok()).or(usual)
    }

    /// Parses `struct name` and a closing parenthesis. Returns the size of the structure.
    fn sized_structure(&mut self) -> Option<u64> {
        let (Some(Token::Word(kind)), Some(Token::Word(name))) =
            (self.peek(), self.tokens.get(self.at.saturating_add(1)))
        else {
            return None;
        };
        let size = self.structure_size(&[kind, name])?;
        (self.tokens.get(self.at.saturating_add(2)) == Some(&Token::Sign(")")))
            .then(|| self.at = self.at.saturating_add(2))?;
        Some(size)
    }

    fn size_of(&mut self) -> Parsed<Expr> {
        self.expect("(")?;
        if let Some(size) = self.sized_structure() {
            self.expect(")")?;
            return Ok(Expr::Int(size, self.word()));
        }
        let begin = self.at;
        let size = match self.type_name() {
            Some(TypeName::Value(kind)) if self.sees(")") => u64::from(kind.size),
            Some(TypeName::Pointer(_)) if self.sees(")") => u64::from(self.machine.word_size),
            _ => {
                self.at = begin;
                static_size(&self.expression()?).ok_or("sizeof something that is not a field")?
            }
        };
        self.expect(")")?;
        Ok(Expr::Int(size, self.word()))
    }

    fn record_field(&mut self) -> Parsed<Expr> {
        self.expect("->")?;
        let Some(Token::Word(name)) = self.peek() else {
            return Err("REC-> without a field".into());
        };
        self.at = self.at.saturating_add(1);
        let word_size = self.machine.word_size;
        let field = if *name == "ent" { self.common_field()? } else { self.field(name)? };
        Ok(field_expression(field, word_size))
    }

    /// Parses the member of the `struct trace_entry` that every event begins with, and returns its
    /// field.
    fn common_field(&mut self) -> Parsed<&Field> {
        self.expect(".")?;
        let Some(Token::Word(member)) = self.peek() else {
            return Err("REC->ent without a member".into());
        };
        self.at = self.at.saturating_add(1);
        self.field(&format!("common_{member}"))
    }

    pub(crate) fn field(&self, name: &str) -> Parsed<&Field> {
        self.format
            .fields
            .iter()
            .find(|f| f.name == name)
            .ok_or_else(|| format!("REC->{name}: the event has no such field"))
    }

    /// Parses a call `name(`…; the opening parenthesis was skipped already.
    fn call(&mut self, name: &str) -> Parsed<Expr> {
        self.spend()?;
        let expr = match name {
            "__get_str"
            | "__get_dynamic_array"
            | "__get_sockaddr"
            | "__get_rel_str"
            | "__get_rel_dynamic_array"
            | "__get_rel_sockaddr"
            | "__get_stacktrace"
            | "__get_rel_stacktrace" => Expr::Located(self.locator()?),
            "__get_dynamic_array_len" | "__get_rel_dynamic_array_len" => {
                Expr::Length(self.locator()?)
            }
            "__get_bitmask" | "__get_cpumask" | "__get_rel_bitmask" | "__get_rel_cpumask" => {
                Expr::Helper(Box::new(Helper::Bitmask(self.locator()?)))
            }
            "__builtin_expect" => {
                let value = self.expression()?;
                self.expect(",")?;
                self.expression()?;
                value
            }
            "__builtin_constant_p" => {
                self.expression()?;
                Expr::Int(0, Int::INT)
            }
            "__builtin_choose_expr" => self.chosen()?,
            "__print_ns_to_secs" | "__print_ns_without_secs" => self.seconds(name)?,
            "jiffies_to_msecs" if self.milliseconds_a_tick().is_some() => {
                let ticks = Expr::Cast(self.word(), Box::new(self.expression()?));
                let each = u64::from(self.milliseconds_a_tick().unwrap_or(0));
                let each = Expr::Int(each, Int::UINT);
                Expr::Cast(
                    Int::UINT,
                    Box::new(Expr::Binary(super::arith::Op::Mul, Box::new([ticks, each]))),
                )
            }
            _ if SAME.contains(&name) => self.expression()?,
            _ => self.helper(name)?,
        };
        self.expect(")")?;
        Ok(expr)
    }

    /// Returns the milliseconds of a timer tick if they are a whole number, for which
    /// `jiffies_to_msecs` multiplies by it.
    fn milliseconds_a_tick(&self) -> Option<u32> {
        self.machine
            .ticks
            .filter(|ticks| 1000u32.is_multiple_of(*ticks))
            .and_then(|ticks| 1000u32.checked_div(ticks))
    }

    fn seconds(&mut self, name: &str) -> Parsed<Expr> {
        use super::arith::Op;
        let value = Expr::Cast(Int::U64, Box::new(self.expression()?));
        let op = if name == "__print_ns_to_secs" { Op::Div } else { Op::Rem };
        Ok(Expr::Binary(op, Box::new([value, Expr::Int(1_000_000_000, Int::U64)])))
    }

    fn helper(&mut self, name: &str) -> Parsed<Expr> {
        let helper = match name {
            "__print_flags" | "__print_flags_u64" => {
                let value = self.expression()?;
                self.expect(",")?;
                let delimiter = match self.expression()? {
                    Expr::Text(text) => text,
                    Expr::Int(0, _) => Box::default(),
                    _ => return Err(format!("{name}: a delimiter that is no string")),
                };
                Helper::Flags { value, delimiter, table: self.table()? }
            }
            "__print_symbolic" | "__print_symbolic_u64" | "__print_symbolic64" => {
                Helper::Symbolic { value: self.expression()?, table: self.table()? }
            }
            "__print_hex" | "__print_hex_str" => {
                let [buffer, length] = self.arguments()?;
                Helper::Hex { buffer, length, joined: name == "__print_hex_str" }
            }
            "__print_dynamic_array" => {
                let locator = self.locator()?;
                self.expect(",")?;
                let size = self.expression()?;
                let bytes = Expr::Length(locator);
                let size_again =
                    static_value(&size).ok_or("__print_dynamic_array: a size that varies")?;
                let count = Expr::Binary(
                    super::arith::Op::Div,
                    Box::new([bytes, Expr::Int(size_again.max(1), Int::INT)]),
                );
                Helper::Array { buffer: Expr::Located(locator), count, size }
            }
            "__print_array" => {
                let [buffer, count, size] = self.arguments()?;
                Helper::Array { buffer, count, size }
            }
            "__print_hex_dump" => {
                let [prefix, kind, row, group, buffer, length, ascii] = self.arguments()?;
                Helper::Dump { prefix, numbers: [kind, row, group, length, ascii], buffer }
            }
            _ => {
                let begin = self.at;
                let known = self.driver_function(name)?;
                return Ok(known.unwrap_or_else(|| {
                    self.at = begin;
                    self.unknown_call(name)
                }));
            }
        };
        Ok(Expr::Helper(Box::new(helper)))
    }

    pub(super) fn arguments<const N: usize>(&mut self) -> Parsed<[Expr; N]> {
        let mut all = Vec::with_capacity(N);
        for index in 0..N {
            if index > 0 {
                self.expect(",")?;
            }
            all.push(self.expression()?);
        }
        all.try_into().map_err(|_| "arguments".into())
    }

    /// Parses the name of a `__data_loc` or `__rel_loc` field. A probe may have an array of them.
    pub(crate) fn locator(&mut self) -> Parsed<Locator> {
        let Some(Token::Word(name)) = self.peek() else {
            return Err("no field name where one is required".into());
        };
        self.at = self.at.saturating_add(1);
        let index = if self.takes("[") {
            let index =
                static_value(&self.expression()?).and_then(|index| u32::try_from(index).ok());
            self.expect("]")?;
            index.ok_or("an index that varies")?
        } else {
            0
        };
        let field = self.field(name)?;
        let relative = field.declaration.starts_with("__rel_loc");
        if !relative && !field.declaration.starts_with("__data_loc") {
            return Err(format!("{name} is no dynamic field"));
        }
        let offset = field.offset.saturating_add(index.saturating_mul(LOCATOR));
        Ok(Locator { offset, relative, element: element_of(field, self.machine.word_size) })
    }

    /// Parses `, { value, "name" }`… and the closing parenthesis. A row is left out if its value is
    /// not known. Then the value of that row is shown as a number.
    fn table(&mut self) -> Parsed<Table> {
        let (mut rows, mut is_complete) = (Vec::new(), true);
        while self.takes(",") {
            if !self.takes("{") {
                break;
            }
            let spent = self.spent;
            match self.row()? {
                Row::Named(value, name) => rows.push((value, name)),
                Row::Unknown => is_complete = false,
                Row::End => {}
            }
            // Each value is an expression with its own limit.
            self.spent = spent;
            if rows.len() > MOST_NAMES {
                return Err(format!("more than {MOST_NAMES} names"));
            }
        }
        Ok(Table { rows: rows.into(), is_complete })
    }

    /// Parses `value, "name" }`.
    fn row(&mut self) -> Parsed<Row> {
        let spent = self.spent;
        let value = self.expression()?;
        self.spent = spent;
        self.expect(",")?;
        let name = self.expression()?;
        self.takes(",");
        self.expect("}")?;
        match (static_value(&value), name) {
            (Some(value), Expr::Text(name)) => Ok(Row::Named(value, name)),
            (_, other) if static_value(&other) == Some(0) => Ok(Row::End),
            (None, Expr::Text(_)) if value.is_unknown() => Ok(Row::Unknown),
            (None, _) => Err("a name for a value that varies".into()),
            _ => Err("a name that varies".into()),
        }
    }
}

/// Returns `base[index]`. For an array field and a constant index that is the integer field there.
fn element(base: Expr, index: Expr) -> Expr {
    let at = static_value(&index).and_then(|at| u32::try_from(at).ok());
    if let (Expr::Payload { offset, length, element }, Some(at)) = (&base, at) {
        let begin = at.saturating_mul(u32::from(element.size));
        let fits = *length == 0 || begin.saturating_add(u32::from(element.size)) <= *length;
        if fits && let Some(offset) = offset.checked_add(begin) {
            return Expr::Field { offset, kind: *element };
        }
    }
    Expr::Index(Box::new([base, index]))
}

/// Returns the value of an expression that reads nothing of an event.
pub(crate) fn static_value(expr: &Expr) -> Option<u64> {
    super::eval::constant(expr).map(|(value, _)| value)
}

fn static_size(expr: &Expr) -> Option<u64> {
    match expr {
        Expr::Field { kind, .. } | Expr::Cast(kind, _) | Expr::Int(_, kind) => {
            Some(u64::from(kind.size))
        }
        Expr::Payload { length, .. } => Some(u64::from(*length)),
        Expr::Index(parts) => match &**parts {
            [Expr::Payload { element, .. } | Expr::PointerCast(element, _), _] => {
                Some(u64::from(element.size))
            }
            [Expr::Located(locator), _] => Some(u64::from(locator.element.size)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the type of the elements of an array field or of a dynamic field.
pub(crate) fn element_of(field: &Field, word_size: u8) -> Int {
    let declaration =
        field.declaration.trim_start_matches("__data_loc").trim_start_matches("__rel_loc");
    if declaration.contains('*') {
        return Int { size: word_size, signed: false };
    }
    let before = declaration.split('[').next().unwrap_or_default();
    let words: Vec<&str> = before.split_whitespace().filter(|w| *w != field.name).collect();
    if let Some(kind) = named(&words, word_size) {
        return kind;
    }
    let count = declaration
        .split_once('[')
        .and_then(|(_, rest)| rest.split(']').next()?.trim().parse::<u32>().ok());
    let size = count.and_then(|count| field.size.checked_div(count)).unwrap_or(1);
    Int::new(size, field.is_signed).unwrap_or(Int::U8)
}

pub(crate) fn field_expression(field: &Field, word_size: u8) -> Expr {
    let is_located =
        ["__data_loc", "__rel_loc"].iter().any(|word| field.declaration.starts_with(word));
    let is_array = field.declaration.contains('[') && !is_located;
    match Int::new(field.size, field.is_signed) {
        Some(kind) if !is_array => Expr::Field { offset: field.offset, kind },
        _ => Expr::Payload {
            offset: field.offset,
            length: field.size,
            element: element_of(field, word_size),
        },
    }
}
