//! Compares the page's filters with those of the command line: expressions that are generated are
//! accepted or refused with the same words, have the same verdict on events, and choose the same
//! events of traces.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use lastwords_filter::{Filter, Value};
use serde_json::{Value as Json, json};

use lastwords_testkit::random::Random;

/// Expressions that are judged in one call of the browser.
const BATCH: usize = 1000;
/// Events that each expression is judged on.
const EVENTS: usize = 4;

/// The words of a line. `␣` is a blank.
fn words(line: &'static str) -> Vec<&'static str> {
    line.split(' ').map(|word| if word == "␣" { " " } else { word }).collect()
}

const NAMES: &str = "a b c text label x.y x[2].y_1 $ctx.pid $ctx.a.b[0] _0 flag true_ real";
const SIGNS: &[&str] =
    &["||", "&&", "==", "!=", "~", "!~", "<", "<=", ">", ">=", "|", "^", "&", "<<", ">>"];
const TEXTS: &str = "\"\" \"abc\" \"kworker/0:1\" \"a\\\"b\\\\\" \"\\x01\\xff\\n\" \"gr\u{fc}n\" \"\u{1f600}\" \"RUNNING\" \
     \"\\xf0\\x9f\\x98\\x80\" \"\\e\\0\\a\" \"\u{fffd}\"";
const GLOBS: &str = "\"*\" \"\" \"a*\" \"*b*\" \"kworker/?:*\" \"?\" \"[a-c]*\" \"[!a]*\" \"*[\" \"[]a]*\" \"*\u{fc}n\" \
     \"?\u{1f600}\" \"RUN*[A-G]\"";
const NUMBERS: &str = "0 1 2 7 63 64 0x1f 017 0b101 'a' '\\n' 9007199254740993 9223372036854775808 \
     18446744073709551615 0.0 0.5 1.5 1e9 .5 5. 9007199254740992.0 1e300 5e-324 true false";
/// Pieces of expressions that are wrong, or become so.
const PIECES: &str = "= + \" ' ( ) 0x 08 0b2 1.e 1e 1.5.5 $ $ctx a[ a[-1] a. \\ 99999999999999999999 1e999 ab ! ~ - \
     \u{202e} \u{1f600} \u{0} ␣ \n 12abc a[18446744073709551616] \"\\q\" 'ab' ''";

/// Generates expressions over some names. Operands of all kinds meet, so that many are refused.
struct Maker<'a> {
    random: Random,
    names: &'a [&'a str],
    texts: &'a [&'a str],
    globs: &'a [&'a str],
    numbers: &'a [&'a str],
}

impl Maker<'_> {
    fn operand(&mut self) -> String {
        let list = match self.random.below(10) {
            0..=4 => self.names,
            5..=7 => self.numbers,
            _ => self.texts,
        };
        (*self.random.pick(list)).to_owned()
    }

    /// Returns a comparison that is seldom refused.
    fn comparison(&mut self) -> String {
        let name = *self.random.pick(self.names);
        match self.random.below(5) {
            0 => format!(
                "{name} {} {}",
                self.random.pick(&["~", "!~"]),
                self.random.pick(self.globs)
            ),
            1 => format!(
                "{name} {} {}",
                self.random.pick(&["==", "!="]),
                self.random.pick(self.texts)
            ),
            _ => format!(
                "{name} {} {}",
                self.random.pick(&["==", "!=", "<", "<=", ">", ">="]),
                self.random.pick(self.numbers)
            ),
        }
    }

    fn expression(&mut self, depth: u64) -> String {
        if depth == 0 {
            return if self.random.one_in(3) { self.operand() } else { self.comparison() };
        }
        let inner = |own: &mut Self| own.expression(depth - 1);
        match self.random.below(9) {
            0 => format!("({})", inner(self)),
            1 => format!("{}{}", *self.random.pick(&["!", "~", "-"]), inner(self)),
            2 => format!("{}({})", *self.random.pick(&["!", "~", "- "]), inner(self)),
            3..=5 => {
                let sign = *self.random.pick(&["&&", "||"]);
                format!("{} {sign} {}", inner(self), inner(self))
            }
            6 => format!("{}{}{}", inner(self), *self.random.pick(SIGNS), inner(self)),
            7 => format!("({}) {} {}", inner(self), *self.random.pick(SIGNS), inner(self)),
            _ => self.comparison(),
        }
    }

    /// Returns an expression, of which one in three is damaged.
    fn next(&mut self) -> String {
        let depth = self.random.below(5);
        let mut text = self.expression(depth);
        while self.random.one_in(3) {
            let places: Vec<usize> =
                (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
            let at = *self.random.pick(&places);
            match self.random.below(3) {
                0 => text.insert_str(at, self.random.pick::<&str>(&words(PIECES))),
                1 => text.truncate(at),
                _ if at < text.len() => drop(text.remove(at)),
                _ => text.insert_str(at, self.random.pick::<&str>(SIGNS)),
            }
        }
        text
    }

    /// Returns expressions at the limits of length and nesting.
    fn limits() -> impl Iterator<Item = String> {
        let nested = |count: usize| format!("{}a{}", "(".repeat(count), ")".repeat(count));
        let waiting = |count: usize| format!("{}1{}", "1|(".repeat(count), ")".repeat(count));
        let long = |length: usize| format!("a{}", " ".repeat(length - 1));
        let mixed = (1..=60).map(|_| "1||(2|(3^(4&(").collect::<String>();
        let high = (0..40).map(|_| "1|2^3&4==5<6<<").collect::<String>() + "7";
        [63, 64, 65].map(nested).into_iter().chain([63, 64, 65].map(waiting)).chain([
            long(4096),
            long(4097),
            format!("{}\u{1f600}", long(4095)),
            mixed,
            high,
            String::new(),
        ])
    }
}

