//! Tests payloads of every shape, and plug-ins.

use std::path::Path;
use std::process::Command;

use super::{compile, program, run};

/// Returns the payloads that `payloads.c` records.
fn payloads() -> Vec<Vec<u8>> {
    let (a, b, c) = (0x1122_3344_5566_7788u64, 0x99aa_bbcc_ddee_ff01u64, 0x1234_5678_9abc_def0u64);
    let number = |value: u64, bytes: usize| {
        let all = value.to_ne_bytes();
        if cfg!(target_endian = "little") {
            all[..bytes].to_vec()
        } else {
            all[8 - bytes..].to_vec()
        }
    };
    let shapes: [&[(u64, usize)]; 10] = [
        &[(a, 1)],
        &[(a, 4)],
        &[(a, 8)],
        &[(a, 1), (b, 8)],
        &[(a, 4), (b, 8)],
        &[(a, 4), (b, 1), (c, 8)],
        &[(a, 8), (b, 8)],
        &[(a, 8), (b, 8), (c, 1)],
        &[(a, 8), (b, 8), (c, 4)],
        &[(a, 8), (b, 8), (c, 8)],
    ];
    let bytes =
        |shape: &[(u64, usize)]| shape.iter().flat_map(|&(v, n)| number(v, n)).collect::<Vec<u8>>();
    let mut all: Vec<_> = shapes.iter().chain(&shapes).map(|shape| bytes(shape)).collect();
    for len in 0..=70 {
        let text: Vec<u8> = (78 - len..78).map(|i| b'a' + (i % 26) as u8).chain([0]).collect();
        for head in [&[][..], &[(a, 1)], &[(a, 4), (b, 8)], &[(a, 8), (b, 8)]] {
            all.push([bytes(head), text.clone()].concat());
        }
        all.push([text.clone(), number(a, 8)].concat());
        all.push([text.clone(), text].concat());
    }
    all
}

#[test]
fn payloads_of_every_shape() {
    let prefix = tempfile::tempdir().expect("a folder");
    let expected = payloads();
    let whole = ["-std=c11", "-O3", "-flto", "-fno-plt"];
    let checked = ["-std=c11", "-O0", "-fsanitize=undefined", "-fno-sanitize-recover=all"];
    let cpp = ["-x", "c++", "-std=c++17", "-O1"];
    for (compiler, flags) in [("cc", &whole[..]), ("cc", &checked), ("c++", &cpp)] {
        let compiled = compile(compiler, flags, "tests/capi/c/payloads.c");
        // The cases are: no contexts, the thread's id, and the ids of thread and process.
        for (contexts, len) in [("0x80000000", 0), ("2", 4), ("3", 8)] {
            let found = recorded(program(prefix.path(), &compiled).arg(contexts), len);
            assert_eq!(found, expected, "{flags:?}, contexts {contexts}");
        }
    }
}

/// Runs a program that prints the folder of its session. Returns the payloads there, without the
/// first `contexts` bytes.
fn recorded(program: &mut Command, contexts: usize) -> Vec<Vec<u8>> {
    let folder = String::from_utf8(run(program).stdout).expect("text");
    let sessions = lastwords_testkit::naive::read(Path::new(folder.trim())).expect("readable");
    let mut events = sessions[0].events();
    events.sort_by_key(|(_, event)| event.clock);
    events.iter().map(|(_, event)| event.body[contexts..].to_vec()).collect()
}

/// Loads a plug-in, whose thread variables are in memory that the C library provides for late
/// libraries.
#[test]
fn loaded_late_into_a_thread_that_was_there() {
    let prefix = tempfile::tempdir().expect("a folder");
    let plugin = ["-std=c11", "-O2", "-shared", "-fPIC", "-Dmain=payloads"];
    let plugin = compile("cc", &plugin, "tests/capi/c/payloads.c");
    let host = compile("cc", &["-std=c11", "-Wl,--as-needed"], "tests/capi/c/late.c");
    let needed = run(Command::new("readelf").arg("-d").arg(&host)).stdout;
    assert!(
        !String::from_utf8_lossy(&needed).contains("liblastwords"),
        "it is there from the start"
    );
    assert_eq!(
        recorded(program(prefix.path(), &host).arg(&plugin).arg("0x80000000"), 0),
        payloads()
    );
    assert_eq!(recorded(program(prefix.path(), &host).arg(&plugin).arg("2"), 4), payloads());
}

#[test]
fn a_plug_in_is_closed() {
    let prefix = tempfile::tempdir().expect("a folder");
    let library = ["-std=c11", "-O2", "-shared", "-fPIC", "-DPLUGIN"];
    let library = compile("cc", &library, "tests/capi/c/plugin.c");
    let host = compile("cc", &["-std=c11", "-O2"], "tests/capi/c/plugin.c");
    let found = recorded(program(prefix.path(), &host).arg(&library), 0);
    assert_eq!(found, [7u32, 8, 9].map(|n| n.to_ne_bytes().to_vec()));
}
