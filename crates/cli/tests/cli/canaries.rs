//! Values that are hidden, where they are recorded or where they are written: random canaries in
//! fields of all ways into a session must be in no byte of its files and of any output, neither as
//! they are nor encoded. The same search finds them in the same outputs if nothing hides them.

use crate::child::{run_in, task};
use crate::support::{Place, json_events};
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lastwords::{Session, event, hashed, mark, secret};
use lastwords_testkit::random::Random;
use lastwords_testkit::text::Text as _;
use regex::bytes::Regex;
use serde_json::Value;
use std::io::Read as _;
use std::path::Path;
use std::sync::Mutex;

/// Events and spans with canaries.
const COUNT: u64 = 60;
/// The ways into a session.
const SHAPES: u64 = 9;
/// A user that several events have.
const ADA: &str = "Ada Lovelace";

/// Values that must not be found.
struct Canary {
    /// Letters and digits.
    core: String,
    /// A text around them.
    text: String,
    word: u64,
    float: f64,
}

fn canary(seed: u64, number: u64) -> Canary {
    let mut random = Random(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let letter = |random: &mut Random| char::from(LETTERS[random.below(62) as usize]);
    let len = 14 + random.below(40);
    let core: String = (0..len).map(|_| letter(&mut random)).collect();
    let around = ["", " x", "\"q", "\n", "=y z", "}", "{a=1 ", "é", "\u{1f980}"];
    let mut around = || around[random.below(around.len() as u64) as usize];
    let text = format!("{}{core}{}", around(), around());
    Canary {
        text,
        core,
        word: random.bits() | 1 << 60,
        float: 1.0 / (3 + random.below(1 << 40)) as f64,
    }
}

/// Keeps a span open until the program dies.
fn keep_open(span: &tracing::Span) {
    static OPEN: Mutex<Vec<tracing::Span>> = Mutex::new(Vec::new());
    OPEN.lock().expect("no thread panics").push(span.clone());
}

/// Records one value of each kind in one of the ways.
fn record(shape: u64, number: u64, canary: &Canary) {
    let Canary { text, word, float, .. } = canary;
    let (text, word, float) = (text.as_str(), *word, *float);
    match shape {
        0 => {
            event!(shop, "text", number, password = text, token = word, user = text, ratio = float)
        }
        1 => {
            mark!("login {password} {token} by {user}", password = text, token = word, user = text)
        }
        2 => {
            tracing::info!(number, password = text, token = word, user = %text, ratio = float, "in")
        }
        3 => tracing::info!(password = ?text, token = -(word as i64), "message {number}"),
        4 => {
            // The span stays open.
            let span = tracing::info_span!("kept", number, password = text, token = word);
            let _inside = span.enter();
            event!(shop, "inside", number, user = text);
            tracing::warn!(number, user = text, "inside");
            keep_open(&span);
        }
        5 => {
            let empty = tracing::field::Empty;
            let span = tracing::info_span!("later", number, user = empty, token = empty, zone = 7);
            span.in_scope(|| {
                span.record("token", word);
                span.record("user", tracing::field::display(text));
                event!(shop, "behind", number, token = word);
            });
            keep_open(&span);
        }
        6 => event!(
            shop,
            "list",
            password = text.as_bytes(),
            token = [word, word],
            user = Some(text),
            number
        ),
        7 => tracing::error!(token = Some(word), password = None::<&str>, number, "optional"),
        _ => {
            let long = format!("{} {text}", "long ".repeat(90));
            event!(shop, "long", password = long.as_str(), number, user = ?text, token = ?Some(word));
            tracing::info!(password = long, number, "long");
        }
    }
}

/// The recorded program.
#[test]
fn recorder() {
    let Some(how) = task() else { return };
    let (mode, seed) = how.split_once(' ').expect("a mode and a seed");
    let seed: u64 = seed.parse().expect("a seed");
    let rules = |name: &str| Session::builder(name).secret("pass*").hashed("user").start();
    let first = match mode {
        "rules" => rules("app"),
        _ => Session::builder("app").start(),
    };
    let _first = first.expect("a session");
    lastwords::layer::init().expect("a subscriber");
    let plain = Canary { core: String::new(), text: "plain".to_owned(), word: 5, float: 0.5 };
    if mode == "later" {
        // The callsites were in use before there are rules.
        (0..SHAPES).for_each(|shape| record(shape, 999, &plain));
    }
    let _second = (mode == "later").then(|| rules("second").expect("another session"));
    for number in 0..COUNT {
        let canary = canary(seed, number);
        match mode {
            "callsite" => {
                let (password, ratio) = (secret(&canary.text), hashed(canary.float));
                event!(shop, "text", number, password, user = hashed(&canary.text), ratio);
                let (token, user) = (secret(canary.word), hashed(&canary.text));
                tracing::info!(number, %token, %user, "login");
                let span = tracing::info_span!("kept", ?token, %user);
                span.in_scope(|| mark!("{token}", token = secret(canary.word)));
                keep_open(&span);
            }
            _ => record(number % SHAPES, number, &canary),
        }
    }
    event!(shop, "ada", user = ADA, id = 42);
    tracing::info!(user = ADA, id = "42", "ada");
    event!(shop, "ada", user = hashed(ADA), password = secret(ADA));
    std::process::abort();
}

fn recorded(mode: &str, seed: u64) -> Place {
    let place = Place::new();
    let env = match mode {
        "rules" | "later" => "export LASTWORDS_SECRET='token, x' LASTWORDS_HASHED='rat*';",
        _ => "",
    };
    let script = format!("{env} ulimit -c 0; exec \"$@\"");
    run_in(&place, &script, "canaries::recorder", &format!("{mode} {seed}")).ended();
    place
}

/// Returns what finds the canaries, in all encodings.
fn search(seed: u64) -> Regex {
    let mut literals: Vec<Vec<u8>> = Vec::new();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for Canary { core, word, float, .. } in (0..COUNT).map(|number| canary(seed, number)) {
        literals.push(core.clone().into_bytes());
        literals.push(core.encode_utf16().flat_map(u16::to_le_bytes).collect());
        literals.push(core.encode_utf16().flat_map(u16::to_be_bytes).collect());
        literals.extend([hex(core.as_bytes()), hex(core.as_bytes()).to_uppercase()].map(Vec::from));
        for before in 0..3 {
            // Without the digits that depend on the bytes around.
            let encoded = STANDARD.encode([&b"\0\0"[..before], core.as_bytes()].concat());
            literals.push(encoded.as_bytes()[4..encoded.len() - 4].to_vec());
        }
        for number in [word, (word as i64).wrapping_neg() as u64, float.to_bits()] {
            literals.extend([number.to_le_bytes(), number.to_be_bytes()].map(Vec::from));
            literals
                .extend([hex(&number.to_le_bytes()), hex(&number.to_be_bytes())].map(Vec::from));
            literals.push(hex(&number.to_be_bytes()).to_uppercase().into_bytes());
        }
        literals.extend([word.to_string(), float.to_string()].map(String::into_bytes));
    }
    let escaped = |bytes: &Vec<u8>| bytes.iter().map(|b| format!("\\x{b:02x}")).collect::<String>();
    let all: Vec<String> = literals.iter().map(escaped).collect();
    regex::bytes::RegexBuilder::new(&format!("(?s-u:{})", all.join("|")))
        .size_limit(1 << 28)
        .build()
        .expect("the search")
}

/// Returns the bytes with what is packed in them: BASE64, compressed data, bytes in hexadecimal
/// with blanks.
fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut all = bytes.to_vec();
    let packed = Regex::new("[A-Za-z0-9+/]{40,}={0,2}").unwrap();
    for part in packed.find_iter(bytes) {
        let decoded = STANDARD.decode(part.as_bytes()).unwrap_or_default();
        for at in (0..decoded.len()).filter(|at| decoded[*at] == 0x78) {
            // Bytes that are not compressed give an error, which adds nothing.
            let _ = flate2::read::ZlibDecoder::new(&decoded[at..]).read_to_end(&mut all);
        }
        all.extend(decoded);
    }
    all.extend(bytes.iter().filter(|byte| !byte.is_ascii_whitespace()));
    all
}

