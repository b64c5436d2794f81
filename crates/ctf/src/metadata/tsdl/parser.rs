//! A parser: its place in the words of the metadata, and the types that were declared before it.

use super::Wrong;
use super::lex::Word;
use super::types::Type;
use lastwords_bytes::ByteOrder;
use std::collections::HashMap;
use std::rc::Rc;

/// Deepest nesting of blocks and types.
pub(super) const MAX_DEPTH: usize = 64;

pub(super) struct Parser<'a> {
    pub(super) words: &'a [(Word<'a>, u32)],
    pub(super) next: usize,
    scopes: Vec<HashMap<String, Rc<Type>>>,
    pub(super) native: ByteOrder,
    depth: usize,
    /// The types for all declarations that the current one declares.
    pub(super) fresh: Vec<String>,
}

impl<'a> Parser<'a> {
    /// Returns a parser at the first word. `native` is the byte order of the trace.
    pub(super) fn new(words: &'a [(Word<'a>, u32)], native: ByteOrder) -> Self {
        let (scopes, fresh) = (vec![HashMap::new()], Vec::new());
        Self { words, next: 0, scopes, native, depth: 0, fresh }
    }

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
    pub(super) fn forget(&mut self) {
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
