//! Expressions that the grammar accepts and refuses, and results of operators on edge values.

use lastwords_filter::{Filter, MAX_LENGTH, MAX_NESTING, Value};

/// The result for an event with these fields.
fn holds(text: &str, fields: &[(&str, Value<'_>)]) -> Option<bool> {
    let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let names: Vec<String> = filter.names().iter().map(ToString::to_string).collect();
    filter
        .eval(&mut |at| fields.iter().find(|(name, _)| *name == names[at]).map(|(_, value)| *value))
}

/// Offset, what was found and what was expected.
fn error(text: &str) -> (usize, String) {
    let error = Filter::parse(text).expect_err(text);
    (error.offset(), error.to_string())
}

/// The truth table of Kleene's logic: a field that is not there is unknown.
#[test]
fn three_valued_logic() {
    let values = [Some(false), Some(true), None];
    let tables: [(&str, [Option<bool>; 9]); 2] = [
        (
            "a && b",
            [
                Some(false),
                Some(false),
                Some(false),
                Some(false),
                Some(true),
                None,
                Some(false),
                None,
                None,
            ],
        ),
        (
            "a || b",
            [
                Some(false),
                Some(true),
                None,
                Some(true),
                Some(true),
                Some(true),
                None,
                Some(true),
                None,
            ],
        ),
    ];
    for (text, table) in tables {
        for (at, expected) in table.into_iter().enumerate() {
            let (a, b) = (values[at / 3], values[at % 3]);
            let fields: Vec<(&str, Value<'_>)> = [("a", a), ("b", b)]
                .into_iter()
                .filter_map(|(name, value)| Some((name, Value::Bool(value?))))
                .collect();
            assert_eq!(holds(text, &fields), expected, "{text} of {a:?}, {b:?}");
            assert_eq!(
                holds(&format!("!({text})"), &fields),
                expected.map(|value| !value),
                "!({text}) of {a:?}, {b:?}"
            );
            // De Morgan.
            let other = if text.contains("&&") { "!a || !b" } else { "!a && !b" };
            assert_eq!(
                holds(other, &fields),
                expected.map(|value| !value),
                "{other} of {a:?}, {b:?}"
            );
        }
    }
    assert_eq!(holds("!a", &[]), None);
    for text in
        ["a == 1", "a != 1", "a ~ \"x\"", "a !~ \"x\"", "a & 1", "-a", "~a", "a << 1", "a == a"]
    {
        assert_eq!(holds(text, &[]), None, "{text}");
    }
}

/// Names that cannot change the result are not asked for.
#[test]
fn shortcuts() {
    for (text, expected) in [
        ("0 && a", false),
        ("1 || a", true),
        ("0 && a || 0 && b", false),
        ("!(1 || a) && b", false),
    ] {
        let filter = Filter::parse(text).unwrap();
        assert_eq!(filter.eval(&mut |_| panic!("{text}")), Some(expected));
    }
}

#[test]
fn integers_compare_without_wrapping() {
    let a = |value| [("a", value)];
    assert_eq!(holds("a < 0", &a(Value::Signed(-1))), Some(true));
    assert_eq!(holds("a == -1", &a(Value::Unsigned(u64::MAX))), Some(false));
    assert_eq!(holds("a == 18446744073709551615", &a(Value::Unsigned(u64::MAX))), Some(true));
    assert_eq!(holds("a > 18446744073709551615", &a(Value::Signed(i64::MAX))), Some(false));
    assert_eq!(holds("a == -9223372036854775808", &a(Value::Signed(i64::MIN))), Some(true));
    assert_eq!(holds("a < -9223372036854775808", &a(Value::Signed(i64::MIN))), Some(false));
    assert_eq!(holds("a == 0xffffffffffffffff", &a(Value::Signed(-1))), Some(false));
    assert_eq!(holds("a & 0xffffffffffffffff", &a(Value::Signed(-1))), Some(true));
    assert_eq!(holds("(a & ~3) == 4", &a(Value::Unsigned(7))), Some(true));
    assert_eq!(holds("(a & ~3) == 0xfffffffffffffffc", &a(Value::Unsigned(u64::MAX))), Some(true));
    assert_eq!(holds("a << 63 == 0x8000000000000000", &a(Value::Unsigned(3))), Some(true));
    assert_eq!(holds("a >> 63 == -1", &a(Value::Signed(-5))), Some(true));
    assert_eq!(holds("a << 64", &a(Value::Unsigned(1))), None);
    assert_eq!(holds("1 << a", &a(Value::Signed(-1))), None);
}

#[test]
fn floats_compare_exactly() {
    let a = |value| [("a", Value::Float(value))];
    for text in ["a == 0", "a < 0", "a > 0", "a <= a", "a >= 1.5", "a == a"] {
        assert_eq!(holds(text, &a(f64::NAN)), Some(false), "{text}");
    }
    assert_eq!(holds("a != a && a != 0", &a(f64::NAN)), Some(true));
    assert_eq!(holds("a == 0 && a == -0.0", &a(-0.0)), Some(true));
    assert_eq!(holds("a > 18446744073709551615", &a(f64::INFINITY)), Some(true));
    assert_eq!(holds("a < -18446744073709551615", &a(f64::NEG_INFINITY)), Some(true));
    // 2^53 + 1 is no float.
    assert_eq!(holds("9007199254740993 > a", &a(9_007_199_254_740_992.0)), Some(true));
    assert_eq!(holds("a == 18446744073709551615", &a(18_446_744_073_709_551_616.0)), Some(false));
    assert_eq!(holds("a > 1 && a < 2", &a(1.5)), Some(true));
    assert_eq!(holds("a < -1 && a > -2", &a(-1.5)), Some(true));
    assert_eq!(holds("a & 1", &a(1.0)), None);
}

#[test]
fn text_and_enumerations() {
    let fields = [
        ("comm", Value::Text(b"kworker/0:1")),
        ("raw", Value::Text(b"a\xffb")),
        ("state", Value::Enum { number: 2, label: Some(b"STOPPED") }),
        ("odd", Value::Enum { number: 9, label: None }),
    ];
    for text in [
        r#"comm == "kworker/0:1""#,
        r#"comm ~ "kworker/*" && comm !~ "ksoft*""#,
        r#"comm != "kworker/*""#,
        r#""kworker/0:1" == comm"#,
        r#"raw == "a\xffb" && raw ~ "a?b""#,
        r#"state == 2 && state == "STOPPED" && state ~ "STOP*" && state > 1 && state & 2"#,
        r#"odd == 9 && odd != "STOPPED" && odd !~ "*""#,
        r#"comm~"[jk]w*"&&!(comm~"[!k]*")"#,
    ] {
        assert_eq!(holds(text, &fields), Some(true), "{text}");
    }
    for text in [
        "comm == 1",
        "comm != 1",
        "comm < 1",
        "comm",
        "!comm",
        "comm & 1",
        "comm == 1.5",
        "odd < comm",
    ] {
        assert_eq!(holds(text, &fields), None, "{text}");
    }
}

#[test]
fn precedence_is_that_of_c() {
    for (text, printed) in [
        ("a||b&&c|d^e&f==g<h<<i", "a || b && c | d ^ e & (f == g < h << i)"),
        ("((a||b))&&c", "(a || b) && c"),
        ("a & 4", "a & 4"),
        ("(flags & 4) == 4", "(flags & 4) == 4"),
        ("a & b == 4", "a & (b == 4)"),
        ("! a == b", "!a == b"),
        ("- - a < ~b", "--a < ~b"),
        ("a & ~b & !~c", "a & ~b & !~c"),
        ("a<<1<<2", "a << 1 << 2"),
        ("a<<(1<<2)", "a << (1 << 2)"),
        ("a < b == c < d", "a < b == c < d"),
        ("(a < b) < c", "(a < b) < c"),
        ("0x1F == 017", "31 == 15"),
        ("a == '\\n' || a == 'z'", "a == 10 || a == 122"),
        ("a[007].b == .5", "a[7].b == 0.5"),
        ("$ctx.procname ~ \"b\\x61sh\"", "$ctx.procname ~ \"bash\""),
        ("true != false", "true != false"),
    ] {
        assert_eq!(
            Filter::parse(text).unwrap_or_else(|error| panic!("{error}")).to_string(),
            printed,
            "{text}"
        );
    }
}

#[test]
fn errors_name_the_place_and_what_is_expected() {
    for (text, offset, part) in [
        ("", 0, "found the end; expected a name"),
        ("a ==", 4, "found the end"),
        ("a = 1", 2, "one `=` does not compare"),
        ("a && && b", 5, "found `&&`"),
        ("(a", 2, "`)` for the `(` at byte 0"),
        ("a)", 1, "no parenthesis is open"),
        ("a b", 2, "found `b`; expected an operator"),
        ("a + 1 == 2", 2, "there is no arithmetic"),
        ("10ms < a", 2, "takes no suffix"),
        ("08 == a", 1, "octal"),
        ("0b12", 3, "binary"),
        ("0xg", 2, "hexadecimal"),
        ("0x", 2, "hexadecimal"),
        ("18446744073709551616 == a", 0, "a number of 64 bits"),
        ("1e999 == a", 0, "a float"),
        ("1e", 2, "exponent"),
        ("a == \"x", 5, "without its end"),
        (r#"a == "\q""#, 6, "one of"),
        (r#"a == "\xg0""#, 6, "two hexadecimal digits"),
        ("a == 'bash'", 5, "text stands in double quotes"),
        ("a == ''", 5, "one character"),
        ("a ~ b", 4, "a glob in double quotes"),
        (r#"1 ~ "a""#, 0, "text on the left"),
        (r#"a ~ "\xff""#, 4, "not UTF-8"),
        (r#"a < "x""#, 4, "text is compared by"),
        (r#"a && "x""#, 5, "a comparison, as in"),
        (r#""x""#, 0, "a comparison, as in"),
        (r#"!"x""#, 1, "text as an operand"),
        (r#"~"x""#, 1, "bits"),
        ("~1.5", 1, "bits"),
        ("a & 1.5", 4, "a float as an operand"),
        ("a & \"x\"", 4, "an integer"),
        ("flags & 4 == 4", 8, "write `(flags & 4) == 4`"),
        ("1 < a < 5", 6, "`&&` between two comparisons"),
        ("a == b == c", 7, "`&&` between two comparisons"),
        ("a. b", 2, "a name"),
        ("a[x]", 2, "the number of an element"),
        ("a[1", 3, "`]`"),
        ("a[99999999999999999999]", 2, "below 2^64"),
        ("$app.x", 0, "$ctx.NAME"),
        ("$ctx.1", 5, "a name"),
        ("\u{fc} == 1", 0, "found `\u{fc}`"),
    ] {
        let (at, said) = error(text);
        assert!(at == offset && said.contains(part), "{text}: {at}: {said}");
    }
    assert_eq!(
        error("comm == \"a\" && = 1").1,
        "byte 15: found `=`; expected a name, a number, text in double quotes or `(`\n  comm == \"a\" && = 1\n                 ^"
    );
    let filter = Filter::parse("a == 1 && prev_com ~ \"b\"").unwrap();
    let unknown = filter.unknown_name(1, "a field, such as prev_comm").to_string();
    assert!(
        unknown
            .contains("byte 10: found the name `prev_com`; expected a field, such as prev_comm\n"),
        "{unknown}"
    );
    assert!(unknown.ends_with("\n            ^"), "{unknown}");
    // Long expressions are cut around the place; control characters cannot reach a terminal.
    let long = format!("{}\x1b = 1 || {}", "a || ".repeat(100), "b || ".repeat(100));
    let said = error(&long).1;
    assert!(said.lines().nth(1).unwrap().chars().count() < 110 && !said.contains('\x1b'), "{said}");
}

#[test]
fn limits() {
    let nested = |count: usize| format!("{}a{}", "(".repeat(count), ")".repeat(count));
    assert!(Filter::parse(&nested(MAX_NESTING)).is_ok());
    assert!(error(&nested(MAX_NESTING + 1)).1.contains("at most 64 parentheses"));
    assert!(error(&"(".repeat(4000)).1.contains("at most 64 parentheses"));
    assert!(Filter::parse(&format!("{}a", "!".repeat(MAX_LENGTH - 1))).is_ok());
    let chain = format!("a{}", " || a".repeat((MAX_LENGTH - 1) / 5));
    assert_eq!(holds(&chain, &[("a", Value::Bool(false))]), Some(false));
    assert!(error(&format!("{}a", " ".repeat(MAX_LENGTH))).1.contains("at most 4096 bytes"));
    assert!(error(&"\u{fc}".repeat(MAX_LENGTH)).1.contains("at most 4096 bytes"));
    // The right operand waits for all operators before it.
    let deep = |count: usize| format!("{}a{}", "a || b && (".repeat(count), ")".repeat(count));
    let ladder = deep(60);
    assert_eq!(holds(&ladder, &[("a", Value::Bool(false)), ("b", Value::Bool(true))]), Some(false));
    assert_eq!(holds(&ladder, &[("a", Value::Bool(true))]), Some(true));
    let steep = format!("{}a{}", "a || b && c | d ^ e & f << (".repeat(60), ")".repeat(60));
    assert!(error(&steep).1.contains("at most 128"));
}

/// Each pair of operators groups as in C (ISO/IEC 9899, 6.5.5 to 6.5.14), from the strongest to the
/// weakest.
#[test]
fn each_pair_of_operators_groups_as_in_c() {
    let levels = [
        &["<<", ">>"][..],
        &["<", "<=", ">", ">="],
        &["==", "!="],
        &["&"],
        &["^"],
        &["|"],
        &["&&"],
        &["||"],
    ];
    let all: Vec<(usize, &str)> = levels
        .iter()
        .enumerate()
        .flat_map(|(level, of)| of.iter().map(move |operator| (level, *operator)))
        .collect();
    for (first_level, first) in &all {
        for (second_level, second) in &all {
            let plain = Filter::parse(&format!("a {first} b {second} c"));
            let left = Filter::parse(&format!("(a {first} b) {second} c")).unwrap();
            let right = Filter::parse(&format!("a {first} (b {second} c)")).unwrap();
            assert_ne!(left, right);
            match plain {
                Ok(plain) if first_level <= second_level => {
                    assert_eq!(plain, left, "{first} {second}")
                }
                Ok(plain) => assert_eq!(plain, right, "{first} {second}"),
                // Comparisons do not chain.
                Err(_) => assert!(
                    first_level == second_level && matches!(first_level, 1 | 2),
                    "{first} {second}"
                ),
            }
        }
    }
}

/// A comparison of `level` with a word holds for the severities that the order of the words says,
/// whatever their numbers are.
#[test]
fn words_of_severities() {
    // The word of each of LTTng's numbers.
    let word = |number: u64| match number {
        0..=3 => "error",
        4 => "warn",
        5 | 6 => "info",
        13 => "trace",
        _ => "debug",
    };
    let words = ["error", "warn", "info", "debug", "trace"];
    let rank = |word: &str| words.iter().position(|known| *known == word).expect("a word");
    for number in 0..15u64 {
        let label = Some(word(number).as_bytes());
        let level = [("level", Value::Enum { number: number.into(), label })];
        for wanted in words {
            let (own, other) = (rank(word(number)), rank(wanted));
            for (operator, flipped, expected) in [
                ("==", "==", own == other),
                ("!=", "!=", own != other),
                ("<", ">", own < other),
                ("<=", ">=", own <= other),
                (">", "<", own > other),
                (">=", "<=", own >= other),
            ] {
                for text in [
                    format!("level {operator} {wanted}"),
                    format!("level {operator} {}", wanted.to_uppercase()),
                    format!("{wanted} {flipped} level"),
                    format!("(level) {operator} {wanted} && level == level"),
                ] {
                    assert_eq!(holds(&text, &level), Some(expected), "{text} of {number}");
                    let printed = Filter::parse(&text).unwrap().to_string();
                    assert_eq!(holds(&printed, &level), Some(expected), "{printed} of {number}");
                }
            }
        }
    }
    // Elsewhere, the words are names.
    let names = |text: &str| -> Vec<String> {
        Filter::parse(text).unwrap().names().iter().map(ToString::to_string).collect()
    };
    assert_eq!(names("level <= warn"), ["level"]);
    assert_eq!(names("a == 1 && warn >= level && b < 2"), ["a", "level", "b"]);
    assert_eq!(names("warn == 1 || level == warn && c"), ["warn", "level", "c"]);
    assert_eq!(names("$ctx.level == warn"), ["$ctx.level", "warn"]);
    assert_eq!(names("level & 4 == warn"), ["level", "warn"]);
    assert_eq!(names("level == wran"), ["level", "wran"]);
    let fields =
        [("warn", Value::Unsigned(1)), ("level", Value::Unsigned(4)), ("c", Value::Unsigned(1))];
    assert_eq!(holds("warn == 1 && level <= warn && c == 1", &fields), Some(true));
}
