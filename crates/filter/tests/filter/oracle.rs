//! Random expressions against a naive evaluator of their trees. The evaluator and the printer share
//! nothing with the library. `LASTWORDS_SEED` is the first seed, `LASTWORDS_EXPRESSIONS` the number
//! of expressions.

use crate::reference::{Val, glob_matches, infix, int, truth};
use lastwords_filter::{Code, CodeName, CodeStep, Filter, Value};
use lastwords_testkit::random::{Random, seed, setting};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
enum Tree {
    Number(u64),
    Real(f64),
    Truth(bool),
    Text(Vec<u8>),
    Name(String),
    Prefix(char, Box<Tree>),
    Infix(&'static str, Box<Tree>, Box<Tree>),
    /// The glob, and true for `!~`.
    Glob(Box<Tree>, String, bool),
}

/// Operators with their precedence, weakest first, as C has it.
const INFIX: &[(&str, u8)] = &[
    ("||", 0),
    ("&&", 1),
    ("|", 2),
    ("^", 3),
    ("&", 4),
    ("==", 5),
    ("!=", 5),
    ("<", 6),
    ("<=", 6),
    (">", 6),
    (">=", 6),
    ("<<", 7),
    (">>", 7),
];
const PREFIX: u8 = 8;
const NAMES: &[&str] = &[
    "a",
    "b",
    "c",
    "text",
    "label",
    "x.y",
    "x[2].y_1",
    "$ctx.pid",
    "$ctx.a.b[0]",
    "_0",
    "flag",
    "real",
];
const TEXTS: &[&[u8]] =
    &[b"", b"abc", b"kworker/0:1", b"a\"b\\", b"\x01\xff\n", "gr\u{fc}n".as_bytes(), b"RUNNING"];
const GLOBS: &[&str] = &["*", "", "a*", "*b*", "kworker/?:*", "?", "abc", "*\u{fc}n", "RUN*"];
const NUMBERS: &[u64] = &[
    0,
    1,
    2,
    4,
    7,
    63,
    64,
    255,
    1 << 31,
    1 << 53,
    (1 << 53) + 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];
const REALS: &[f64] =
    &[0.0, 0.5, 1.0, 2.0, 1e9, 9_007_199_254_740_992.0, 9_223_372_036_854_775_808.0, 1e300, 5e-324];

fn condition(random: &mut Random, depth: usize) -> Tree {
    let next = |random: &mut Random| Box::new(condition(random, depth - 1));
    let small = |random: &mut Random| Box::new(number(random, depth.saturating_sub(1)));
    match if depth == 0 { 4 + random.index(3) } else { random.index(8) } {
        0 | 1 => Tree::Infix("&&", next(random), next(random)),
        2 | 3 => Tree::Infix("||", next(random), next(random)),
        4 => number(random, 0),
        5 => {
            let glob = (*random.pick(GLOBS)).to_owned();
            Tree::Glob(
                Box::new(Tree::Name((*random.pick(NAMES)).to_owned())),
                glob,
                random.index(2) == 0,
            )
        }
        6 => {
            let operator = *random.pick(&["==", "!="]);
            let mut sides = [
                Tree::Name((*random.pick(NAMES)).to_owned()),
                Tree::Text(random.pick(TEXTS).to_vec()),
            ];
            sides.rotate_left(random.index(2));
            let [left, right] = sides;
            Tree::Infix(operator, Box::new(left), Box::new(right))
        }
        _ => match random.index(3) {
            0 => Tree::Prefix('!', next(random)),
            _ => {
                let operator = *random.pick(&["==", "!=", "<", "<=", ">", ">="]);
                Tree::Infix(operator, small(random), small(random))
            }
        },
    }
}

fn number(random: &mut Random, depth: usize) -> Tree {
    let next = |random: &mut Random| Box::new(integer(random, depth - 1));
    match if depth == 0 { random.index(4) } else { random.index(8) } {
        0 => Tree::Real(*random.pick(REALS)),
        1 => Tree::Truth(random.index(2) == 0),
        2 | 3 => integer(random, 0),
        4 => Tree::Prefix('-', Box::new(number(random, depth - 1))),
        5 => Tree::Prefix('~', next(random)),
        6 => Tree::Prefix('!', Box::new(condition(random, depth - 1))),
        _ => Tree::Infix(
            random.pick::<&str>(&["|", "^", "&", "<<", ">>"]),
            next(random),
            next(random),
        ),
    }
}

/// A number that is not written as a float.
fn integer(random: &mut Random, depth: usize) -> Tree {
    if depth > 0 && random.index(2) == 0 {
        let next = |random: &mut Random| Box::new(integer(random, depth - 1));
        return match random.index(4) {
            0 => Tree::Prefix(*random.pick(&['~', '-']), next(random)),
            1 => Tree::Infix(
                random.pick::<&str>(&["==", "<", ">"]),
                Box::new(Tree::Name("a".to_owned())),
                next(random),
            ),
            _ => Tree::Infix(
                random.pick::<&str>(&["|", "^", "&", "<<", ">>"]),
                next(random),
                next(random),
            ),
        };
    }
    match random.index(3) {
        0 => Tree::Number(*random.pick(NUMBERS)),
        1 => Tree::Number(random.bits() >> random.index(64)),
        _ => Tree::Name((*random.pick(NAMES)).to_owned()),
    }
}

impl Tree {
    fn level(&self) -> u8 {
        match self {
            Self::Infix(operator, ..) => INFIX.iter().find(|(name, _)| name == operator).unwrap().1,
            Self::Glob(..) => 5,
            Self::Prefix(..) => PREFIX,
            _ => PREFIX + 1,
        }
    }

