//! `event!`, `event_enabled!` and `mark!`.

/// Records an event: provider, name, fields.
///
/// ```
/// # let (sector, bytes, path) = (7u64, 4096u32, "/data");
/// lastwords::event!(disk, "read", sector = sector, bytes, path = path);
/// lastwords::event!(disk, "failed", level: ERROR, code = -5i32, status = lastwords::hex(0x40u8));
/// ```
///
/// The provider is a name or a string literal, and the event's name is a string literal. Rules
/// select events by both, joined by a colon. `level:` is ERROR, WARN, INFO (the default), DEBUG or
/// TRACE. A field is `name = value`, or `name` alone for a variable of that name. There can be up
/// to 16 fields, of any type that is a [`Field`](crate::Field). Values are evaluated only when the
/// event is recorded; [`event_enabled!`](crate::event_enabled) shows that beforehand.
///
/// A value of any other type is recorded as text: `name = ?value` and `?name` by its `Debug`, `name
/// = %value` and `%name` by its `Display`. The text is formatted on the stack. Text of more than
/// 253 bytes is cut, and `…` marks the cut.
///
/// ```
/// # let (peer, state, took) = (std::net::Ipv4Addr::LOCALHOST, Some(7u8), std::time::Duration::from_millis(3));
/// lastwords::event!(net, "closed", peer, took, error = %std::fmt::Error, ?state);
/// ```
///
/// | type | recorded as |
/// | --- | --- |
/// | integers, floats, `bool`, pointers, arrays and slices of these | their own value |
/// | `str`, `String`, `char`, `Path`, `OsStr`, `CStr` and their owned forms | text; the bytes of a path are kept, UTF-8 or not |
/// | `IpAddr`, `SocketAddr` and their forms for IPv4 and IPv6 | text, as they are displayed |
/// | `Duration`, `SystemTime` (since 1970) | two numbers: whole seconds, and nanoseconds to add |
/// | `Option` of a number | a sequence of one element, or of none |
/// | `Option` of `&str` or `String` | text: `None`, or `Some(TEXT)` |
/// | [`secret(x)`](crate::secret()), [`hashed(x)`](crate::hashed()) | text instead of the value: `<secret>`, or a keyed hash |
///
/// A disabled event is one load and one branch. Recording neither allocates nor locks nor calls the
/// system. Only when a callsite is reached for the first time, it registers itself under a lock.
#[macro_export]
macro_rules! event {
    ($provider:tt, $name:literal, level: $level:ident $(, $($fields:tt)*)?) => {
        $crate::__event!(($provider, $name, $level), [], [] $($($fields)*)?)
    };
    ($provider:tt, $name:literal $(, $($fields:tt)*)?) => {
        $crate::__event!(($provider, $name, INFO), [], [] $($($fields)*)?)
    };
}

/// Sorts the fields of an event.
#[doc(hidden)]
#[macro_export]
macro_rules! __event {
    (($provider:tt, $name:literal, $level:ident), [$($names:expr),*], [$($values:expr),*]) => {
        $crate::__record!(($crate::__provider!($provider)), $name, "", $level, [$($names),*], [$($values),*])
    };
    ($head:tt, [$($names:expr),*], [$($values:expr),*] $field:ident = ? $value:expr $(, $($rest:tt)*)?) => {
        $crate::__event!(
            $head, [$($names,)* stringify!($field)], [$($values,)* $crate::__private::Debugged(&$value)] $($($rest)*)?
        )
    };
    ($head:tt, [$($names:expr),*], [$($values:expr),*] $field:ident = % $value:expr $(, $($rest:tt)*)?) => {
        $crate::__event!(
            $head, [$($names,)* stringify!($field)], [$($values,)* $crate::__private::Displayed(&$value)] $($($rest)*)?
        )
    };
    ($head:tt, [$($names:expr),*], [$($values:expr),*] $field:ident = $value:expr $(, $($rest:tt)*)?) => {
        $crate::__event!($head, [$($names,)* stringify!($field)], [$($values,)* &$value] $($($rest)*)?)
    };
    ($head:tt, $names:tt, $values:tt ? $field:ident $(, $($rest:tt)*)?) => {
        $crate::__event!($head, $names, $values $field = ? $field $(, $($rest)*)?)
    };
    ($head:tt, $names:tt, $values:tt % $field:ident $(, $($rest:tt)*)?) => {
        $crate::__event!($head, $names, $values $field = % $field $(, $($rest)*)?)
    };
    ($head:tt, $names:tt, $values:tt $field:ident $(, $($rest:tt)*)?) => {
        $crate::__event!($head, $names, $values $field = $field $(, $($rest)*)?)
    };
}

