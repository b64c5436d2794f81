//! Generates the shapes of `lastwords-bench shapes`: a function each, which records events of one
//! form. The first ones have names; the rest come from a seed, which the variable
//! `LASTWORDS_SHAPES_SEED` replaces.

use std::fmt::Write as _;

/// Number of shapes that come from the seed in a release build, which is what is measured.
const GENERATED: usize = 200;
/// Number of shapes in any other build, which tests and lints only need to compile: each takes the
/// compiler half a second.
const COMPILED: usize = 8;
/// Seed, unless the environment gives one.
const SEED: u64 = 20_261_127;
/// Most bytes of a generated payload.
const MOST_BYTES: usize = 128;
/// Shapes whose events have one provider, so that a session records no more kinds than the compact
/// header has ids for.
const BATCH: usize = 20;
/// Most fields of a generated shape.
const MOST_FIELDS: u64 = 8;

/// The value of a field.
#[derive(Clone, Copy)]
enum Value {
    /// A number or bool: its type, its bytes, and the expression that makes it from `n`.
    Fixed(&'static str, usize, &'static str),
    /// A text of so many bytes.
    Text(usize),
}

use Value::{Fixed, Text};

const U32: Value = Fixed("u32", 4, "n as u32");
const U64: Value = Fixed("u64", 8, "n ^ 0x5555_5555_5555_5555");
const FIXED: [Value; 10] = [
    U32,
    U64,
    Fixed("u8", 1, "n as u8"),
    Fixed("u16", 2, "n as u16"),
    Fixed("i32", 4, "n as i32"),
    Fixed("i64", 8, "(n as i64).wrapping_neg()"),
    Fixed("f64", 8, "n as f64"),
    Fixed("bool", 1, "n & 1 == 0"),
    Fixed("[u8; 16]", 16, "[n as u8; 16]"),
    Fixed("Option<u32>", 8, "Some(n as u32)"),
];

impl Value {
    fn bytes(self) -> usize {
        match self {
            Fixed(_, bytes, _) => bytes,
            Text(len) => len + 1,
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn value(&mut self) -> Value {
        if self.below(3) == 0 {
            Text(self.below(65) as usize)
        } else {
            FIXED[self.below(FIXED.len() as u64) as usize]
        }
    }

    /// Returns a shape of at most [`MOST_BYTES`].
    fn shape(&mut self) -> Vec<Value> {
        loop {
            let shape: Vec<Value> = (0..=self.below(MOST_FIELDS)).map(|_| self.value()).collect();
            if shape.iter().map(|value| value.bytes()).sum::<usize>() <= MOST_BYTES {
                return shape;
            }
        }
    }
}

/// Returns the shapes that have a floor of their own, by the name of the floor.
fn named() -> Vec<(&'static str, Vec<Value>)> {
    let mut all = Vec::new();
    for len in [0, 1, 2, 3, 4, 5, 6, 7] {
        all.push(("a last text of 0 to 7 bytes", vec![U32, U64, Text(len)]));
    }
    for len in [0, 3, 8, 16, 24, 32] {
        all.push(("a text to 32 bytes, then numbers", vec![Text(len), U32, U64]));
    }
    for len in [2, 7, 12, 20] {
        all.push(("two texts to 20 bytes", vec![U32, Text(len), Text(20 - len / 2)]));
    }
    all.push(("8 words", vec![U64; 8]));
    all
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LASTWORDS_SHAPES_SEED");
    let seed = std::env::var("LASTWORDS_SHAPES_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(SEED);
    let mut random = Random(seed);
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let count = if is_release { GENERATED } else { COMPILED };
    let generated = (0..count).map(|_| ("", random.shape()));
    let shapes: Vec<_> = named().into_iter().chain(generated).collect();
    let mut text = format!(
        "/// The seed of the shapes.\npub(crate) const SEED: u64 = {seed};\n/// Shapes of one provider.\nconst BATCH: usize = {BATCH};\n"
    );
    text += "/// All shapes, those with a name first.\npub(crate) static ALL: &[Shape] = &[\n";
    for (n, (row, values)) in shapes.iter().enumerate() {
        let (bytes, types) =
            (values.iter().map(|value| value.bytes()).sum::<usize>(), types(values));
        let _ = writeln!(
            text,
            "Shape {{ row: {row:?}, types: {types:?}, bytes: {bytes}, record: shape_{n} }},"
        );
    }
    text += "];\n";
    for (n, (_, values)) in shapes.iter().enumerate() {
        function(&mut text, n, values);
    }
    let out = std::env::var_os("OUT_DIR")
        .map(std::path::PathBuf::from)
        .unwrap_or_default()
        .join("shapes.rs");
    if let Err(error) = std::fs::write(&out, text) {
        panic!("cannot write {}: {error}", out.display());
    }
}

/// Returns the types as a person reads them.
fn types(values: &[Value]) -> String {
    let names = values.iter().map(|value| match value {
        Fixed(name, ..) => (*name).to_owned(),
        Text(len) => format!("text {len}"),
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Writes the function that records `events` events of a shape.
fn function(text: &mut String, n: usize, values: &[Value]) {
    let _ = writeln!(text, "fn shape_{n}(events: u64) {{");
    for (field, value) in values.iter().enumerate() {
        if let Text(len) = value {
            let _ = writeln!(text, "    let t{field} = texts({len});");
        }
    }
    let batch = n / BATCH;
    let _ = write!(
        text,
        "    for n in 0..events {{\n        let n = opaque(n);\n        lastwords::event!(\"shapes{batch}\", \"s{n}\""
    );
    for (field, value) in values.iter().enumerate() {
        let _ = match value {
            Fixed(_, _, made) => write!(text, ", f{field} = {made}"),
            Text(_) => write!(text, ", f{field} = t{field}[(n % 4) as usize]"),
        };
    }
    text.push_str(");\n    }\n}\n");
}
