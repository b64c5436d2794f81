//! Parses type specifiers: integers, floats, text, enumerations, structures, variants, and names of
//! types.

use super::Wrong;
use super::lex::Word;
use super::parser::Parser;
use super::types::{Integer, Member, Type, depth_of};
use super::value::Value;
use lastwords_bytes::ByteOrder;
use lastwords_trace::class::{Encoding, Range};
use std::collections::HashSet;
use std::rc::Rc;

impl Parser<'_> {
    /// Parses `{ name = value; … }`. Returns nothing if there is no brace.
    fn attributes(&mut self) -> Result<Vec<(String, Value, u32)>, Wrong> {
        let mut attributes = Vec::new();
        if !self.accept("{") {
            return Ok(attributes);
        }
        while !self.accept("}") {
            if self.accept(";") {
                continue;
            }
            let line = self.line();
            let name = self.name()?.to_owned();
            self.expect("=")?;
            attributes.push((name, self.value()?, line));
            self.expect(";")?;
        }
        Ok(attributes)
    }

    /// Parses a type.
    pub(super) fn specifier(&mut self) -> Result<Rc<Type>, Wrong> {
        while self.is_name("const") || self.is_name("volatile") {
            self.advance();
        }
        let class = match self.peek() {
            Word::Name("integer") => {
                self.advance();
                self.integer().map(|integer| Rc::new(Type::Integer(integer)))
            }
            Word::Name("floating_point") => {
                self.advance();
                self.float().map(Rc::new)
            }
            Word::Name("string") => {
                self.advance();
                self.text().map(Rc::new)
            }
            Word::Name("enum") => {
                self.advance();
                self.deeper(Self::enumeration)
            }
            Word::Name("struct") => {
                self.advance();
                self.structure()
            }
            Word::Name("variant") => {
                self.advance();
                self.variant()
            }
            Word::Name(_) => self.named(),
            _ => Err(self.unexpected("a type")),
        }?;
        while self.is_name("const") || self.is_name("volatile") {
            self.advance();
        }
        Ok(class)
    }

    /// Parses the longest run of words that names a type: `unsigned long`, `uint32_t`.
    fn named(&mut self) -> Result<Rc<Type>, Wrong> {
        let mut name = String::new();
        let mut best = None;
        for ahead in 0..8 {
            let Word::Name(word) = self.peek_at(ahead) else { break };
            if ahead > 0 {
                name.push(' ');
            }
            name.push_str(word);
            if let Some(class) = self.lookup(&name) {
                best = Some((ahead.saturating_add(1), class));
            }
        }
        let mut starred = name;
        let stars = starred.split(' ').count();
        if matches!(self.peek_at(stars), Word::Mark("*")) {
            starred.push_str(" *");
            if let Some(class) = self.lookup(&starred) {
                best = Some((stars.saturating_add(1), class));
            }
        }
        let Some((words, class)) = best else {
            return Err(self.unexpected("the name of a type that is declared"));
        };
        for _ in 0..words {
            self.advance();
        }
        Ok(class)
    }

    fn order(&self, value: &Value, line: u32) -> Result<ByteOrder, Wrong> {
        match value.word() {
            Some("le") => Ok(ByteOrder::Little),
            Some("be" | "network") => Ok(ByteOrder::Big),
            Some("native") => Ok(self.native),
            _ => Err(Wrong { line, what: "byte_order: expected le, be, network or native".into() }),
        }
    }

    fn integer(&mut self) -> Result<Integer, Wrong> {
        let line = self.line();
        let mut length = None;
        let mut alignment = None;
        let mut integer = Integer {
            length: 0,
            alignment: 0,
            signed: false,
            order: self.native,
            base: 10,
            text: false,
            clock: None,
        };
        for (name, value, line) in self.attributes()? {
            let wrong = |what: &str| Wrong { line, what: format!("{name}: expected {what}") };
            match name.as_str() {
                "size" => {
                    let bits = value.unsigned().filter(|bits| (1..=64).contains(bits));
                    length = Some(bits.ok_or_else(|| wrong("1 to 64 bits"))?);
                }
                "align" => {
                    alignment = Some(power_of_two(&value).ok_or_else(|| wrong("a power of two"))?)
                }
                "signed" => integer.signed = value.truth().ok_or_else(|| wrong("true or false"))?,
                "byte_order" => integer.order = self.order(&value, line)?,
                "base" => {
                    integer.base = base(&value).ok_or_else(|| wrong("a base of 2, 8, 10 or 16"))?
                }
                "encoding" => {
                    integer.text = is_text(&value).ok_or_else(|| wrong("none, UTF8 or ASCII"))?
                }
                "map" => {
                    let path = value.word().unwrap_or_default();
                    let clock = path.strip_prefix("clock.").and_then(|p| p.strip_suffix(".value"));
                    integer.clock =
                        Some(clock.ok_or_else(|| wrong("clock.NAME.value"))?.to_owned());
                }
                _ => {}
            }
        }
        integer.length =
            length.ok_or_else(|| Wrong { line, what: "integer: expected a size".into() })?;
        integer.alignment =
            alignment.unwrap_or(if integer.length.is_multiple_of(8) { 8 } else { 1 });
        Ok(integer)
    }

    fn float(&mut self) -> Result<Type, Wrong> {
        let line = self.line();
        let (mut exponent, mut mantissa, mut alignment, mut order) =
            (None, None, None, self.native);
        for (name, value, line) in self.attributes()? {
            let wrong = |what: &str| Wrong { line, what: format!("{name}: expected {what}") };
            match name.as_str() {
                "exp_dig" => exponent = value.unsigned(),
                "mant_dig" => mantissa = value.unsigned(),
                "align" => {
                    alignment = Some(power_of_two(&value).ok_or_else(|| wrong("a power of two"))?)
                }
                "byte_order" => order = self.order(&value, line)?,
                _ => {}
            }
        }
        let length = match (exponent, mantissa) {
            (Some(5), Some(11)) => 16,
            (Some(8), Some(24)) => 32,
            (Some(11), Some(53)) => 64,
            (Some(15), Some(113)) => 128,
            _ => {
                let what =
                    "floating_point: expected exp_dig and mant_dig of IEEE 754 (8, 24 or 11, 53)";
                return Err(Wrong { line, what: what.into() });
            }
        };
        Ok(Type::Float { length, alignment: alignment.unwrap_or(8), order })
    }

    fn text(&mut self) -> Result<Type, Wrong> {
        for (name, value, line) in self.attributes()? {
            if name == "encoding" && is_text(&value).is_none() {
                return Err(Wrong { line, what: "encoding: expected UTF8 or ASCII".into() });
            }
        }
        Ok(Type::Text(Encoding::Utf8))
    }

    fn structure(&mut self) -> Result<Rc<Type>, Wrong> {
        let line = self.line();
        let name = self.tag_name();
        if !self.is("{") {
            let name = name.ok_or_else(|| self.unexpected("a structure's name or `{`"))?;
            let known = self.lookup(&format!("struct {name}"));
            return known
                .ok_or_else(|| Wrong { line, what: format!("struct `{name}` is not declared") });
        }
        let fields = self.members()?;
        let mut alignment = 1;
        if self.is_name("align") {
            self.advance();
            self.expect("(")?;
            let value = self.value()?;
            alignment =
                power_of_two(&value).ok_or_else(|| self.wrong("align: expected a power of two"))?;
            self.expect(")")?;
        }
        let depth = depth_of(&fields);
        let class = self.shallow(Type::Struct { fields, alignment, depth })?;
        if let Some(name) = name {
            self.declare(format!("struct {name}"), Rc::clone(&class))?;
        }
        Ok(class)
    }

    fn tag_name(&mut self) -> Option<String> {
        match self.peek() {
            Word::Name(name) => {
                self.advance();
                Some((*name).to_owned())
            }
            _ => None,
        }
    }

    /// Parses `{ type name; … }`.
    fn members(&mut self) -> Result<Vec<Member>, Wrong> {
        self.expect("{")?;
        self.scoped(|this| {
            let (mut members, mut names): (Vec<Member>, HashSet<String>) = Default::default();
            while !this.accept("}") {
                let declares = matches!(this.peek(), Word::Name("typealias" | "typedef"));
                if this.accept(";") || declares && this.type_declaration()? {
                    continue;
                }
                let class = this.specifier()?;
                if this.accept(";") {
                    // A structure, variant or enumeration that has only a name is no member.
                    continue;
                }
                loop {
                    let member = this.declarator(Rc::clone(&class))?;
                    if !names.insert(member.name.clone()) {
                        let what = format!("a second field `{}`", member.name);
                        return Err(Wrong { line: member.line, what });
                    }
                    members.push(member);
                    if !this.accept(",") {
                        break;
                    }
                }
                this.expect(";")?;
            }
            Ok(members)
        })
    }

    fn variant(&mut self) -> Result<Rc<Type>, Wrong> {
        let line = self.line();
        let name = self.tag_name();
        let mut tag = None;
        if self.accept("<") {
            tag = Some(self.dotted()?);
            self.expect(">")?;
        }
        if !self.is("{") {
            let name = name.ok_or_else(|| self.unexpected("a variant's name or `{`"))?;
            let known = self.lookup(&format!("variant {name}"));
            let known = known
                .ok_or_else(|| Wrong { line, what: format!("variant `{name}` is not declared") })?;
            return match (&*known, tag) {
                (Type::Variant { options, depth, .. }, Some(tag)) => Ok(Rc::new(Type::Variant {
                    tag: Some(tag),
                    options: Rc::clone(options),
                    depth: *depth,
                })),
                _ => Ok(known),
            };
        }
        let options: Rc<[Member]> = self.members()?.into();
        let depth = depth_of(&options);
        let class = self.shallow(Type::Variant { tag, options, depth })?;
        if let Some(name) = name {
            self.declare(format!("variant {name}"), Rc::clone(&class))?;
        }
        Ok(class)
    }

    fn enumeration(&mut self) -> Result<Rc<Type>, Wrong> {
        let line = self.line();
        let name = self.tag_name();
        let mut container = None;
        if self.accept(":") {
            container = Some(self.specifier()?);
        }
        if !self.is("{") {
            let name = name.ok_or_else(|| self.unexpected("an enumeration's name or `{`"))?;
            let known = self.lookup(&format!("enum {name}"));
            return known
                .ok_or_else(|| Wrong { line, what: format!("enum `{name}` is not declared") });
        }
        let container = container.or_else(|| self.lookup("int"));
        let Some(Type::Integer(integer)) = container.as_deref() else {
            let what = "enum: expected an integer type after `:`, or one called `int`";
            return Err(Wrong { line, what: what.into() });
        };
        let integer = integer.clone();
        let labels = self.labels(integer.signed)?;
        let class = Rc::new(Type::Enum { integer, labels });
        if let Some(name) = name {
            self.declare(format!("enum {name}"), Rc::clone(&class))?;
        }
        Ok(class)
    }

    /// Parses `{ label, label = value, label = value ... value, … }`.
    fn labels(&mut self, signed: bool) -> Result<Vec<(String, Range)>, Wrong> {
        self.expect("{")?;
        let mut labels = Vec::new();
        let mut next: i128 = 0;
        while !self.accept("}") {
            let label = match self.advance() {
                Word::Name(name) => (*name).to_owned(),
                Word::Text(text) => text.clone(),
                _ => return Err(self.wrong("expected a label")),
            };
            let mut range = Range { lower: next, upper: next };
            if self.accept("=") {
                range.lower = self.bound(signed)?;
                range.upper = if self.accept("...") { self.bound(signed)? } else { range.lower };
            }
            if range.lower > range.upper {
                return Err(self.wrong(format!("label {label:?}: the range is empty")));
            }
            next = range.upper.saturating_add(1);
            labels.push((label, range));
            if !self.accept(",") && !self.is("}") {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
        Ok(labels)
    }

    fn bound(&mut self, signed: bool) -> Result<i128, Wrong> {
        let value = self.value()?;
        let number = match value {
            Value::Number(number, negative) => Some(if negative {
                i128::from(number).saturating_neg()
            } else {
                i128::from(number)
            }),
            _ => None,
        };
        let least = if signed { i128::from(i64::MIN) } else { 0 };
        let most = if signed { i128::from(i64::MAX) } else { i128::from(u64::MAX) };
        number
            .filter(|n| (least..=most).contains(n))
            .ok_or_else(|| self.wrong("expected an integer of the label's type"))
    }
}

fn power_of_two(value: &Value) -> Option<u64> {
    value.unsigned().filter(|bits| bits.is_power_of_two())
}

fn base(value: &Value) -> Option<u8> {
    match value {
        Value::Number(2, false) => Some(2),
        Value::Number(8, false) => Some(8),
        Value::Number(10, false) => Some(10),
        Value::Number(16, false) => Some(16),
        Value::Name(word) | Value::Text(word) => match word.as_str() {
            "decimal" | "dec" | "d" | "i" | "u" => Some(10),
            "hexadecimal" | "hex" | "x" | "X" | "p" => Some(16),
            "octal" | "oct" | "o" => Some(8),
            "binary" | "b" => Some(2),
            _ => None,
        },
        Value::Number(..) => None,
    }
}

fn is_text(value: &Value) -> Option<bool> {
    match value.word()? {
        "UTF8" | "utf8" | "utf-8" | "UTF-8" | "ASCII" | "ascii" => Some(true),
        "none" => Some(false),
        _ => None,
    }
}