/// Returns true if an event of this provider, name and level (INFO if none is given) is recorded
/// now. After the first time, this is one load and one branch.
///
/// ```
/// # fn costly() -> String { String::new() }
/// if lastwords::event_enabled!(disk, "state", level: DEBUG) {
///     let state = costly();
///     lastwords::event!(disk, "state", level: DEBUG, state);
/// }
/// ```
#[macro_export]
macro_rules! event_enabled {
    ($provider:tt, $name:literal, level: $level:ident $(,)?) => {{
        $crate::__site!(($crate::__provider!($provider)), $name, "", $level, []);
        $crate::__private::is_enabled(&__LwSite, &__LW_CALLSITE)
    }};
    ($provider:tt, $name:literal $(,)?) => {
        $crate::event_enabled!($provider, $name, level: INFO)
    };
}

/// Records a marker: an event that is described by its format string, with the arguments stored in
/// binary.
///
/// ```
/// # let (prev, next) = (1u32, 2u32);
/// lastwords::mark!("switch");
/// lastwords::mark!("prev {} next {}", prev, next);
/// lastwords::mark!("load {percent} of {}", prev, percent = 80u8);
/// ```
///
/// Arguments without a name fill the `{}` in order and are the fields `arg0`, `arg1`, ... An
/// argument `name = value` fills `{name}`. The provider of all markers is `marker`, and their name
/// is the format string. A doubled brace stands for itself. The compiler checks the format string
/// like that of `println!`, with two differences: a name stands for an argument, never
/// for a variable, and an argument with a name need not be shown:
///
/// ```compile_fail
/// lastwords::mark!("prev {} next {}", 1u32);
/// ```
/// ```compile_fail
/// lastwords::mark!("prev {}", 1u32, 2u32);
/// ```
/// ```compile_fail
/// # let prev = 1u32;
/// lastwords::mark!("prev {prev}");
/// ```
/// ```compile_fail
/// const PREV: u32 = 1;
/// lastwords::mark!("prev {PREV}");
/// ```
#[macro_export]
macro_rules! mark {
    ($format:literal $(, $($args:tt)*)?) => {
        $crate::__mark!(
            $format, [], [], [], [],
            (arg0 arg1 arg2 arg3 arg4 arg5 arg6 arg7 arg8 arg9 arg10 arg11 arg12 arg13 arg14 arg15)
            $($($args)*)?
        )
    };
}

/// Adds 1, or a number, to a counter that outlives the process. Labels are constants.
///
/// ```
/// # let received = [0u8; 3];
/// lastwords::counter!("requests");
/// lastwords::counter!("bytes", received.len() as u64);
/// lastwords::counter!("requests", method = "GET", code = "200");
/// lastwords::counter!("bytes", 12, direction = "out");
/// ```
///
/// Each use declares a [`Counter`](crate::Counter), which has the details; counters of one name and
/// the same labels are one. Name and labels that take more than 176 bytes do not compile, nor does a
/// label that is there twice:
///
/// ```compile_fail
/// lastwords::counter!("n", key = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789");
/// ```
///
/// ```compile_fail
/// lastwords::counter!("requests", method = "GET", method = "PUT");
/// ```
#[macro_export]
macro_rules! counter {
    ($name:literal $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::counter!($name, 1 $(, $key = $value)*)
    };
    ($name:literal, $amount:expr $(, $key:ident = $value:expr)* $(,)?) => {{
        const __LW_LABELS: &[(&str, &str)] =
            &[$(($crate::__private::plain_name(stringify!($key)), $value)),*];
        static __LW_COUNTER: $crate::Counter = $crate::Counter::with_labels($name, __LW_LABELS);
        __LW_COUNTER.add($amount);
    }};
}