/// A value of a field. The text is in memory for as long as the program runs.
fn value(random: &mut Random) -> Option<Value<'static>> {
    const BYTES: &[&[u8]] = &[
        b"",
        b"abc",
        b"kworker/0:1",
        b"a\"b\\",
        b"\x01\xff\n",
        "gr\u{fc}n".as_bytes(),
        "\u{1f600}".as_bytes(),
        b"RUNNING",
        "\u{fffd}".as_bytes(),
    ];
    const REALS: &[f64] = &[
        0.0,
        -0.0,
        0.5,
        -1.5,
        1e9,
        9_007_199_254_740_992.0,
        1e300,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1.7e308,
    ];
    let bits = random.bits() >> random.below(64);
    Some(match random.below(9) {
        0 => return None,
        1 => Value::Unsigned(bits),
        2 => Value::Signed(bits.cast_signed()),
        3 => Value::Unsigned(random.below(8)),
        4 => Value::Float(*random.pick(REALS)),
        5 => Value::Bool(random.one_in(2)),
        6 => Value::Enum {
            number: i128::from(random.below(4)),
            label: Some(*random.pick(BYTES)).filter(|_| !random.one_in(3)),
        },
        _ => Value::Text(random.pick::<&[u8]>(BYTES)),
    })
}

/// Returns a value for the browser.
fn encoded(value: Option<Value<'_>>) -> Json {
    match value {
        None => Json::Null,
        Some(Value::Unsigned(number)) => json!(["integer", number.to_string()]),
        Some(Value::Signed(number)) => json!(["integer", number.to_string()]),
        Some(Value::Float(number)) => json!(["float", format!("{number:?}")]),
        Some(Value::Bool(value)) => json!(["bool", value]),
        Some(Value::Text(text)) => json!(["text", text]),
        Some(Value::Enum { number, label }) => json!(["enum", number.to_string(), label]),
    }
}