    /// Writes the tree with random spaces and redundant parentheses.
    fn print(&self, random: &mut Random, out: &mut String) {
        match self {
            Self::Number(number) => out.push_str(&match random.index(5) {
                0 => format!("{number:#x}"),
                1 => format!("{number:#b}"),
                2 if *number > 0 => format!("0{number:o}"),
                3 if (32..127).contains(number) && ![34, 39, 92].contains(number) => {
                    format!("'{}'", *number as u8 as char)
                }
                _ => number.to_string(),
            }),
            Self::Real(number) => out.push_str(&if random.index(2) == 0 {
                format!("{number:?}")
            } else {
                format!("{number:e}.").replace("e0.", "e0").trim_end_matches('.').to_owned()
            }),
            Self::Truth(truth) => out.push_str(&truth.to_string()),
            Self::Text(text) => quoted(text, random, out),
            Self::Name(name) => out.push_str(name),
            Self::Prefix(operator, inner) => {
                out.push(*operator);
                space(random, out);
                inner.wrapped(PREFIX, random, out);
            }
            Self::Infix(operator, left, right) => {
                let level = self.level();
                // Comparisons do not chain, and constants are not compared beside an operator of
                // bits.
                let is_bits = (2..5).contains(&level);
                let strict = |side: &Self| {
                    if is_bits && (5..7).contains(&side.level()) { PREFIX + 1 } else { level }
                };
                left.wrapped(strict(left) + u8::from((5..7).contains(&level)), random, out);
                space(random, out);
                out.push_str(operator);
                space(random, out);
                right.wrapped(strict(right).max(level + 1), random, out);
            }
            Self::Glob(left, glob, negated) => {
                left.wrapped(6, random, out);
                space(random, out);
                out.push_str(if *negated { "!~" } else { "~" });
                space(random, out);
                quoted(glob.as_bytes(), random, out);
            }
        }
    }

    fn wrapped(&self, least: u8, random: &mut Random, out: &mut String) {
        let pairs = usize::from(self.level() < least)
            + if random.index(6) == 0 { 1 + random.index(2) } else { 0 };
        for _ in 0..pairs {
            out.push('(');
            space(random, out);
        }
        self.print(random, out);
        for _ in 0..pairs {
            space(random, out);
            out.push(')');
        }
    }

