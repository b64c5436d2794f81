//! Golden tests: the output of the program for sessions that testkit writes is compared byte for
//! byte. To write the files anew:
//!
//!     LASTWORDS_GOLDEN=write cargo test -p lastwords-cli --test cli golden

use crate::support::{Place, small};
use std::path::Path;

/// A place with the sample session as a folder and as a core, by names that stay the same.
fn place() -> Place {
    let place = Place::new();
    let image = small(&place, "small-0001020304050607", 0);
    std::fs::write(place.at("core"), image.core()).unwrap();
    std::fs::write(place.at("core.zst"), lastwords_testkit::elf::zstd(&image.core())).unwrap();
    place
}

fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("LASTWORDS_GOLDEN").is_some_and(|v| v == "write") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    if golden != text {
        let at = golden.lines().zip(text.lines()).position(|(a, b)| a != b);
        let line = at.unwrap_or_else(|| golden.lines().count().min(text.lines().count()));
        let (was, is) = (golden.lines().nth(line), text.lines().nth(line));
        panic!(
            "{name}, line {}:\n  was {was:?}\n  is  {is:?}\n(to accept: the command at the top of this file)",
            line + 1
        );
    }
}

/// Runs the program; its stdout and stderr have to be those of the files.
fn golden(place: &Place, name: &str, args: &[&str]) {
    let ran = place.run(args);
    ran.has_status(0);
    compare(&format!("{name}.out"), &ran.out);
    compare(&format!("{name}.err"), &ran.err);
}

#[test]
fn golden_reports() {
    let place = place();
    let folder = "./small-0001020304050607";
    for style in ["fields", "ftrace", "babeltrace", "raw"] {
        golden(&place, &format!("report-{style}"), &["report", folder, "--utc", "--style", style]);
    }
    golden(&place, "report-snapshot", &["report", folder, "--utc", "--snapshot", "--last", "20"]);
}

#[test]
fn golden_inspect() {
    let place = place();
    golden(&place, "inspect", &["inspect", "./small-0001020304050607"]);
    golden(&place, "inspect-verbose", &["inspect", "./small-0001020304050607", "--verbose"]);
    golden(&place, "inspect-core", &["inspect", "core"]);
    golden(&place, "inspect-json", &["inspect", "./small-0001020304050607", "--json"]);
}

#[test]
fn folder_and_cores_say_the_same() {
    let place = place();
    let of = |input: &str| place.ok(&["report", input, "--style", "babeltrace"]);
    let folder = of("./small-0001020304050607");
    assert!(folder.lines().count() > 100);
    assert_eq!(of("core"), folder);
    assert_eq!(of("core.zst"), folder);
}

#[test]
fn any_bytes_are_an_error_or_evidence() {
    let place = place();
    let core = std::fs::read(place.at("core")).unwrap();
    for step in 0..60usize {
        let mut bytes = core.clone();
        // Damage that follows from the step: bytes set, or an end cut off.
        for i in 0..=step {
            let at = (step * 7919 + i * 104_729) % bytes.len();
            bytes[at] ^= 1 << (i % 8) | step as u8;
        }
        bytes.truncate(bytes.len() - (step % 3) * bytes.len() / 4);
        std::fs::write(place.at("damaged"), &bytes).unwrap();
        for args in [&["report", "damaged"][..], &["inspect", "damaged", "--json"]] {
            let ran = place.run(args);
            ran.does_not_say("panicked");
            assert!(matches!(ran.status, 0 | 1), "step {step}: {ran:?}");
        }
    }
}
