//! Tests what the compiler says of events and markers that cannot be.

use lastwords_testkit::text::Text as _;

/// Returns the compiler's messages for an event with the field, and whether it accepts the event.
fn compile(statement: &str) -> (bool, String) {
    let tests = std::env::current_exe().expect("this program");
    let deps = tests.parent().expect("a folder");
    let name = |path: &std::path::Path| {
        path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned()
    };
    let files =
        std::fs::read_dir(deps).expect("libraries").filter_map(|entry| Some(entry.ok()?.path()));
    let mut libraries: Vec<_> = files
        .filter(|path| name(path).starts_with("liblastwords-") && name(path).ends_with(".rlib"))
        .collect();
    // The last one is the library that this test was built with, or a newer one.
    libraries.sort_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
    let library = libraries.last().expect("the library");
    let dir = tempfile::tempdir().expect("a folder");
    let source = dir.path().join("field.rs");
    let program = format!(
        "#[derive(Debug)] pub struct Own; pub const CONSTANT: u8 = 1; pub fn record(variable: u8) {{ {statement} }}"
    );
    std::fs::write(&source, program).expect("a file");
    let said =
        std::process::Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
            .args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--out-dir"])
            .arg(dir.path())
            .arg(format!("--extern=lastwords={}", library.display()))
            .arg(format!("-Ldependency={}", deps.display()))
            .arg(&source)
            .output()
            .expect("the compiler");
    (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned())
}

#[test]
fn a_type_that_is_no_field_is_told_what_to_do() {
    alone!();
    let (taken, said) = compile("lastwords::event!(p, \"e\", value = ?Own);");
    assert!(taken, "{said}");
    let (taken, said) = compile("lastwords::event!(p, \"e\", value = Own);");
    assert!(!taken && said.contains("`Own` cannot be a field of an event"), "{said}");
    said.has("`name = ?value` (`Debug`)").has("lastwords::labels!");
}

#[test]
fn a_format_string_fits_its_arguments() {
    alone!();
    let mark = |arguments: &&str| format!("lastwords::mark!({arguments});");
    let fit = [
        r#""nothing""#,
        r#""{} and {:x}", variable, 2u8"#,
        r#""{1} before {0}", 1u8, 2u8"#,
        r#""{{}} {}", 1u8"#,
        r#""{{{}}}", 1u8"#,
        r#""{name} {}", 1u8, name = "n""#,
        r#""{} {name}", name = "n", 1u8"#,
        r#""{name:#x} {type}", name = 1u8, r#type = 2u8"#,
        r#""not shown", name = 1u8"#,
    ];
    let (taken, said) = compile(&fit.iter().map(mark).collect::<String>());
    assert!(taken && said.is_empty(), "{said}");
    let unfit = [
        r#""{} and {}", 1u8"#,
        r#""{}", 1u8, 2u8"#,
        r#""{name}""#,
        r#""{variable}""#,
        r#""{CONSTANT}""#,
        r#""{nam}", name = 1u8"#,
        r#""{""#,
        r#""{1}", 1u8"#,
    ];
    for arguments in unfit {
        let (taken, said) = compile(&mark(&arguments));
        assert!(!taken, "{arguments}: {said}");
    }
}
