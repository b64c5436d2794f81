//! Values to bytes: which types an event may carry, and how a payload of them is put together without allocation.

mod fields;
mod formatted;
mod labels;
pub(crate) mod writer;

pub use self::fields::{Element, Hex, Integer, hex};
pub use self::formatted::{Debugged, Displayed, Formatted};
pub use self::labels::Labeled;
pub use self::writer::Out;

use self::writer::Pieces as PieceList;
use crate::session::registry::{FieldDesc, FieldType};

/// The pieces of a payload too long for a buffer on the stack.
pub struct Pieces<'a>(pub(crate) PieceList<'a>);

impl Out for Pieces<'_> {
    fn scalar(&mut self, value: u64, size: usize) {
        let bytes = value.to_ne_bytes();
        self.0.copied(if cfg!(target_endian = "little") { &bytes[..size] } else { &bytes[8 - size..] });
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.0.copied(bytes);
    }

    fn text(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0.copied(&[if *byte == 0 { writer::INNER_NUL } else { *byte }]);
        }
        self.0.copied(&[0]);
    }
}

/// A value that an event can carry.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of an event",
    label = "not a field",
    note = "record it as text with `name = ?value` (`Debug`) or `name = %value` (`Display`)",
    note = "an enum without fields becomes a field by `lastwords::labels!`, any other type by implementing `lastwords::Field`"
)]
pub trait Field {
    /// How a reader sees it.
    const TYPE: FieldType;
    /// Bytes, where every value has the same number.
    const FIXED: Option<usize>;
    /// It is text: [`Field::text`] has it.
    const TEXT: bool = false;
    /// The same value in registers: a number itself, a text as `&str`; or else a reference.
    type Short<'a>: Field + Copy
    where
        Self: 'a;
    /// The same value, of the same type to a reader, and the same bytes.
    fn short(&self) -> Self::Short<'_>;
    /// Bytes of this value.
    fn size(&self) -> usize;
    /// The bytes of text, without NUL at the end; nothing where the value is not text.
    #[inline(always)]
    fn text(&self) -> &[u8] {
        &[]
    }
    /// Writes exactly [`Field::size`] bytes.
    fn write(&self, out: &mut impl Out);
    /// The same, keeping references to long values in place of copies.
    #[inline]
    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        self.write(out);
    }
}

/// [`Field::Short`] and [`Field::short`] of a value that is copied, or of one that is passed on as a reference.
#[doc(hidden)]
#[macro_export]
macro_rules! __short {
    (Self) => {
        type Short<'a>
            = Self
        where
            Self: 'a;

        #[inline(always)]
        fn short(&self) -> Self {
            *self
        }
    };
    (&$T:ty) => {
        type Short<'a>
            = &'a $T
        where
            Self: 'a;

        #[inline(always)]
        fn short(&self) -> &$T {
            self
        }
    };
}
pub(crate) use __short as short;

/// A reference is as what it refers to.
macro_rules! reference {
    ($($R:ty),*) => { $(
        impl<T: Field + ?Sized> Field for $R {
            const TYPE: FieldType = T::TYPE;
            const FIXED: Option<usize> = T::FIXED;
            const TEXT: bool = T::TEXT;
            type Short<'a>
                = T::Short<'a>
            where
                Self: 'a;

            #[inline(always)]
            fn short(&self) -> Self::Short<'_> {
                T::short(self)
            }

            #[inline(always)]
            fn text(&self) -> &[u8] {
                T::text(self)
            }

            #[inline(always)]
            fn size(&self) -> usize {
                T::size(self)
            }

            #[inline(always)]
            fn write(&self, out: &mut impl Out) {
                T::write(self, out);
            }

            #[inline]
            fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
                T::pieces(self, out);
            }
        }
    )* };
}
reference!(&T, &mut T);

/// A tuple of [`Field`]s as the macros make it.
pub trait Given {
    /// The values as they are passed on.
    type Short<'a>: Values + Copy
    where
        Self: 'a;
    /// The values in registers, as far as they can be: what they were given by need not be in memory then.
    fn short(&self) -> Self::Short<'_>;
}