/// Reads all files of a folder.
fn files(folder: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => all.extend(std::fs::read(path).unwrap()),
        }
    }
    all
}

/// The outputs that are made of values, and that can hide them.
const TEXTS: [&[&str]; 13] = [
    &["report", "app", "-v"],
    &["report", "app"],
    &["report", "app", "--style", "ftrace"],
    &["report", "app", "--style", "babeltrace"],
    &["report", "app", "-F", "event,password,user,token,ratio,span,level"],
    &["report", "app", "--last", "50"],
    &["convert", "app", "--to", "json", "-o", "-"],
    &["convert", "app", "--to", "text", "-o", "-"],
    &["convert", "app", "--to", "perfetto", "-o", "-"],
    &["convert", "app", "--to", "otlp", "-o", "-"],
    &["recover", "app", "--to", "trace-dat", "--force", "-o", "dat"],
    &["view", "app", "-o", "-"],
    &["why", "app"],
];
/// The outputs that are copies.
const COPIES: [&[&str]; 3] = [
    &["convert", "app", "--to", "ctf", "-o", "out.ctf"],
    &["recover", "app", "--to", "ctf2", "-o", "out"],
    &["report", "app", "--style", "raw"],
];

/// Runs the program, and returns all that it wrote.
fn written(place: &Place, args: &[&str]) -> Vec<u8> {
    let output = place.command().args(args).output().expect("the program starts");
    let name = args.iter().skip_while(|word| **word != "-o").nth(1);
    let folder = name.map(|name| place.at(name)).filter(|path| path.is_dir());
    let found = folder.map(|folder| files(&folder)).unwrap_or_default();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.len() + found.len() > 100, "{args:?} writes nothing");
    [output.stdout, output.stderr, found].concat()
}

