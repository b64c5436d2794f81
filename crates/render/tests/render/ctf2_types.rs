//! Replaces each value of CTF 2 metadata in turn by a value of another type. The reader must refuse
//! exactly what babeltrace2 2.1 refuses.

use crate::support::ctf::{CTF2, folder, sequence};
use crate::support::tools::{babeltrace, babeltrace21};
use lastwords_ctf::read;
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns fragments that have all properties whose type the specification prescribes.
fn fragments() -> Vec<Value> {
    let mut all: Vec<Value> =
        CTF2.iter().map(|text| serde_json::from_str(text).expect("JSON")).collect();
    all[0]["uuid"] = json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    all[0]["attributes"] = json!({ "ns": { "a": 1 } });
    all[0]["extensions"] = json!({});
    all[2]["namespace"] = json!("n");
    all[2]["name"] = json!("t");
    all[2]["uid"] = json!("u");
    all[2]["attributes"] = json!({});
    all[2]["packet-header-field-class"] = json!({ "type": "structure", "minimum-alignment": 8, "member-classes": [
        { "name": "m", "attributes": {}, "field-class": { "type": "fixed-length-unsigned-integer", "length": 32,
            "byte-order": "little-endian", "bit-order": "first-to-last", "alignment": 8, "preferred-display-base": 16,
            "roles": ["packet-magic-number"], "attributes": {} } },
        { "name": "u", "field-class": { "type": "static-length-blob", "length": 16, "media-type": "a/b",
            "roles": ["metadata-stream-uuid"] } },
        { "name": "a", "field-class": { "type": "static-length-array", "length": 2, "minimum-alignment": 8,
            "element-field-class": "u8", "attributes": {} } },
        { "name": "s", "field-class": { "type": "static-length-string", "length": 3, "encoding": "utf-8" } },
        { "name": "f", "field-class": { "type": "fixed-length-floating-point-number", "length": 32,
            "byte-order": "big-endian", "alignment": 8 } },
    ] });
    for (key, value) in [
        ("precision", json!(1)),
        ("accuracy", json!(2)),
        ("description", json!("d")),
        ("name", json!("k")),
    ] {
        all[3][key] = value;
    }
    all[4]["name"] = json!("stream");
    all[5]["uid"] = json!("u");
    all[5]["attributes"] = json!({});
    all
}

/// Returns the paths of all values below a value.
fn paths(value: &Value, path: &str, out: &mut Vec<String>) {
    out.push(path.to_owned());
    match value {
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(n, value)| paths(value, &format!("{path}/{n}"), out))
        }
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| paths(value, &format!("{path}/{key}"), out))
        }
        _ => {}
    }
}

/// Returns true for lastwords and for babeltrace2 if they accept the metadata, and the error of
/// lastwords.
fn accepted(fragments: &[Value]) -> (bool, bool, String) {
    let folder = folder(&sequence(fragments), &[]);
    let found = read::open(folder.path(), &Arc::default()).expect("a folder");
    let why = found.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    (found.faults.is_empty(), babeltrace(&babeltrace21(), folder.path()).success, why)
}

/// Tests one value in 8, or all values if `LASTWORDS_ALL_BITS` is set.
#[test]
fn values_of_another_type_are_refused_as_babeltrace_does() {
    let step = if std::env::var_os("LASTWORDS_ALL_BITS").is_some() { 1 } else { 8 };
    let whole = fragments();
    assert_eq!(accepted(&whole), (true, true, String::new()));
    let mut all = Vec::new();
    for (fragment, value) in whole.iter().enumerate() {
        let mut found = Vec::new();
        paths(value, "", &mut found);
        all.extend(found.into_iter().filter(|path| !path.is_empty()).map(|path| (fragment, path)));
    }
    let others = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!("x"),
        json!([]),
        json!({}),
        json!([[1]]),
        json!(3),
    ];
    let mut wrong = Vec::new();
    let cases: Vec<_> =
        all.iter().flat_map(|place| others.iter().map(move |other| (place, other))).collect();
    for ((fragment, path), other) in cases.into_iter().step_by(step) {
        let mut mutant = whole.clone();
        *mutant[*fragment].pointer_mut(path).expect("a value") = other.clone();
        let (ours, theirs, why) = accepted(&mutant);
        // babeltrace2 2.1 accepts `true` as an alignment of 1. The specification does not allow it.
        let is_lax = path.ends_with("alignment") && *other == json!(true);
        if ours != theirs && !is_lax {
            wrong
                .push(format!("{fragment}{path} = {other}: we {ours}, babeltrace2 {theirs} {why}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), all.len() * others.len() / step);
}