/// The values of one event: a tuple of [`Field`]s.
pub trait Values {
    /// Bytes, where every payload has the same number.
    const FIXED: Option<usize>;
    /// Values.
    const COUNT: usize = 0;
    /// Bytes before the last value, where that is text and all before it have fixed sizes.
    const HEAD: Option<usize> = None;
    /// The same values, built anew one by one: what is passed on in memory is then another object, and this one stays in
    /// registers (a copy in one piece does not do: an event with a text takes 15 % longer).
    #[inline(always)]
    fn again(&self) -> Self
    where
        Self: Copy,
    {
        *self
    }
    /// Bytes of this payload.
    fn size(&self) -> usize;
    /// Writes all values but the last, where [`Values::HEAD`] is some.
    #[inline(always)]
    fn write_head(&self, _out: &mut impl Out) {}
    /// The last value's text, likewise.
    #[inline(always)]
    fn last_text(&self) -> &[u8] {
        &[]
    }
    /// Writes exactly [`Values::size`] bytes.
    fn write(&self, out: &mut impl Out);
    /// The same as pieces.
    fn pieces<'a>(&'a self, out: &mut Pieces<'a>);
}

/// What a callsite's macro knows before any value is seen.
pub trait Site {
    /// Provider.
    const PROVIDER: &'static str;
    /// Name.
    const NAME: &'static str;
    /// Severity, 1 to 5.
    const LEVEL: u8;
    /// Format string of a marker, or empty.
    const FORMAT: &'static str;
    /// Source file.
    const FILE: &'static str;
    /// Source line.
    const LINE: u32;
    /// Names of the fields.
    const NAMES: &'static [&'static str];
}

/// The names of a [`Site`] joined with the types of its values.
pub trait Described<S: Site> {
    /// The fields.
    const FIELDS: &'static [FieldDesc];
}

const fn add(a: Option<usize>, b: Option<usize>) -> Option<usize> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        _ => None,
    }
}

macro_rules! tuple {
    ($($T:ident $i:tt),*) => {
        impl<$($T: Field),*> Given for ($($T,)*) {
            type Short<'a> = ($($T::Short<'a>,)*) where Self: 'a;

            #[allow(clippy::unused_unit, reason = "the tuple of no values")]
            #[inline(always)]
            fn short(&self) -> Self::Short<'_> {
                ($(self.$i.short(),)*)
            }
        }

        impl<$($T: Field + Copy),*> Values for ($($T,)*) {
            #[allow(clippy::unused_unit, reason = "the tuple of no values")]
            #[inline(always)]
            fn again(&self) -> Self {
                ($(self.$i,)*)
            }

            const FIXED: Option<usize> = {
                let sum = Some(0);
                $(let sum = add(sum, $T::FIXED);)*
                sum
            };
            const COUNT: usize = 0 $(+ { let _ = $i; 1 })*;
            const HEAD: Option<usize> = {
                let head = Some(0);
                let text = false;
                $(
                    let last = $i + 1 == Self::COUNT;
                    let head = if last { head } else { add(head, $T::FIXED) };
                    let text = if last { $T::TEXT } else { text };
                )*
                if text { head } else { None }
            };

            #[inline(always)]
            fn write_head(&self, _out: &mut impl Out) {
                $(
                    if $i + 1 != Self::COUNT {
                        self.$i.write(_out);
                    }
                )*
            }

            #[inline(always)]
            fn last_text(&self) -> &[u8] {
                let text: &[u8] = &[];
                $(let text = if $i + 1 == Self::COUNT { self.$i.text() } else { text };)*
                text
            }

            #[inline(always)]
            fn size(&self) -> usize {
                0 $(+ self.$i.size())*
            }

            #[inline(always)]
            fn write(&self, _out: &mut impl Out) {
                $(self.$i.write(_out);)*
            }

            #[inline]
            fn pieces<'a>(&'a self, _out: &mut Pieces<'a>) {
                $(self.$i.pieces(_out);)*
            }
        }

        impl<S: Site, $($T: Field),*> Described<S> for ($($T,)*) {
            const FIELDS: &'static [FieldDesc] = &[$(FieldDesc { name: S::NAMES[$i], ty: $T::TYPE }),*];
        }
    };
}

tuple!();
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14, P 15);