/// Fails if a canary is found.
fn is_clean(search: &Regex, bytes: &[u8], what: &str) {
    let all = unpacked(bytes);
    if let Some(found) = search.find(&all) {
        let around = &all[found.start().saturating_sub(200)..all.len().min(found.end() + 50)];
        panic!("{what}: a canary is there: {:?}", String::from_utf8_lossy(around));
    }
}

fn events(place: &Place, args: &[&str]) -> Vec<Value> {
    json_events(&place.ok(&[&["convert", "app", "--to", "json", "-o", "-"], args].concat()))
}

/// Returns the values of a field in all events that have it.
fn values(events: &[Value], field: &str) -> Vec<String> {
    let of = events.iter().filter_map(|event| event["fields"].get(field));
    of.map(|value| value.as_str().unwrap_or("no text").to_owned()).collect()
}

fn is_hash(text: &str) -> bool {
    text.len() == 17 && text[1..].bytes().all(|b| b.is_ascii_hexdigit()) && text.starts_with('#')
}

#[test]
fn values_that_are_hidden_where_they_are_recorded() {
    for (mode, seed) in [("rules", 1), ("later", 2), ("callsite", 3)] {
        let (place, search) = (recorded(mode, seed), search(seed));
        is_clean(&search, &files(&place.sessions()), &format!("{mode}: the session's files"));
        for args in TEXTS.iter().chain(&COPIES) {
            is_clean(&search, &written(&place, args), &format!("{mode}: {args:?}"));
        }
        let events = events(&place, &[]);
        let is_canary = |event: &&Value| event["fields"]["number"] != 999;
        let events: Vec<Value> = events.iter().filter(is_canary).cloned().collect();
        let secrets = [values(&events, "password"), values(&events, "token")].concat();
        let kept =
            |value: &&String| mode != "later" || !(value.contains("plain") || *value == "no text");
        let wrong: Vec<_> =
            secrets.iter().filter(|value| *value != "<secret>").filter(kept).collect();
        assert!(secrets.len() > 20 && wrong.is_empty(), "{mode}: {wrong:?}");
        let users = values(&events, "user");
        assert!(users.iter().filter(|user| is_hash(user)).count() > 20, "{mode}: {users:?}");
    }
}

/// Equal values have equal hashes in all ways into the session.
#[test]
fn hashes_can_be_compared_within_a_session() {
    let place = recorded("rules", 4);
    let events = events(&place, &[]);
    let of_ada =
        |event: &&Value| event["fields"].get("id").is_some_and(|id| id == 42 || id == "42");
    let ada: Vec<Value> = events.iter().filter(of_ada).cloned().collect();
    let users = values(&ada, "user");
    assert!(users.len() == 2 && users[0] == users[1] && is_hash(&users[0]), "{users:?}");
    let other = recorded("rules", 4);
    assert!(!values(&self::events(&other, &[]), "user").contains(&users[0]), "another process");
}

