//! Parses declarations.

use super::block::{self, Clock, Event, Stream, Trace};
use super::lex::Word;
use super::types::{Length, Member, Type};
use super::{Missing, Wrong};
use lastwords_bytes::ByteOrder;
use lastwords_trace::schema::EnvValue;
use std::collections::HashMap;
use std::rc::Rc;

/// Deepest nesting of blocks and types.
const MAX_DEPTH: usize = 64;

/// All declarations of the metadata.
#[derive(Debug, Default)]
pub(super) struct Declared {
    pub(super) trace: Option<Trace>,
    pub(super) env: Vec<(String, EnvValue)>,
    pub(super) clocks: Vec<Clock>,
    pub(super) streams: Vec<Stream>,
    pub(super) events: Vec<Event>,
    /// The faults of declarations that are left out.
    pub(super) missing: Missing,
}

/// Parses the words of a whole metadata stream. A declaration that is wrong is left out.
///
/// # Errors
/// The trace block is wrong, or there are two: nothing can be read without it.
pub(super) fn declarations(words: &[(Word<'_>, u32)]) -> Result<Declared, Wrong> {
    let order = native_order(words);
    let (scopes, fresh) = (vec![HashMap::new()], Vec::new());
    let mut parser = Parser { words, next: 0, scopes, native: order, depth: 0, fresh };
    let mut declared = Declared::default();
    while *parser.peek() != Word::End {
        let begin = parser.next;
        parser.fresh.clear();
        if let Err(wrong) = parser.declaration(&mut declared) {
            if parser.is_block(begin) && matches!(words.get(begin), Some((Word::Name("trace"), _)))
            {
                return Err(wrong);
            }
            declared.missing.add(wrong);
            parser.forget();
            parser.skip(begin);
        }
    }
    Ok(declared)
}

/// Returns the byte order that the trace block names. The block may follow types that use it.
fn native_order(words: &[(Word<'_>, u32)]) -> ByteOrder {
    let is = |i: usize, name: &str| matches!(words.get(i), Some((Word::Name(n), _)) if *n == name);
    let begin = (0..words.len()).find(|i| {
        is(*i, "trace") && matches!(words.get(i.saturating_add(1)), Some((Word::Mark("{"), _)))
    });
    let at = begin.and_then(|begin| (begin..words.len()).find(|i| is(*i, "byte_order")));
    match at.and_then(|at| words.get(at.saturating_add(2))) {
        Some((Word::Name("be" | "network"), _)) => ByteOrder::Big,
        _ => ByteOrder::Little,
    }
}

pub(super) struct Parser<'a> {
    pub(super) words: &'a [(Word<'a>, u32)],
    pub(super) next: usize,
    scopes: Vec<HashMap<String, Rc<Type>>>,
    pub(super) native: ByteOrder,
    depth: usize,
    /// The types for all declarations that the current one declares.
    fresh: Vec<String>,
}

impl<'a> Parser<'a> {
    pub(super) fn peek(&self) -> &'a Word<'a> {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> &'a Word<'a> {
        self.words
            .get(self.next.saturating_add(ahead))
            .or(self.words.last())
            .map_or(&Word::End, |(word, _)| word)
    }

    pub(super) fn line(&self) -> u32 {
        self.words.get(self.next).or(self.words.last()).map_or(0, |(_, line)| *line)
    }

    pub(super) fn advance(&mut self) -> &'a Word<'a> {
        let word = self.peek();
        self.next = self.next.saturating_add(1);
        word
    }

    pub(super) fn wrong(&self, what: impl Into<String>) -> Wrong {
        Wrong { line: self.line(), what: what.into() }
    }

    pub(super) fn unexpected(&self, expected: &str) -> Wrong {
        match self.peek() {
            Word::Lost(why) => self.wrong(why),
            found => self.wrong(format!("found {found}, expected {expected}")),
        }
    }

    pub(super) fn is(&self, mark: &str) -> bool {
        matches!(self.peek(), Word::Mark(m) if *m == mark)
    }

    pub(super) fn accept(&mut self, mark: &str) -> bool {
        let is = self.is(mark);
        self.next = self.next.saturating_add(usize::from(is));
        is
    }

    pub(super) fn expect(&mut self, mark: &str) -> Result<(), Wrong> {
        if self.accept(mark) { Ok(()) } else { Err(self.unexpected(&format!("`{mark}`"))) }
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Word::Name(n) if *n == name)
    }

    pub(super) fn name(&mut self) -> Result<&'a str, Wrong> {
        match self.peek() {
            Word::Name(name) => {
                self.next = self.next.saturating_add(1);
                Ok(name)
            }
            _ => Err(self.unexpected("a name")),
        }
    }

    /// Runs `body` one level deeper.
    pub(super) fn deeper<T>(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<T, Wrong>,
    ) -> Result<T, Wrong> {
        if self.depth >= MAX_DEPTH {
            return Err(self.wrong(format!("nested deeper than {MAX_DEPTH}")));
        }
        self.depth = self.depth.saturating_add(1);
        let done = body(self);
        self.depth = self.depth.saturating_sub(1);
        done
    }

    /// Runs `body` in a new scope of types.
    pub(super) fn scoped<T>(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<T, Wrong>,
    ) -> Result<T, Wrong> {
        self.scopes.push(HashMap::new());
        let done = self.deeper(body);
        self.scopes.pop();
        done
    }

    pub(super) fn declare(&mut self, name: String, class: Rc<Type>) -> Result<(), Wrong> {
        let line = self.line();
        if self.scopes.len() == 1 {
            self.fresh.push(name.clone());
        }
        match self.scopes.last_mut().map(|scope| scope.insert(name.clone(), class)) {
            Some(Some(_)) => Err(Wrong { line, what: format!("type `{name}` is declared twice") }),
            _ => Ok(()),
        }
    }

    /// Forgets the types that the current declaration has declared, because it is wrong.
    fn forget(&mut self) {
        for name in self.fresh.drain(..) {
            self.scopes.first_mut().and_then(|scope| scope.remove(&name));
        }
    }

    /// Shares a type that is not nested too deep.
    pub(super) fn shallow(&self, class: Type) -> Result<Rc<Type>, Wrong> {
        if class.depth() > MAX_DEPTH {
            return Err(self.wrong(format!("types are nested deeper than {MAX_DEPTH}")));
        }
        Ok(Rc::new(class))
    }

    pub(super) fn lookup(&self, name: &str) -> Option<Rc<Type>> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).cloned()
    }

    fn declaration(&mut self, declared: &mut Declared) -> Result<(), Wrong> {
        if self.accept(";") || self.type_declaration()? {
            return Ok(());
        }
        let line = self.line();
        let name = self.name()?;
        match name {
            "trace" => {
                let trace = block::trace(self)?;
                if declared.trace.replace(trace).is_some() {
                    return Err(Wrong { line, what: "a second trace block".into() });
                }
            }
            "env" => declared.env.extend(block::env(self)?),
            "clock" => declared.clocks.push(block::clock(self, line)?),
            "stream" => declared.streams.push(block::stream(self, line)?),
            "event" => declared.events.push(block::event(self, line)?),
            "callsite" => block::ignored(self)?,
            other => {
                return Err(Wrong {
                    line,
                    what: format!("found `{other}`, expected a declaration or a block"),
                });
            }
        }
        self.expect(";")
    }

    /// Parses a typealias, a typedef, or a named structure, variant or enumeration outside of a
    /// field. Returns false if there is none.
    pub(super) fn type_declaration(&mut self) -> Result<bool, Wrong> {
        match self.peek() {
            Word::Name("typealias") => {
                self.next = self.next.saturating_add(1);
                let class = self.specifier()?;
                self.abstract_declarator();
                self.expect(":=")?;
                let name = self.type_name()?;
                self.declare(name, class)?;
            }
            Word::Name("typedef") => {
                self.next = self.next.saturating_add(1);
                let class = self.specifier()?;
                loop {
                    let member = self.declarator(Rc::clone(&class))?;
                    self.declare(member.name, member.class)?;
                    if !self.accept(",") {
                        break;
                    }
                }
            }
            Word::Name("struct" | "variant" | "enum") => {
                self.specifier()?;
                if self.is("*") || matches!(self.peek(), Word::Name(_)) {
                    return Err(self.unexpected("`;`"));
                }
            }
            _ => return Ok(false),
        }
        self.expect(";")?;
        Ok(true)
    }

    /// Skips stars without a name; they have no meaning here.
    fn abstract_declarator(&mut self) {
        while self.accept("*") || self.is_name("const") && self.advance() != &Word::End {}
    }

    /// Reads the name that a typealias gives: words and stars.
    fn type_name(&mut self) -> Result<String, Wrong> {
        let mut parts = Vec::new();
        loop {
            match self.peek() {
                Word::Name(name) => parts.push(*name),
                Word::Mark("*") => parts.push("*"),
                _ if parts.is_empty() => return Err(self.unexpected("the name of a type")),
                _ => return Ok(parts.join(" ")),
            }
            self.next = self.next.saturating_add(1);
        }
    }

    /// Reads a name with stars and brackets around it.
    pub(super) fn declarator(&mut self, class: Rc<Type>) -> Result<Member, Wrong> {
        self.abstract_declarator();
        let line = self.line();
        if self.accept("(") {
            let inner = self.deeper(|this| this.declarator(class))?;
            self.expect(")")?;
            return Ok(inner);
        }
        let name = match self.peek() {
            Word::Text(text) => {
                self.next = self.next.saturating_add(1);
                text.clone()
            }
            _ => self.name()?.to_owned(),
        };
        let mut lengths = Vec::new();
        while self.accept("[") {
            lengths.push(self.length()?);
            self.expect("]")?;
            if lengths.len() > MAX_DEPTH {
                return Err(self.wrong(format!("an array of more than {MAX_DEPTH} dimensions")));
            }
        }
        if self.is(":") {
            return Err(self.wrong("bit fields: write `integer { size = … }`"));
        }
        let mut class = class;
        for length in lengths.into_iter().rev() {
            let depth = class.depth().saturating_add(1);
            class = self.shallow(Type::Array { element: class, length, depth })?;
        }
        Ok(Member { name, class, line })
    }

    fn length(&mut self) -> Result<Length, Wrong> {
        match self.peek() {
            Word::Number(number) => {
                self.next = self.next.saturating_add(1);
                Ok(Length::Fixed(*number))
            }
            Word::Name(_) => self.dotted().map(Length::Of),
            _ => Err(self.unexpected("a number or a field")),
        }
    }

    /// Reads names with dots (or arrows) between them.
    pub(super) fn dotted(&mut self) -> Result<String, Wrong> {
        let mut path = self.name()?.to_owned();
        while self.accept(".") || self.accept("->") {
            path.push('.');
            path.push_str(self.name()?);
        }
        Ok(path)
    }
}