    fn eval(&self, event: &BTreeMap<&str, Val>) -> Option<Val> {
        match self {
            Self::Number(number) => Some(Val::Int(i128::from(*number))),
            Self::Real(number) => Some(Val::Real(*number)),
            Self::Truth(value) => Some(Val::Truth(*value)),
            Self::Text(text) => Some(Val::Text(text.clone())),
            Self::Name(name) => event.get(name.as_str()).cloned(),
            Self::Prefix('!', inner) => truth(inner.eval(event)).map(|truth| Val::Truth(!truth)),
            Self::Prefix('-', inner) => match inner.eval(event)? {
                Val::Real(number) => Some(Val::Real(-number)),
                value => Some(Val::Int(-int(&value)?)),
            },
            Self::Prefix(_, inner) => Some(Val::Int(-int(&inner.eval(event)?)? - 1)),
            Self::Glob(left, glob, negated) => {
                let matches = match left.eval(event)? {
                    Val::Text(text) => glob_matches(glob, &text),
                    Val::Enum(_, label) => label.is_some_and(|label| glob_matches(glob, &label)),
                    _ => return None,
                };
                Some(Val::Truth(matches != *negated))
            }
            Self::Infix("&&", left, right) => {
                match (truth(left.eval(event)), truth(right.eval(event))) {
                    (Some(false), _) | (_, Some(false)) => Some(Val::Truth(false)),
                    (Some(true), Some(true)) => Some(Val::Truth(true)),
                    _ => None,
                }
            }
            Self::Infix("||", left, right) => {
                match (truth(left.eval(event)), truth(right.eval(event))) {
                    (Some(true), _) | (_, Some(true)) => Some(Val::Truth(true)),
                    (Some(false), Some(false)) => Some(Val::Truth(false)),
                    _ => None,
                }
            }
            Self::Infix(operator, left, right) => {
                infix(operator, &left.eval(event)?, &right.eval(event)?)
            }
        }
    }
}

fn space(random: &mut Random, out: &mut String) {
    for _ in 0..random.index(3) {
        out.push(*random.pick(&[' ', ' ', '\t', '\n']));
    }
}

fn quoted(text: &[u8], random: &mut Random, out: &mut String) {
    out.push('"');
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                c if c.is_ascii() && (c < ' ' || random.index(8) == 0) => {
                    out.push_str(&format!("\\x{:02x}", c as u32))
                }
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02X}")));
    }
    out.push('"');
}

/// An event in which each name is missing, or has a value of any kind.
fn event(random: &mut Random) -> BTreeMap<&'static str, Val> {
    let mut event = BTreeMap::new();
    for name in NAMES {
        let integer = match random.index(4) {
            0 => -i128::from(*random.pick(NUMBERS) >> 1),
            1 => i128::from(random.bits() as i64 >> random.index(64)),
            _ => i128::from(*random.pick(NUMBERS)),
        };
        let text = random.pick(TEXTS).to_vec();
        let value = match random.index(10) {
            0 | 1 => continue,
            2 => Val::Real(*random.pick(&[
                f64::NAN,
                f64::INFINITY,
                -f64::INFINITY,
                -0.0,
                0.5,
                -1.5,
                2e18,
                1e300,
                1.0,
            ])),
            3 => Val::Truth(random.index(2) == 0),
            4 | 5 => Val::Text(text),
            6 => Val::Enum(integer, Some(text).filter(|_| random.index(3) > 0)),
            _ => Val::Int(integer),
        };
        event.insert(*name, value);
    }
    event
}

fn value(of: &Val) -> Value<'_> {
    match of {
        Val::Int(number) => match i64::try_from(*number) {
            Ok(number) => Value::Signed(number),
            Err(_) => Value::Unsigned(u64::try_from(*number).unwrap()),
        },
        Val::Real(number) => Value::Float(*number),
        Val::Truth(value) => Value::Bool(*value),
        Val::Text(text) => Value::Text(text),
        Val::Enum(number, label) => Value::Enum { number: *number, label: label.as_deref() },
    }
}

#[test]
fn random_expressions_have_the_values_of_their_trees() {
    let first = seed();
    let mut known = [0u64; 3];
    for seed in first..first + setting("LASTWORDS_EXPRESSIONS", 20_000) {
        let mut random = Random(seed.wrapping_mul(0xd134_2543_de82_ef95));
        let depth = random.index(6);
        let tree = condition(&mut random, depth);
        let mut text = String::new();
        space(&mut random, &mut text);
        tree.print(&mut random, &mut text);
        space(&mut random, &mut text);
        if text.len() > lastwords_filter::MAX_LENGTH {
            continue;
        }
        let filter = Filter::parse(&text)
            .unwrap_or_else(|error| panic!("LASTWORDS_SEED={seed}: {text:?}: {error}"));
        let again = filter.to_string();
        let parsed = Filter::parse(&again)
            .unwrap_or_else(|error| panic!("LASTWORDS_SEED={seed}: {again:?}: {error}"));
        assert_eq!(parsed, filter, "LASTWORDS_SEED={seed}: {text:?} is printed as {again:?}");
        let names: Vec<String> = filter.names().iter().map(ToString::to_string).collect();
        let encoded = filter
            .encode()
            .unwrap_or_else(|| panic!("LASTWORDS_SEED={seed}: {text:?} is not encoded"));
        let code = Code::new(&encoded)
            .unwrap_or_else(|| panic!("LASTWORDS_SEED={seed}: {text:?} is not decoded"));
        assert_eq!(
            code.names().map(shown).collect::<Vec<_>>(),
            names,
            "LASTWORDS_SEED={seed}: {text:?}"
        );
        let instructions: Vec<_> = code.instructions().map(|one| one.expect("checked")).collect();
        for _ in 0..20 {
            let event = event(&mut random);
            let found = filter.eval(&mut |name| event.get(names[name].as_str()).map(value));
            let expected = truth(tree.eval(&event));
            assert_eq!(found, expected, "LASTWORDS_SEED={seed}: {text:?} of {event:?}");
            let found = lastwords_filter::eval(&instructions, &mut |name| {
                event.get(names[name].as_str()).map(value)
            });
            assert_eq!(found, expected, "LASTWORDS_SEED={seed}: the code of {text:?} of {event:?}");
            known[expected.map_or(2, usize::from)] += 1;
        }
    }
    // Each of the three results must be common, or the test shows little.
    assert!(known.iter().all(|count| *count * 20 > known.iter().sum::<u64>()), "{known:?}");
}