/// Records a value in a histogram that outlives the process. Labels are constants.
///
/// ```
/// let begin = std::time::Instant::now();
/// lastwords::histogram!("latency_ns", begin.elapsed().as_nanos() as u64);
/// lastwords::histogram!("size", 4096, direction = "in");
/// ```
///
/// Each use declares a [`Histogram`](crate::Histogram), which has the details; histograms of one
/// name and the same labels are one.
#[macro_export]
macro_rules! histogram {
    ($name:literal, $value:expr $(, $key:ident = $label:expr)* $(,)?) => {{
        const __LW_LABELS: &[(&str, &str)] =
            &[$(($crate::__private::plain_name(stringify!($key)), $label)),*];
        static __LW_HISTOGRAM: $crate::Histogram = $crate::Histogram::with_labels($name, __LW_LABELS);
        __LW_HISTOGRAM.record($value);
    }};
}

/// Sorts the arguments of a marker. For the compiler's check of the format string, a number
/// replaces each argument: `$places` replace those without a name, and variables those of `$named`,
/// in a scope where no other variable and no constant of the program is visible.
#[doc(hidden)]
#[macro_export]
macro_rules! __mark {
    ($format:literal, [$($names:expr),*], [$($values:expr),*], [$($places:expr),*], [$($named:ident),*], $free:tt) => {{
        #[allow(dead_code, unused_variables)]
        mod __lw_format {
            fn fits() {
                $(let $named = 0usize;)*
                let _ = ::core::format_args!($format $(, $places)*);
            }
        }
        $crate::__record!(("marker"), $format, $format, INFO, [$($names),*], [$($values),*])
    }};
    (
        $format:literal, [$($names:expr),*], [$($values:expr),*], $places:tt, [$($named:ident),*], $free:tt
        $name:ident = $value:expr $(, $($rest:tt)*)?
    ) => {
        $crate::__mark!(
            $format, [$($names,)* stringify!($name)], [$($values,)* &$value], $places, [$($named,)* $name], $free $($($rest)*)?
        )
    };
    (
        $format:literal, [$($names:expr),*], [$($values:expr),*], [$($places:expr),*], $named:tt,
        ($first:ident $($free:ident)*) $value:expr $(, $($rest:tt)*)?
    ) => {
        $crate::__mark!(
            $format, [$($names,)* stringify!($first)], [$($values,)* &$value], [$($places,)* 0usize], $named, ($($free)*)
            $($($rest)*)?
        )
    };
}

/// A provider as text.
#[doc(hidden)]
#[macro_export]
macro_rules! __provider {
    ($provider:literal) => {
        $provider
    };
    ($provider:ident) => {
        stringify!($provider)
    };
}

/// The static data of a callsite.
#[doc(hidden)]
#[macro_export]
macro_rules! __site {
    (($provider:expr), $name:expr, $format:expr, $level:ident, [$($names:expr),*]) => {
        struct __LwSite;
        impl $crate::__private::Site for __LwSite {
            const EVENT: $crate::EventDesc = $crate::EventDesc {
                provider: $provider,
                name: $name,
                level: $crate::__private::level::$level,
                format: $format,
                file: file!(),
                line: line!(),
                fields: &[],
            };
            const NAMES: &'static [&'static str] = &[$($crate::__private::plain_name($names)),*];
        }
        static __LW_CALLSITE: $crate::__private::Callsite = $crate::__private::Callsite::new();
    };
}

/// A callsite and its use.
#[doc(hidden)]
#[macro_export]
macro_rules! __record {
    (($provider:expr), $name:expr, $format:expr, $level:ident, [$($names:expr),*], [$($values:expr),*]) => {{
        $crate::__site!(($provider), $name, $format, $level, [$($names),*]);
        if __LW_CALLSITE.enabled() != 0 {
            $crate::__private::record(&__LwSite, &__LW_CALLSITE, ($($values,)*));
        }
    }};
}
