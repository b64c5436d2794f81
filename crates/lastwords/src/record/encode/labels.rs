//! Enums whose values have names in the trace.

use super::Element;

/// An enum without fields, whose values are shown by label. Implemented by
/// [`labels!`](crate::labels).
pub trait Labeled: Copy {
    /// The integer that is recorded.
    type Repr: Element;
    /// Values, sign-extended, and their labels.
    const LABELS: &'static [(i64, &'static str)];
    /// Returns the recorded value.
    fn repr(self) -> Self::Repr;
}

/// Gives an enum without fields labels, so that [`event!`](crate::event) takes it.
///
/// ```
/// #[derive(Clone, Copy)]
/// enum State { Idle, Busy = 7 }
/// lastwords::labels!(State as u8 { Idle => "idle", Busy => "busy" });
/// ```
///
/// The integer after `as` is what is recorded: an integer type of 1 to 8 bytes, signed or not.
#[macro_export]
macro_rules! labels {
    ($T:ident as $repr:ident { $($variant:ident => $label:expr),+ $(,)? }) => {
        impl $crate::Labeled for $T {
            type Repr = $repr;
            const LABELS: &'static [(i64, &'static str)] = &[$(($T::$variant as $repr as i64, $label)),+];
            #[inline(always)]
            fn repr(self) -> $repr {
                self as $repr
            }
        }
        impl $crate::Field for $T {
            const TYPE: $crate::FieldType = $crate::FieldType::Enum {
                bytes: ::core::mem::size_of::<$repr>() as u8,
                signed: $repr::MIN != 0,
                labels: <$T as $crate::Labeled>::LABELS,
            };
            const FIXED: ::core::option::Option<usize> = ::core::option::Option::Some(::core::mem::size_of::<$repr>());
            $crate::__short!(Self);
            #[inline(always)]
            fn write(&self, out: &mut impl $crate::__private::Out) {
                $crate::Field::write(&$crate::Labeled::repr(*self), out);
            }
        }
    };
}
