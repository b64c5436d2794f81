//! Parses type declarations, and declarators: names with stars and brackets around them.

use super::Wrong;
use super::lex::Word;
use super::parser::{MAX_DEPTH, Parser};
use super::types::{Length, Member, Type};
use std::rc::Rc;

impl Parser<'_> {
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
    pub(super) fn abstract_declarator(&mut self) {
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
}
