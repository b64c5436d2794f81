//! Compiles fields whose values are hidden.

use super::super::fault::SchemaError;
use super::super::hide::{Hidden, How};
use super::super::op::Op;
use super::{Compiler, Member};
use lastwords_trace::class::{Encoding, FieldClass};
use lastwords_trace::visit::Shape;

impl Compiler<'_> {
    /// Compiles a member of a structure, which may be hidden. An optional field shows whether it is
    /// there.
    pub(super) fn member(
        &mut self,
        class: &FieldClass,
        member: Member<'_>,
    ) -> Result<(), SchemaError> {
        let name = member.name;
        // Members of one name in CTF 1.8 have an underscore in front.
        let plain = name.strip_prefix('_').unwrap_or(name);
        let how = self.hides.and_then(|(hides, event)| {
            hides.field(event, name).or_else(|| hides.field(event, plain))
        });
        match (class, how) {
            (class, None) => self.field(class, member),
            (FieldClass::Optional(_), how) => {
                self.within = how;
                self.choice(class, member)?;
                self.within = None;
                Ok(())
            }
            (class, Some(how)) => self.hidden(class, member, how),
        }
    }

    /// Compiles a hidden field: a text to visitors.
    pub(super) fn hidden(
        &mut self,
        class: &FieldClass,
        member: Member<'_>,
        how: How,
    ) -> Result<(), SchemaError> {
        let node = self.node(member, || Shape::Text(Encoding::Utf8))?;
        let (outer, hides) = (std::mem::take(&mut self.code), self.hides.take());
        let done = self.field(class, member);
        let code = std::mem::replace(&mut self.code, outer);
        self.hides = hides;
        done?;
        let hidden = u32::try_from(self.code.hidden.len())
            .map_err(|_| SchemaError::TooMany("hidden fields"))?;
        self.code.hidden.push(Hidden { code, how });
        self.code.ops.push(Op::Hide { node, hidden });
        Ok(())
    }
}
