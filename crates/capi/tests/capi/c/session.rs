//! Tests the settings of sessions and channels, and the operations on a session that records.

use std::path::{Path, PathBuf};

use super::{COMPILERS, compile, lastwords, reported, said};

/// Compiles `session.c` as C and as C++. Returns the programs, and the folder of their sessions.
fn programs() -> (tempfile::TempDir, Vec<PathBuf>) {
    let programs = [COMPILERS[0], COMPILERS[2]]
        .map(|(compiler, flags)| compile(compiler, flags, "tests/capi/c/session.c"));
    (tempfile::tempdir().expect("a folder"), programs.to_vec())
}

/// Returns the reported lines of steps.
fn steps(numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    numbers.into_iter().map(|n| format!("s:step: n={n}")).collect()
}

#[test]
fn contexts_of_the_application() {
    let (prefix, programs) = programs();
    for program in programs {
        let folder = &said(prefix.path(), &program, &["contexts"])[0];
        let expected = [
            "s:first: phase=idle load={0.5,0} customer=nobody request=0",
            "s:second: n=2 phase=busy load={0.5,1099511627776} customer=\"a long name\" request=1099511627776",
            "s:in a thread: text=\"a text\" phase=3 load={0.5,1099511627776} customer=\"a far too lo\" request=1099511627776",
        ];
        assert_eq!(reported(&[folder]), expected);
    }
}

#[test]
fn options_of_sessions_and_channels() {
    let (prefix, programs) = programs();
    for program in programs {
        let said = said(prefix.path(), &program, &["options"]);
        let folder = &said[0];
        let inspected = lastwords(&["inspect", "--json", folder]);
        for wanted in [
            &format!("\"uuid\": \"{}\"", said[1]),
            "\"reservation\": \"locked\"",
            "\"finished\": true",
        ] {
            assert!(inspected.contains(wanted), "{wanted}\n{inspected}");
        }
        let counters = lastwords(&["counters", "--prometheus", folder]);
        for wanted in [
            "requests{session=\"options\"} 42\n",
            "latency_bucket{session=\"options\",le=\"1023\"} 1\n",
            "latency_sum{session=\"options\"} 1000\n",
        ] {
            assert!(counters.contains(wanted), "{wanted}\n{counters}");
        }
        let out = prefix.path().join("ctf").join(program.file_name().expect("a name"));
        lastwords(&["recover", folder, "-o", out.to_str().expect("text")]);
        let metadata = std::fs::read_to_string(out.join("options/metadata")).expect("its metadata");
        assert!(
            metadata.contains("version = \"1.2.3\"") && metadata.contains("flavour = \"sour\""),
            "{metadata}"
        );
        let size = |name: &str| Path::new(folder).join(name).metadata().map(|of| of.len()).ok();
        assert_eq!((size("registry"), size("spans")), (Some(64 << 10), None));
        // Headers have 10 bytes in the channel that asks for the size of payloads, after the
        // packet's first event, which has the whole time, and 18 in the other, which asks for full
        // headers.
        let session = &lastwords_testkit::naive::read(Path::new(folder)).expect("readable")[0];
        for (channel, each) in [(0, 18), (1, 26)] {
            let subs = session
                .streams
                .iter()
                .filter(|stream| stream.channel == channel)
                .flat_map(|stream| &stream.live);
            let places: Vec<u64> =
                subs.flat_map(|sub| &sub.events).map(|(place, _)| *place).collect();
            assert_eq!(
                (places.len(), places[2] - places[1]),
                (3, each),
                "channel {channel}: {places:?}"
            );
        }
    }
}

#[test]
fn memory_that_stays() {
    let (prefix, programs) = programs();
    for (at, program) in programs.iter().enumerate() {
        let dax = prefix.path().join(format!("dax-{at}")).display().to_string();
        said(prefix.path(), program, &["memory", &dax]);
        assert_eq!(reported(&[&dax]), steps(100..105));
        let file = prefix.path().join(format!("physical-{at}")).display().to_string();
        std::fs::write(&file, vec![0xa5; 8 << 20]).expect("a file");
        said(prefix.path(), program, &["memory", &file, "0x100000", "0x600000"]);
        assert_eq!(reported(&[&file]), steps(100..105));
        let bytes = std::fs::read(&file).expect("the file");
        assert!(
            bytes[..1 << 20].iter().chain(&bytes[7 << 20..]).all(|byte| *byte == 0xa5),
            "outside the range"
        );
    }
}

#[test]
fn rules_and_what_is_cleared() {
    let (prefix, programs) = programs();
    for program in programs {
        let folder = &said(prefix.path(), &program, &["control"])[0];
        let error = |n: u64| [format!("s:error: n={n}")];
        let text = ["s:text: n=37 text=long".to_owned()];
        let main = [&steps([10, 11])[..], &error(20), &steps([31, 32]), &error(36), &text].concat();
        assert_eq!(reported(&[folder, "--channel", "main"]), main);
        let rare = [&steps([10, 11, 15, 16])[..], &error(20), &error(36)].concat();
        assert_eq!(reported(&[folder, "--channel", "rare"]), rare);
        assert_eq!(reported(&[folder, "--channel", "late"]), steps([40]));
    }
}