#[test]
fn values_that_are_hidden_where_they_are_written() {
    let seed = 5;
    let (place, search) = (recorded("bare", seed), search(seed));
    let hide = ["--redact", "pass*,shop:*/token,token,login*/tok*", "--redact-hash", "user,ratio"];
    assert!(search.is_match(&files(&place.sessions())), "the session's files");
    for args in TEXTS {
        let bare = unpacked(&written(&place, args));
        // `why` shows few events, which may have no canary.
        assert!(args[0] == "why" || search.is_match(&bare), "{args:?}: the search finds nothing");
        is_clean(&search, &written(&place, &[args, &hide[..]].concat()), &format!("{args:?}"));
    }
    for args in COPIES {
        let ran = place.run(&[args, &hide[..]].concat());
        ran.has_status(1).prints_nothing().says("--redact and --redact-hash are not for");
        assert!(!place.at(args.last().unwrap()).exists(), "{args:?}");
        assert!(search.is_match(&unpacked(&written(&place, args))), "{args:?}");
    }
    // The files of CTF are an input, too.
    let from_ctf = ["report", "out.ctf", "--redact", "*"];
    is_clean(&search, &written(&place, &from_ctf), "CTF as input");
    let events = events(&place, &hide);
    let secrets = [values(&events, "password"), values(&events, "token")].concat();
    assert!(secrets.len() > 20 && secrets.iter().all(|value| value == "<redacted>"), "{secrets:?}");
    let users = values(&events, "user");
    assert!(users.len() > 20 && users.iter().all(|user| is_hash(user)), "{users:?}");
}

/// Returns the values in all tables of a data set, as the reader has them, and the bytes of its
/// files.
fn data_set(folder: &Path) -> Vec<u8> {
    let mut all = files(folder);
    let parts = crate::lttng::files(folder);
    for part in parts.iter().filter(|path| path.extension().is_some_and(|ext| ext == "parquet")) {
        for batch in crate::matrix::tables::read(part, "parquet") {
            for column in batch.columns() {
                if let Some(texts) = column.as_string_opt::<i32>() {
                    texts.iter().flatten().for_each(|text| all.extend(text.as_bytes()));
                } else if let Some(numbers) = column.as_primitive_opt::<Int64Type>() {
                    let numbers = numbers.iter().flatten();
                    numbers.for_each(|number| all.extend(format!("{number}\n").as_bytes()));
                }
            }
        }
    }
    all
}

/// No table of a data set has a hidden value, compressed or not, in statistics or in lists.
#[test]
fn values_that_are_hidden_when_they_are_ingested() {
    let seed = 7;
    let (place, search) = (recorded("bare", seed), search(seed));
    let hide = ["--redact", "pass*,shop:*/token,token,login*/tok*", "--redact-hash", "user,ratio"];
    let sessions = place.sessions().display().to_string();
    place.ok(&["ingest", &sessions, "--into", "bare"]);
    assert!(search.is_match(&data_set(&place.at("bare"))), "the search finds nothing");
    let ingest = ["ingest", &sessions, "--into", "hidden"];
    place.ok(&[&ingest[..], &hide].concat());
    is_clean(&search, &data_set(&place.at("hidden")), "the data set");
    // A crash that was added as it is replaces itself.
    place.ok(&[&["ingest", &sessions, "--into", "bare", "--again"][..], &hide].concat());
    is_clean(&search, &data_set(&place.at("bare")), "the data set that had the values");
}

/// Names that match nothing are reported, and what a filter reads is what is written.
#[test]
fn redaction_is_exact() {
    let place = recorded("bare", 6);
    let ran = place.run(&["report", "app", "--redact", "passwrd,user"]);
    ran.has_status(0).says("no field is named passwrd").does_not_say("no field is named user");
    let count = |args: &[&str]| {
        place.ok(&[&["report", "app", "-F", "event"], args].concat()).lines().count()
    };
    let all = count(&["-e", "shop:ada"]);
    assert_eq!(count(&["-e", "shop:ada", "--filter", "user == \"Ada Lovelace\""]), 1);
    assert_eq!(
        count(&["-e", "shop:ada", "--redact", "user", "--filter", "user == \"<redacted>\""]),
        all
    );
    // A rule for some events leaves the others as they are.
    place
        .ok(&["report", "app", "-e", "*ada", "--redact", "shop:ada/user"])
        .has("<redacted>")
        .has(ADA);
    place.run(&["report", "app", "--redact", "a[b"]).has_status(2);
}
