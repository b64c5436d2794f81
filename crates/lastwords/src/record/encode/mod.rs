//! Turns values into bytes: the types that an event can carry, and the encoding of a payload
//! without allocation.

mod fields;
mod formatted;
mod hidden;
mod labels;
pub(crate) mod writer;

pub use self::fields::{Element, Hex, Integer, hex};
pub(crate) use self::fields::{Joined, memory};
#[cfg(feature = "tracing")]
pub(crate) use self::formatted::CUT;
pub use self::formatted::{Debugged, Displayed, Formatted};
pub use self::hidden::{Hashed, Secret, hashed, secret};
pub use self::labels::Labeled;
pub use self::writer::Out;
pub(crate) use self::writer::Pieces;

use self::writer::Count;
use crate::record::signature;
use crate::session::desc::{EventDesc, FieldDesc, FieldType};

/// A value that an event can carry.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of an event",
    label = "not a field",
    note = "record it as text with `name = ?value` (`Debug`) or `name = %value` (`Display`)",
    note = "an enum without fields becomes a field by `lastwords::labels!`, any other type by implementing `lastwords::Field`"
)]
pub trait Field {
    /// Type of the value for a reader.
    const TYPE: FieldType;
    /// Size in bytes, if it is the same for every value.
    const FIXED: Option<usize>;
    /// The value is text, which [`Field::text`] returns.
    const TEXT: bool = false;
    /// The same value in registers: a number itself, a text as `&str`, anything else as a
    /// reference.
    type Short<'a>: Field + Copy
    where
        Self: 'a;
    /// Returns the same value, with the same type to a reader, and the same bytes.
    fn short(&self) -> Self::Short<'_>;
    /// Returns the size of this value in bytes.
    #[inline(always)]
    fn size(&self) -> usize {
        Self::FIXED.unwrap_or_else(|| {
            let mut count = Count(0);
            self.write(&mut count);
            count.0
        })
    }
    /// Returns the bytes of text, without the NUL at the end; nothing if the value is not text.
    #[inline(always)]
    fn text(&self) -> &[u8] {
        &[]
    }
    /// Returns true if the value was cut when it was made text. It is counted then.
    #[doc(hidden)]
    #[inline(always)]
    fn is_cut(&self) -> bool {
        false
    }
    /// Writes exactly [`Field::size`] bytes.
    fn write(&self, out: &mut impl Out);
    /// Adds the value as pieces: long values are kept as references, not copied.
    #[inline]
    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        if Self::TEXT {
            out.source_text(self.text());
            out.raw(&[0]);
        } else {
            self.write(out);
        }
    }
}

/// Defines [`Field::Short`] and [`Field::short`] for a value that is copied, or for one that is
/// passed on as a reference.
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

/// Implements [`Field`] for values that are passed on without changes. The arguments are their type
/// for a reader, their size in bytes if it is always the same, and how they are written.
macro_rules! copied {
    ($([$($generic:tt)*] $T:ty, $ty:expr, $fixed:expr, |$value:ident, $out:ident| $write:expr;)*) => { $(
        impl<$($generic)*> Field for $T {
            const TYPE: FieldType = $ty;
            const FIXED: Option<usize> = $fixed;
            short!(Self);

            #[inline(always)]
            fn write(&self, out: &mut impl Out) {
                let ($value, $out) = (self, out);
                $write;
            }
        }
    )* };
}
pub(crate) use copied;

/// Implements [`Field`] for texts of these bytes, which may have more functions.
macro_rules! text {
    ($([$($generic:tt)*] $T:ty, ($($short:tt)*), |$value:ident| $bytes:expr $(, $more:item)?;)*) => { $(
        impl<$($generic)*> Field for $T {
            const TYPE: FieldType = FieldType::String;
            const FIXED: Option<usize> = None;
            const TEXT: bool = true;
            short!($($short)*);

            #[inline(always)]
            fn text(&self) -> &[u8] {
                let $value = self;
                $bytes
            }

            $($more)?

            #[inline(always)]
            fn write(&self, out: &mut impl Out) {
                out.text(self.text());
            }
        }
    )* };
}
use text;

/// Implements [`Field`] for values that are passed on as a value of another type. The reader's type
/// and the fixed size are those of the other type.
macro_rules! as_short {
    ($ty:expr, $fixed:expr; $([$($generic:tt)*] $T:ty, $short:ty, |$value:ident| $to_short:expr;)*) => { $(
        impl<$($generic)*> Field for $T {
            const TYPE: FieldType = $ty;
            const FIXED: Option<usize> = $fixed;
            type Short<'a>
                = $short
            where
                Self: 'a;

            #[inline(always)]
            fn short(&self) -> Self::Short<'_> {
                let $value = self;
                $to_short
            }

            #[inline(always)]
            fn write(&self, out: &mut impl Out) {
                self.short().write(out);
            }
        }
    )* };
}
use as_short;