#[test]
fn sessions_that_end_in_each_way() {
    let (_, programs) = programs();
    for program in programs {
        let place = tempfile::tempdir().expect("a folder");
        let folders = said(place.path(), &program, &["finish"]);
        // Two ended sessions stay when another begins; those that are removed at once do not count.
        let stay: Vec<bool> = folders.iter().map(|folder| Path::new(folder).exists()).collect();
        assert_eq!(stay, [false, false, true, true, true]);
        for (folder, error) in folders[2..].iter().zip([false, true, false]) {
            let listed = lastwords(&["list", folder]);
            assert_eq!(listed.contains(": error"), error, "{listed}");
        }
    }
}

#[test]
fn snapshots_of_all_of_a_cpu_and_of_a_stream() {
    let (prefix, programs) = programs();
    for program in programs {
        for of in ["all", "cpu", "stream"] {
            let said = said(prefix.path(), &program, &["snapshots", of]);
            let (folder, one_cpu) = (&said[0], said[1] == "1");
            let taken = match of {
                "cpu" if !one_cpu => 0..10,
                "stream" if !one_cpu => 10..20,
                _ => 0..20,
            };
            assert_eq!(reported(&[folder, "--snapshot"]), steps(taken.clone()), "{of}");
            assert_eq!(reported(&[folder]), steps((0..30).filter(|n| !taken.contains(n))), "{of}");
        }
    }
}

#[test]
fn two_triggers_leave_a_snapshot_each() {
    let (prefix, programs) = programs();
    for program in programs {
        let folder = std::path::PathBuf::from(&said(prefix.path(), &program, &["triggers"])[0]);
        let (name, unique) =
            folder.to_str().and_then(|path| path.rsplit_once('-')).expect("a name");
        for (number, taken) in [(1, 0..10), (2, 10..20)] {
            let copy = format!("{name}.snapshot-{number}-{unique}");
            assert_eq!(reported(&[&copy]), steps(taken), "{copy}");
        }
        let listed = lastwords(&["list", folder.to_str().expect("a path")]);
        // Triggers that share a snapshot count once, so that two are within the limit of two
        // whenever the first one is saved.
        let expected = "triggers fired: 2, 0 above the limit, 0 waiting; snapshots saved: 2; could not be saved: 0";
        assert!(listed.contains(expected), "{listed}");
    }
}

#[test]
fn one_call_records_until_the_process_dies() {
    use std::os::unix::process::ExitStatusExt as _;
    let (_, programs) = programs();
    for (program, name) in programs.iter().flat_map(|program| [(program, "shop"), (program, "a/b")])
    {
        let place = tempfile::tempdir().expect("a folder");
        let out = super::program(place.path(), program).args(["start", name]).output();
        let out = out.expect("it starts");
        assert_eq!(out.status.signal(), Some(6), "{out:?}");
        let (said, complaint) =
            (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        let [folder, problem] = said.lines().collect::<Vec<_>>()[..] else { panic!("{out:?}") };
        if name == "shop" {
            assert_eq!((problem, &*complaint), ("", ""));
            let reported = reported(&[folder]);
            assert_eq!(reported[..5], steps(0..5));
            assert!(reported[5].starts_with("crash:signal: signal=SIGABRT "), "{reported:?}");
            assert!(lastwords(&["list", folder]).contains(": SIGABRT"));
        } else {
            assert!(folder.is_empty() && problem.contains("a/b"), "{out:?}");
            assert_eq!(complaint, format!("lastwords: a/b is not recorded: {problem}\n"));
        }
    }
}

#[test]
fn what_was_ended_stays() {
    let (prefix, programs) = programs();
    for program in programs {
        let folder = &said(prefix.path(), &program, &["crash"])[0];
        assert_eq!(reported(&[folder]), steps(0..5));
    }
}

#[test]
fn a_plug_in_that_gives_a_context_is_closed() {
    let prefix = tempfile::tempdir().expect("a folder");
    let library = ["-std=c11", "-O2", "-shared", "-fPIC", "-DPLUGIN", "-Wl,--as-needed"];
    let library = compile("cc", &library, "tests/capi/c/provider.c");
    let host = compile("cc", &["-std=c11", "-O2"], "tests/capi/c/provider.c");
    let folder = &said(prefix.path(), &host, &[library.to_str().expect("text")])[0];
    assert_eq!(reported(&[folder]), ["host:closed: n=8 answer=42"]);
}

#[test]
fn fields_that_rules_hide() {
    let (prefix, programs) = programs();
    for program in programs {
        let folder = &said(prefix.path(), &program, &["hidden"])[0];
        let reported = reported(&[folder]);
        let hash = reported[3].strip_prefix("s:equal: n=3 user=").expect("a hash");
        assert!(hash.contains('#') && hash.trim_matches('"').len() == 17, "{hash}");
        let expected = [
            "s:short: token=<secret>".to_owned(),
            "s:text: n=1 password=<secret>".to_owned(),
            format!("s:middle: password=<secret> token=<secret> user={hash} n=2"),
            format!("s:equal: n=3 user={hash}"),
            "s:shown: n=4 name=\"a name\"".to_owned(),
        ];
        assert_eq!(reported, expected);
        for file in std::fs::read_dir(folder).expect("a folder") {
            let bytes = std::fs::read(file.expect("a file").path()).expect("readable");
            for canary in [&b"canary-"[..], b"\x53\x54\x55\x56\x57\x58\x59\x7a"] {
                assert!(!bytes.windows(canary.len()).any(|window| window == canary));
            }
        }
    }
}
