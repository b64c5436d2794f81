//! `include/lastwords.h` is what cbindgen makes of the sources. `LASTWORDS_BLESS=1 cargo test -p lastwords-capi header` writes it.

use std::path::Path;

#[test]
fn header_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    // It follows the modules by itself.
    let builder = cbindgen::Builder::new().with_config(config).with_src(root.join("src/lib.rs"));
    let mut made = Vec::new();
    builder.generate().expect("a header").write(&mut made);
    let made = without_safety(&String::from_utf8(made).expect("text"));
    let path = root.join("include/lastwords.h");
    if std::env::var_os("LASTWORDS_BLESS").is_some() {
        std::fs::write(&path, &made).expect("include/lastwords.h is writable");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "include/lastwords.h is not current: LASTWORDS_BLESS=1 cargo test -p lastwords-capi header");
    let macros = std::fs::read_to_string(root.join("include/lastwords_event.h")).expect("the macros");
    assert!(made.is_ascii() && macros.is_ascii(), "the headers are ASCII");
}

/// The heading that Rust asks for says nothing in C.
fn without_safety(header: &str) -> String {
    let lines = header.lines().filter(|line| line.trim() != "* # Safety");
    let mut text: String = lines.flat_map(|line| [line.trim_end(), "\n"]).collect();
    while let Some(at) = text.find("\n *\n * \n") {
        text.replace_range(at..at + 4, "\n");
    }
    text
}