/// A reference is recorded like the value that it refers to.
impl<T: Field + ?Sized> Field for &T {
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
    fn is_cut(&self) -> bool {
        T::is_cut(self)
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

/// A tuple of [`Field`]s made by the macros, with the names that a [`Site`] gives them.
pub trait Given<S: Site> {
    /// The names joined with the types of the values.
    const FIELDS: &'static [FieldDesc];
    /// The description of the event.
    const DESC: &'static EventDesc = &EventDesc { fields: Self::FIELDS, ..S::EVENT };
    /// A number that distinguishes the event from one of the same site whose values have other
    /// types.
    const SIGNATURE: u32 = signature::from_fields(Self::FIELDS);
    /// The values in the form in which they are passed on.
    type Short<'a>: Values + Copy
    where
        Self: 'a;
    /// Returns the values in registers, as far as possible, so that the original values need not be
    /// in memory.
    fn short(&self) -> Self::Short<'_>;
}

/// The values of one event: a tuple of [`Field`]s, or a complete payload.
pub trait Values {
    /// Size in bytes, if it is the same for every payload.
    const FIXED: Option<usize> = None;
    /// Bytes before the last value, if that is text and all values before it have fixed sizes.
    const HEAD: Option<usize> = None;
    /// Copies the values one by one. The copy is passed on in memory and is a separate object, so
    /// the original stays in registers. (Copying the tuple as a whole does not achieve this: an
    /// event with a text takes 15 % longer.)
    #[inline(always)]
    fn again(&self) -> Self
    where
        Self: Copy,
    {
        *self
    }
    /// Returns the size of this payload in bytes.
    #[inline(always)]
    fn size(&self) -> usize {
        let mut count = Count(0);
        self.write(&mut count);
        count.0
    }
    /// Writes all values except the last, if [`Values::HEAD`] is some.
    #[inline(always)]
    fn write_head(&self, _out: &mut impl Out) {}
    /// Returns the last value's text, if [`Values::HEAD`] is some.
    #[inline(always)]
    fn last_text(&self) -> &[u8] {
        &[]
    }
    /// Returns how many values were cut when they were made text.
    #[inline(always)]
    fn cut(&self) -> u32 {
        0
    }
    /// Writes exactly [`Values::size`] bytes.
    fn write(&self, out: &mut impl Out);
    /// Adds the values as pieces, as [`Field::pieces`] does.
    #[inline]
    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        self.write(out);
    }
}

/// A complete payload, in parts that follow each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'a, P>(pub(crate) &'a [P]);

impl<P: AsRef<[u8]>> Values for Parts<'_, P> {
    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        self.0.iter().for_each(|part| out.raw(part.as_ref()));
    }

    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        self.0.iter().for_each(|part| out.source(part.as_ref()));
    }
}

/// The facts about a callsite that its macro knows before it sees any value.
pub trait Site {
    /// The description of its events, without fields.
    const EVENT: EventDesc;
    /// Names of the fields.
    const NAMES: &'static [&'static str];
}

/// Returns the name of a field, without the `r#` of a raw identifier.
#[must_use]
pub const fn plain_name(name: &str) -> &str {
    if let [b'r', b'#', plain @ ..] = name.as_bytes()
        && let Ok(plain) = core::str::from_utf8(plain)
    {
        return plain;
    }
    name
}

/// Returns the sum, if both are known.
pub(crate) const fn add(a: Option<usize>, b: Option<usize>) -> Option<usize> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        _ => None,
    }
}

impl<S: Site> Given<S> for () {
    const FIELDS: &'static [FieldDesc] = &[];
    type Short<'a> = ();

    fn short(&self) {}
}

impl Values for () {
    const FIXED: Option<usize> = Some(0);

    #[inline(always)]
    fn write(&self, _: &mut impl Out) {}
}

/// Implements the traits for a tuple of these types and a last one.
macro_rules! tuple {
    ($($T:ident $i:tt)*, $Last:ident $last:tt) => {
        impl<S: Site, $($T: Field,)* $Last: Field> Given<S> for ($($T,)* $Last,) {
            const FIELDS: &'static [FieldDesc] = &[
                $(FieldDesc { name: S::NAMES[$i], ty: $T::TYPE },)*
                FieldDesc { name: S::NAMES[$last], ty: $Last::TYPE },
            ];
            type Short<'a> = ($($T::Short<'a>,)* $Last::Short<'a>,) where Self: 'a;

            #[inline(always)]
            fn short(&self) -> Self::Short<'_> {
                ($(self.$i.short(),)* self.$last.short(),)
            }
        }

        impl<$($T: Field + Copy,)* $Last: Field + Copy> Values for ($($T,)* $Last,) {
            const FIXED: Option<usize> = {
                let sum = $Last::FIXED;
                $(let sum = add(sum, $T::FIXED);)*
                sum
            };
            const HEAD: Option<usize> = {
                let sum = if $Last::TEXT { Some(0) } else { None };
                $(let sum = add(sum, $T::FIXED);)*
                sum
            };

            #[inline(always)]
            fn again(&self) -> Self {
                ($(self.$i,)* self.$last,)
            }

            #[inline(always)]
            fn write_head(&self, _out: &mut impl Out) {
                $(self.$i.write(_out);)*
            }

            #[inline(always)]
            fn last_text(&self) -> &[u8] {
                self.$last.text()
            }

            #[inline(always)]
            fn cut(&self) -> u32 {
                u32::from(self.$last.is_cut()) $(+ u32::from(self.$i.is_cut()))*
            }

            #[inline(always)]
            fn write(&self, out: &mut impl Out) {
                self.write_head(out);
                self.$last.write(out);
            }

            #[inline]
            fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
                $(self.$i.pieces(out);)*
                self.$last.pieces(out);
            }
        }
    };
}

/// Calls [`tuple!`] for each number of values.
macro_rules! tuples {
    ($($T:ident $i:tt)*;) => {};
    ($($T:ident $i:tt)*; $Next:ident $next:tt $($rest:tt)*) => {
        tuple!($($T $i)*, $Next $next);
        tuples!($($T $i)* $Next $next; $($rest)*);
    };
}
tuples!(; A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11 M 12 N 13 O 14 P 15);
