//! Messages: format strings, which are part of a program's text, and what a reader may take for an
//! event's name.

use std::fmt;

use lastwords_testkit::random::{Random, mix};

use crate::value;

/// The values in a message.
pub(crate) struct Arguments {
    state: State,
    word: &'static str,
    number: u64,
    text: String,
}

/// A value whose text is constant memory of the program.
#[derive(Debug, Clone, Copy)]
enum State {
    Idle,
    Busy,
    Gone,
}

impl Arguments {
    pub(crate) fn from_key(key: u64) -> Self {
        let rng = &mut Random(mix(key ^ 0x4d45_5353));
        let state = *rng.pick(&[State::Idle, State::Busy, State::Gone]);
        let word = rng.pick(&["GET", "POST", "", "DELETE"]);
        let most = *rng.pick(&[0, 4, 30, 30, 30, 400, 5000]);
        Self { state, word, number: rng.bits() >> rng.below(64), text: value::text(rng, most) }
    }
}

macro_rules! messages {
    // The names come from where the formats do, so that these see them.
    ($state:ident $word:ident $n:ident $text:ident; $(($number:literal, $template:literal, $format:literal)),* $(,)?) => {
        /// Each message with `{}` in place of values.
        pub(crate) const TEMPLATES: &[&str] = &[$($template),*];

        /// Calls `with` with the message of this number.
        #[allow(unused_variables, reason = "no message shows all of them")]
        pub(crate) fn with<R>(
            number: usize,
            Arguments { state: $state, word: $word, number: $n, text: $text }: &Arguments,
            with: impl FnOnce(fmt::Arguments<'_>) -> R,
        ) -> R {
            match number {
                $($number => with(format_args!($format)),)*
                _ => unreachable!("message {number}"),
            }
        }
    };
}

messages! {
    state word n text;
    (0, "connected", "connected"),
    (1, "a longer message that is constant, with 'quotes' and {braces}", "a longer message that is constant, with 'quotes' and {{braces}}"),
    (2, "served {} bytes", "served {n} bytes"),
    (3, "{}", "{state:?}"),
    (4, "{} {}", "{state:?} {n}"),
    (5, "{}{}", "{word}{n}"),
    (6, "{} {}", "{word} {text}"),
    (7, "{}{}", "{word}{state:?}"),
    (8, "state {} of {}", "state {state:?} of {text}"),
    (9, "{}", "{word}"),
    (10, "{}", "{text}"),
    (11, "é {} ü", "é {text} ü"),
    (12, "{}: {}", "{state:?}: {word}"),
    (13, "{} {} {} {}", "{word} {state:?} {n:#x} {text}"),
    (14, "at {} of {}", "at {n:>12} of {word:?}"),
    (15, "{} is {}", "{word} is {word}"),
}

/// Returns true if the message has no values.
pub(crate) fn is_constant(number: usize) -> bool {
    !TEMPLATES[number].contains("{}")
}