/// Returns what the command line says of an expression: its error, or its verdicts on events.
fn judged(text: &str, events: &[Vec<Option<Value<'static>>>]) -> Json {
    match Filter::parse(text) {
        Err(error) => json!(error.to_string()),
        Ok(filter) => {
            let names: Vec<String> = filter.names().iter().map(ToString::to_string).collect();
            let value = |event: &[Option<Value<'static>>], at: usize| {
                let place = words(NAMES).iter().position(|name| *name == names[at])?;
                event[place]
            };
            let verdict =
                |event: &Vec<Option<Value<'static>>>| filter.eval(&mut |at| value(event, at));
            json!(events.iter().map(verdict).collect::<Vec<_>>())
        }
    }
}

/// Compares expressions and their verdicts. `call` runs a script with its arguments.
pub(super) fn expressions(count: usize, call: impl Fn(&str, Json) -> Result<Json>) -> Result<()> {
    let random = Random(7);
    let names = &words(NAMES);
    let (texts, globs, numbers) = (&words(TEXTS), &words(GLOBS), &words(NUMBERS));
    let mut maker = Maker { random, names, texts, globs, numbers };
    let (mut refused, mut known) = (0usize, 0usize);
    let mut texts: Vec<String> = Maker::limits().collect();
    texts.extend((0..count).map(|_| maker.next()));
    for batch in texts.chunks(BATCH) {
        let mut asked = Vec::new();
        let mut expected = Vec::new();
        for text in batch {
            let events: Vec<Vec<_>> = (0..EVENTS)
                .map(|_| names.iter().map(|_| value(&mut maker.random)).collect())
                .collect();
            let shown = |event: &Vec<Option<Value<'static>>>| -> Json {
                event.iter().map(|value| encoded(*value)).collect()
            };
            asked.push(json!([text, events.iter().map(shown).collect::<Vec<_>>()]));
            expected.push(judged(text, &events));
        }
        let answers = call(include_str!("filters.js"), json!([names, asked]))?;
        for ((text, expected), answer) in
            batch.iter().zip(&expected).zip(answers.as_array().context("answers")?)
        {
            ensure!(
                expected == answer,
                "{text:?}\n  the command line: {expected}\n  the page: {answer}"
            );
            match expected {
                Json::String(_) => refused += 1,
                verdicts => known += usize::from(verdicts.to_string().contains("true")),
            }
        }
    }
    let all = texts.len();
    println!("{all} filters: {refused} refused with the same words, {known} true for an event");
    // Neither may be all.
    ensure!(refused > all / 5 && known > all / 20, "{refused} refused and {known} true of {all}");
    Ok(())
}

/// The names and values of a trace, of which filters are made. Names and numbers are words.
pub(super) struct Words {
    pub(super) names: &'static str,
    pub(super) texts: &'static [&'static str],
    pub(super) globs: &'static [&'static str],
    pub(super) numbers: &'static str,
}

/// Compares the events that filters choose with those of `lastwords convert`. The page of the trace
/// is open, written with the same options.
pub(super) fn rows(
    (lastwords, sessions): (&Path, &Path),
    (input, options): (&Path, &[&str]),
    &Words { names, texts, globs, numbers }: &Words,
    count: usize,
    call: impl Fn(&str, Json) -> Result<Json>,
) -> Result<()> {
    let (names, numbers) = (&words(names), &words(numbers));
    let mut maker = Maker { random: Random(11), names, texts, globs, numbers };
    let (mut some, mut refused) = (0usize, 0usize);
    for _ in 0..count {
        let depth = maker.random.below(3);
        let text = maker.expression(depth);
        let output = Command::new(lastwords)
            .args(["convert", "--to", "json", "-o", "-", &format!("--filter={text}")])
            .args(options)
            .arg(input)
            .env("LASTWORDS_DIR", sessions)
            .output()
            .context("lastwords")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // The page does not decide about events whose fields it does not have, and says so.
        let script = "const app = window.lastwords; return (async () => { await app.search.filter(arguments[0]); \
            if (!document.getElementById('filter-error').hidden) return null; const [shown, cut] = [[], []]; \
            for (let row = 0; row < app.data.times.length; row++) { const { text } = await app.data.fields.of(row); \
                const ticks = text.match(/^.\"ticks\":(\\d+)/)[1]; if (/\"cut\":\\d+}$/.test(text)) cut.push(ticks); else if (app.isVisible(row)) shown.push(ticks); } \
            return { shown, cut }; })()";
        let answer = call(script, json!([text]))?;
        if said.contains("expected") && output.stdout.is_empty() {
            ensure!(
                answer.is_null(),
                "{text:?}: refused by the command line ({said}), but {answer}"
            );
            refused += 1;
            continue;
        }
        ensure!(!output.stdout.is_empty(), "{text:?}: {said}");
        let ticks = |line: &str| -> Option<Json> {
            let event: Json = serde_json::from_str(line).ok()?;
            Some(json!(event.get("ticks")?.as_u64()?.to_string()))
        };
        let cut =
            answer["cut"].as_array().with_context(|| format!("{text:?}: the page refuses it"))?;
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let expected: Vec<Json> =
            lines.lines().filter_map(ticks).filter(|ticks| !cut.contains(ticks)).collect();
        let shown = answer["shown"].as_array().context("events")?;
        ensure!(
            *shown == expected,
            "{text:?}: {} events of the command line, {} of the page",
            expected.len(),
            shown.len()
        );
        some += usize::from(!expected.is_empty());
    }
    println!("{count} filters on {}: {some} with events, {refused} refused", input.display());
    ensure!(some > count / 5, "only {some} of {count} filters choose an event");
    call("return window.lastwords.search.filter('')", json!([])).map(drop)
}