/// Returns a name as the expression has it.
fn shown(name: Option<CodeName<'_>>) -> String {
    let name = name.expect("checked");
    let steps = name.steps().map(|step| match step {
        CodeStep::Member(member) => format!(".{member}"),
        CodeStep::Element(index) => format!("[{index}]"),
    });
    let steps: String = steps.collect();
    if name.is_context() { format!("$ctx{steps}") } else { steps[1..].to_owned() }
}

#[test]
fn damaged_code_is_refused_or_ends() {
    let mut random = Random(seed());
    for _ in 0..setting("LASTWORDS_EXPRESSIONS", 20_000) / 100 {
        let mut text = String::new();
        condition(&mut random, 4).print(&mut random, &mut text);
        let Some(code) = Filter::parse(&text).ok().and_then(|filter| filter.encode()) else {
            continue;
        };
        for _ in 0..200 {
            let mut damaged = code.clone();
            damaged.truncate(random.index(code.len() * 2));
            for _ in 0..=random.index(3) {
                let at = random.index(damaged.len() + 1);
                damaged.get_mut(at).into_iter().for_each(|byte| *byte = random.bits() as u8);
            }
            let Some(code) = Code::new(&damaged) else { continue };
            code.names().for_each(|name| drop(shown(name)));
            let instructions: Vec<_> =
                code.instructions().map(|one| one.expect("checked")).collect();
            let _ = lastwords_filter::eval(&instructions, &mut |name| {
                Some(Value::Unsigned(name as u64))
            });
        }
    }
}

#[test]
fn no_prefix_and_no_mutation_panics() {
    let first = seed();
    for seed in first..first + setting("LASTWORDS_EXPRESSIONS", 20_000) / 100 {
        let mut random = Random(seed);
        let mut text = String::new();
        condition(&mut random, 4).print(&mut random, &mut text);
        let try_it = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            match Filter::parse(&text) {
                Ok(filter) => {
                    let _ = filter.eval(&mut |_| None);
                    let _ = filter.eval(&mut |name| Some(Value::Unsigned(name as u64)));
                    let _ = filter.to_string();
                }
                Err(error) => {
                    assert!(error.offset() <= text.len(), "{text:?}: {error}");
                    assert!(
                        !error.found().is_empty() && !error.expected().is_empty(),
                        "{text:?}: {error}"
                    );
                    assert!(error.caret().lines().count() == 2, "{text:?}: {error}");
                }
            }
        };
        let bytes = text.as_bytes();
        for at in 0..bytes.len().min(300) {
            try_it(&bytes[..at]);
            let mut mutated = bytes.to_vec();
            let odd = [
                0, b'(', b')', b'"', b'\'', b'\\', b'~', b'!', b'&', b'.', b'[', b'$', b'0', 0x80,
                0xff, b'x', b'e',
            ];
            for byte in odd.into_iter().chain([random.bits() as u8]) {
                mutated[at] = byte;
                try_it(&mutated);
            }
            mutated.remove(at);
            try_it(&mutated);
        }
    }
    let mut random = Random(first);
    for _ in 0..20_000 {
        let len = random.index(40);
        let noise: Vec<u8> =
            (0..len).map(|_| *random.pick(b"()!~&|^<>=-.[]$\"'\\ \tab01xe\xc3\xbc")).collect();
        let _ = Filter::parse(&String::from_utf8_lossy(&noise));
    }
}
