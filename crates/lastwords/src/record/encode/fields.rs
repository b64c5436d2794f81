//! The types that an event may carry.

use super::{Field, Out, Pieces, short};
use crate::session::registry::FieldType;

mod sealed {
    /// Plain memory: every byte pattern is initialised, no padding.
    pub trait Plain: Copy + 'static {}
}

/// A number or bool of fixed size, as it lies in memory; what arrays and slices are made of.
pub trait Element: sealed::Plain {
    /// How a reader sees one.
    const TYPE: FieldType;
    /// How a reader sees a slice of them.
    const SLICE: FieldType;
    /// The value's bytes as the low bytes of a word.
    fn word(self) -> u64;
}

/// An integer, which [`hex`] takes.
pub trait Integer: Element {
    /// How a reader sees it in base 16.
    const HEX: FieldType;
}

macro_rules! element {
    ($T:ty, $word:expr, $ty:expr) => {
        element!($T, $word, $ty, FieldType::Sequence(&const { $ty }));
    };
    ($T:ty, $word:expr, $ty:expr, $slice:expr) => {
        impl sealed::Plain for $T {}
        impl Element for $T {
            const TYPE: FieldType = $ty;
            const SLICE: FieldType = $slice;
            #[inline(always)]
            fn word(self) -> u64 {
                let word: fn($T) -> u64 = $word;
                word(self)
            }
        }
        impl Field for $T {
            const TYPE: FieldType = $ty;
            const FIXED: Option<usize> = Some(size_of::<$T>());
            short!(Self);
            #[inline(always)]
            fn size(&self) -> usize {
                size_of::<$T>()
            }
            #[inline(always)]
            fn write(&self, out: &mut impl Out) {
                out.scalar(self.word(), size_of::<$T>());
            }
        }
    };
}

macro_rules! integer {
    ($($T:ident $bits:ident $class:ident;)*) => { $(
        element!($T, |v| v as $bits as u64, FieldType::$class { bytes: size_of::<$T>() as u8, base: 10 });
        impl Integer for $T {
            const HEX: FieldType = FieldType::$class { bytes: size_of::<$T>() as u8, base: 16 };
        }
    )* };
}

integer! {
    u16 u16 Unsigned;
    u32 u32 Unsigned;
    u64 u64 Unsigned;
    usize usize Unsigned;
    i8 u8 Signed;
    i16 u16 Signed;
    i32 u32 Signed;
    i64 u64 Signed;
    isize usize Signed;
}
element!(u8, |v| u64::from(v), FieldType::Unsigned { bytes: 1, base: 10 }, FieldType::Bytes);
impl Integer for u8 {
    const HEX: FieldType = FieldType::Unsigned { bytes: 1, base: 16 };
}
element!(f32, |v| u64::from(v.to_bits()), FieldType::Float { bytes: 4 });
element!(f64, |v| v.to_bits(), FieldType::Float { bytes: 8 });
element!(bool, |v| u64::from(v), FieldType::Bool);

/// An integer shown in base 16; see [`hex`].
#[derive(Debug, Clone, Copy)]
pub struct Hex<T>(T);

/// Marks an integer to be shown in base 16.
#[inline(always)]
pub fn hex<T: Integer>(value: T) -> Hex<T> {
    Hex(value)
}

impl<T: Integer> Field for Hex<T> {
    const TYPE: FieldType = T::HEX;
    const FIXED: Option<usize> = Some(size_of::<T>());
    short!(Self);

    #[inline(always)]
    fn size(&self) -> usize {
        size_of::<T>()
    }

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        out.scalar(self.0.word(), size_of::<T>());
    }
}

macro_rules! pointer {
    ($($P:ty),*) => { $(
        impl<T> Field for $P {
            const TYPE: FieldType = FieldType::Unsigned { bytes: size_of::<usize>() as u8, base: 16 };
            const FIXED: Option<usize> = Some(size_of::<usize>());
            short!(Self);

            #[inline(always)]
            fn size(&self) -> usize {
                size_of::<usize>()
            }

            #[inline(always)]
            fn write(&self, out: &mut impl Out) {
                out.scalar(self.addr() as u64, size_of::<usize>());
            }
        }
    )* };
}
pointer!(*const T, *mut T);

/// The memory of plain elements.
#[inline(always)]
fn memory<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: `Plain` is sealed and holds for integers, floats and bool only: all their bytes are initialised, and u8 has
    // no alignment. The length is that of the slice in bytes, the lifetime that of the slice.
    unsafe { core::slice::from_raw_parts(elements.as_ptr().cast::<u8>(), size_of_val(elements)) }
}

impl<T: Element, const N: usize> Field for [T; N] {
    const TYPE: FieldType = FieldType::Array { count: N as u32, element: &T::TYPE };
    const FIXED: Option<usize> = Some(size_of::<[T; N]>());
    short!(&Self);

    #[inline(always)]
    fn size(&self) -> usize {
        size_of::<[T; N]>()
    }

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        out.raw(memory(self));
    }

    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        out.0.source(memory(self));
    }
}

impl<T: Element> Field for [T] {
    const TYPE: FieldType = T::SLICE;
    const FIXED: Option<usize> = None;
    short!(&[T]);

    #[inline(always)]
    fn size(&self) -> usize {
        4 + size_of_val(self)
    }

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        // A slice of more elements than a u32 counts is larger than any sub-buffer: the ring refuses it.
        out.scalar(u64::from(self.len() as u32), 4);
        out.raw(memory(self));
    }

    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        out.scalar(u64::from(self.len() as u32), 4);
        out.0.source(memory(self));
    }
}

impl<T: Element> Field for Vec<T> {
    const TYPE: FieldType = T::SLICE;
    const FIXED: Option<usize> = None;
    short!(&[T]);

    #[inline(always)]
    fn size(&self) -> usize {
        self.as_slice().size()
    }

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        self.as_slice().write(out);
    }

    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        Field::pieces(self.as_slice(), out);
    }
}

impl Field for str {
    const TYPE: FieldType = FieldType::String;
    const FIXED: Option<usize> = None;
    const TEXT: bool = true;
    short!(&str);

    #[inline(always)]
    fn text(&self) -> &[u8] {
        self.as_bytes()
    }

    #[inline(always)]
    fn size(&self) -> usize {
        self.len() + 1
    }

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        out.text(self.as_bytes());
    }

    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        out.0.source_text(self.as_bytes());
    }
}

macro_rules! text {
    ($($T:ty),*) => { $(
        impl Field for $T {
            const TYPE: FieldType = FieldType::String;
            const FIXED: Option<usize> = None;
            const TEXT: bool = true;
            short!(&str);

            #[inline(always)]
            fn text(&self) -> &[u8] {
                self.as_bytes()
            }

            #[inline(always)]
            fn size(&self) -> usize {
                self.len() + 1
            }

            #[inline(always)]
            fn write(&self, out: &mut impl Out) {
                out.text(self.as_bytes());
            }

            fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
                out.0.source_text(self.as_bytes());
            }
        }
    )* };
}
text!(String, Box<str>, std::borrow::Cow<'_, str>, std::sync::Arc<str>);

impl Field for char {
    const TYPE: FieldType = FieldType::String;
    const FIXED: Option<usize> = None;
    short!(Self);

    #[inline(always)]
    fn size(&self) -> usize {
        self.len_utf8() + 1
    }

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        out.text(self.encode_utf8(&mut [0; 4]).as_bytes());
    }
}
