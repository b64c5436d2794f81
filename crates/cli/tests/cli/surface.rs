//! Arguments, help, exit statuses.

use crate::support::{Place, entries, ran};
use lastwords_testkit::text::Text as _;
use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
fn usage_errors_are_2_and_on_stderr() {
    let place = Place::new();
    for args in [
        &["no-such-verb"][..],
        &["report"],
        &["recover", "x"],
        &["demo", "--threads", "0"],
        &["report", "x", "--since", "soon"],
        &["snapshot", "take", "a", "-s", "a"],
        &["list", "a", "--session", "a"],
        &["destroy", "a", "-s", "a"],
        &["destroy"],
        &["report", "x", "--json"],
        &["report", "x", "--bpf", "--grep", "y"],
        &["report", "x", "--perf", "--bpf"],
        &["report", "x", "--bpf", "--histograms"],
    ] {
        let ran = place.run(args);
        ran.has_status(2);
        assert!(ran.out.is_empty() && !ran.err.is_empty(), "{args:?}");
    }
}

#[test]
fn errors_are_1_and_name_file_and_remedy() {
    let place = Place::new();
    let ran = place.run(&["report", "/no/such/core"]);
    ran.has_status(1).prints_nothing();
    ran.err.starts("error: /no/such/core: ");
    place.run(&["inspect", "nothing"]).has_status(1).says("nothing").says("lastwords list");
    std::fs::write(place.at("text"), "no dump").expect("a file");
    for args in [
        &["report", "--bpf", "text"][..],
        &["report", "--perf", "text"],
        &["convert", "text", "-o", "perf.data"],
        &["recover", "text", "--to", "perf-data", "-o", "files"],
    ] {
        let ran = place.run(args);
        ran.has_status(1).prints_nothing();
        ran.err.starts("error: text: ");
        assert!(!place.at("perf.data").exists() && !place.at("files").exists());
    }
}

/// Required arguments have no brackets in the help and in the manual.
#[test]
fn usage_says_what_must_be_named() {
    let place = Place::new();
    let folder = place.at("man");
    place.ok(&["man", "-o", folder.to_str().unwrap()]);
    for (verb, more, word, other) in [
        ("report", "", "INPUT", "--pid <PID>"),
        ("inspect", "", "INPUT", "--pid <PID>"),
        ("view", "", "INPUT", "--pid <PID>"),
        ("why", "", "INPUT", "--pid <PID>"),
        ("recover", " --output <OUT>", "INPUT", "--pid <PID>"),
        ("convert", " --output <OUT>", "INPUT", "--pid <PID>"),
        ("destroy", "", "SESSION", "--left-over"),
    ] {
        let begin = format!("lastwords {verb} [OPTIONS]{more}");
        let usage = format!("Usage: {begin} <{word}>...\n       {begin} {other}\n");
        place.ok(&[verb, "--help"]).has(&usage);
        let page =
            std::fs::read_to_string(folder.join(format!("lastwords-{verb}.1"))).expect("a page");
        let page = page.split(".SH DESCRIPTION").next().expect("a synopsis").replace('\\', "");
        let synopsis = format!(
            "fBlastwords {verb}fR [OPTIONS]{more} <{word}>...\n.br\nfBlastwords {verb}fR [OPTIONS]{more} {other}"
        );
        page.has(&synopsis);
    }
}

/// A session is named as a word of its own or with `-s`, wherever one is.
#[test]
fn either_way_of_naming_a_session() {
    let place = Place::new();
    for verb in [
        &["start"][..],
        &["stop"],
        &["clear"],
        &["list"],
        &["destroy"],
        &["snapshot", "enable"],
        &["snapshot", "disable"],
        &["snapshot", "take"],
        &["snapshot", "record", "-o", "out"],
    ] {
        for name in [&["nobody"][..], &["-s", "nobody"], &["--session", "nobody"]] {
            let ran = place.run(&[verb, name].concat());
            ran.has_status(1);
            ran.says("nobody: no session of that name");
        }
    }
}

#[test]
fn help_names_every_verb() {
    let help = Place::new().ok(&["--help"]);
    let words = "demo recover convert ingest sql mcp report inspect view counters why diff list top enable \
        disable snapshot clear destroy start stop mount umount record receive restore \
        watch-guest kernel bundle channel trigger \
        core-helper doctor completions man";
    for verb in words.split(' ') {
        assert!(
            help.lines().any(|line| line.trim_start().starts_with(verb)),
            "{verb} is not in\n{help}"
        );
    }
    for hidden in ["demo-child", "record-command", "mount-recorder", "mount-guard"] {
        help.lacks(hidden);
    }
}

#[test]
fn a_program_in_the_path_is_a_verb() {
    let place = Place::new();
    let missing = place.command().args(["sql", "shop"]).env("PATH", place.path()).output().unwrap();
    ran(missing).has_status(1).says("lastwords-sql").says("docs/INSTALL.md");
    let program = place.at("lastwords-mcp");
    std::fs::write(&program, "#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 7\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let path = format!("{}:/usr/bin:/bin", place.path().display());
    let words = ["mcp", "--help", "-c", "a b", "--", "-x"];
    let there = place.command().args(words).env("PATH", path).output().unwrap();
    ran(there).has_status(7).prints("<--help><-c><a b><--><-x>");
}

#[test]
fn shells_complete_verbs_sessions_and_paths() {
    let place = Place::new();
    let session = lastwords::Session::builder("shopping").dir(place.sessions()).start().unwrap();
    std::fs::write(place.at("shop.dat"), "").unwrap();
    // The script of bash, as bash calls it.
    let script = "source <(lastwords completions bash); COMP_WORDS=(lastwords \"$@\"); COMP_CWORD=$#; \
        _clap_complete_lastwords lastwords \"${!#}\"; printf '%s ' ${COMPREPLY[@]}";
    let program = Path::new(env!("CARGO_BIN_EXE_lastwords")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let complete = |words: &[&str]| {
        let mut bash = Command::new("bash");
        bash.args(["-c", script, "bash"]).args(words).current_dir(place.path()).env("PATH", &path);
        let ran = ran(bash.env("LASTWORDS_DIR", place.sessions()).output().unwrap());
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{words:?}");
        ran.out.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let words =
        |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(complete(&["reco"]), words(&["record", "recover"]));
    assert_eq!(complete(&["report", "--rela"]), words(&["--relative"]));
    assert_eq!(complete(&["report", "sho"]), words(&["shopping", "shop.dat"]));
    assert_eq!(complete(&["diff", "sho"]), words(&["shopping", "shop.dat"]));
    assert_eq!(complete(&["diff", "a", "sho"]), words(&["shopping", "shop.dat"]));
    assert_eq!(complete(&["top", "sho"]), words(&["shopping"]));
    assert_eq!(complete(&["snapshot", "take", "-s", "sho"]), words(&["shopping"]));
    assert_eq!(complete(&["inspect", "--session", "sho"]), words(&["shopping"]));
    assert_eq!(complete(&["completions", "z"]), words(&["zsh"]));
    for shell in ["bash", "zsh", "fish"] {
        assert!(place.ok(&["completions", shell]).contains("LASTWORDS_COMPLETE"), "{shell}");
    }
    drop(session);
}

#[test]
fn a_page_a_verb() {
    let place = Place::new();
    let folder = place.at("man");
    place.ok(&["man", "-o", folder.to_str().unwrap()]);
    let words = "lastwords.1 lastwords-recover.1 lastwords-snapshot-take.1 lastwords-report.1 \
        lastwords-record.1";
    for page in words.split(' ') {
        let text =
            std::fs::read_to_string(folder.join(page)).unwrap_or_else(|e| panic!("{page}: {e}"));
        for section in [
            "NAME",
            "SYNOPSIS",
            "EXAMPLES",
            "ENVIRONMENT",
            "FILES",
            "\"EXIT STATUS\"",
            "\"SEE ALSO\"",
        ] {
            assert!(text.contains(&format!(".SH {section}\n")), "{page}: {section}");
        }
    }
    for none in ["demo-child", "help", "snapshot-help", "help-recover"] {
        assert!(!folder.join(format!("lastwords-{none}.1")).exists(), "{none}");
    }
    let text =
        |verb: &str| std::fs::read_to_string(folder.join(format!("lastwords-{verb}.1"))).unwrap();
    assert!(
        text("recover").replace('\\', "").contains("lastwords-report(1), lastwords-inspect(1)"),
        "{}",
        text("recover")
    );
    text("record").has("fBN").has("own exit status, if it is not 0");
    text("core-helper-status").has("The helper is not installed");
    for verb in ["demo", "doctor", "core-helper-status"] {
        text(verb).lacks("no event matched");
    }
}

/// The rows of the first table of a section of the book, without its head: the first cell of each.
fn first_cells(page: &str, section: &str) -> BTreeSet<String> {
    let book = concat!(env!("CARGO_MANIFEST_DIR"), "/../../book/src/reference/");
    let text = std::fs::read_to_string(format!("{book}{page}")).expect("a page of the book");
    let (_, rest) = text.split_once(&format!("\n## {section}\n")).expect("the section");
    let rows = rest
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2);
    rows.flat_map(|row| row.split('|').nth(1).expect("a cell").split(','))
        .map(|word| word.trim().trim_matches('`').to_owned())
        .collect()
}

/// The entries of a section of a manual page.
fn entries_of(page: &str, section: &str) -> BTreeSet<String> {
    let (_, rest) = page.split_once(&format!(".SH {section}\n")).expect("the section");
    let rest = rest.split(".SH ").next().expect("its text").replace('\\', "");
    let words = rest.lines().filter_map(|line| line.strip_prefix("fB")?.strip_suffix("fR"));
    words.flat_map(|words| words.split(',')).map(|word| word.trim().to_owned()).collect()
}

#[test]
fn book_and_manual_name_the_same_variables_statuses_and_commands() {
    let place = Place::new();
    let folder = place.at("man");
    place.ok(&["man", "-o", folder.to_str().unwrap()]);
    let page = std::fs::read_to_string(folder.join("lastwords.1")).unwrap();
    assert_eq!(first_cells("command-line.md", "Environment"), entries_of(&page, "ENVIRONMENT"));
    assert_eq!(first_cells("command-line.md", "Exit status"), entries_of(&page, "\"EXIT STATUS\""));
    let commands = first_cells("command-line.md", "Commands");
    let verbs = |cells: BTreeSet<String>| -> BTreeSet<String> {
        cells.iter().filter_map(|cell| Some(cell.split_whitespace().next()?.to_owned())).collect()
    };
    let listed =
        page.split(".SH SUBCOMMANDS\n").nth(1).expect("the verbs").split(".SH ").next().unwrap();
    let listed = listed.replace('\\', "");
    let listed =
        listed.lines().filter_map(|line| line.strip_prefix("lastwords-")?.strip_suffix("(1)"));
    assert_eq!(verbs(commands), listed.map(str::to_owned).collect());
}

/// The verbs that a help lists.
fn verbs_of(help: &str) -> impl Iterator<Item = &str> {
    let list = help.split("\nCommands:\n").nth(1).unwrap_or("").split("\n\n").next();
    let names = list.unwrap_or("").lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| !["help", "sql", "mcp"].contains(name))
}

/// The long names of the options that a help lists.
fn options_of(help: &str) -> impl Iterator<Item = &str> {
    help.lines().filter_map(|line| {
        let line = line.strip_prefix("  ")?.trim_start();
        let long = line.split(", ").find(|word| word.starts_with("--"))?;
        line.starts_with('-').then(|| long.split([' ', '[', '=']).next())?
    })
}

/// The files below these folders of the repository, without those of tests and of builds.
fn files_below(folders: &[&str]) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| root.join(folder)).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let (below, here) =
            entries(&folder).into_iter().partition::<Vec<_>, _>(|path| path.is_dir());
        let is_text = |path: &PathBuf| !path.ends_with("tests") && !path.ends_with("target");
        folders.extend(below.into_iter().filter(is_text));
        files.extend(here);
    }
    files
}

/// The text of all pages of the book, with the documents that they include.
fn book() -> String {
    let is_page = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "md");
    let pages = files_below(&["book/src"]).into_iter().filter(is_page);
    let text = pages.map(|path| {
        let page = std::fs::read_to_string(&path).expect("a page");
        let included = page.strip_prefix("{{#include ").and_then(|rest| rest.split_once("}}"));
        included.map_or(page.clone(), |(document, _)| {
            std::fs::read_to_string(path.with_file_name(document)).expect("a document")
        })
    });
    text.collect()
}

/// A page names each option of each verb, by its long name.
#[test]
fn each_option_is_in_the_book() {
    let place = Place::new();
    let book = book();
    let names: BTreeSet<&str> = book
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
        .filter(|word| word.starts_with("--"))
        .collect();
    let mut verbs = vec![String::new()];
    let mut missing = BTreeSet::new();
    let mut count = 0;
    while let Some(verb) = verbs.pop() {
        let help =
            place.ok(&[&verb.split_whitespace().collect::<Vec<_>>()[..], &["--help"]].concat());
        verbs.extend(verbs_of(&help).map(|name| format!("{verb} {name}")));
        for option in options_of(&help) {
            count += 1;
            if !names.contains(option) {
                missing.insert(format!("lastwords{verb} {option}"));
            }
        }
    }
    assert!(count > 300, "{count} options are too few");
    assert!(missing.is_empty(), "no page of the book has {missing:#?}");
}

#[test]
fn help_is_a_verb_too() {
    let place = Place::new();
    for verb in [&[][..], &["recover"], &["snapshot", "take"]] {
        assert_eq!(
            place.ok(&[&["help"], verb].concat()),
            place.ok(&[verb, &["--help"]].concat()),
            "{verb:?}"
        );
    }
    place.run(&["help", "no-such-verb"]).has_status(2);
}

#[test]
fn help_of_list_explains_since() {
    let place = Place::new();
    place.ok(&["list", "--help"]).has("SINCE is when");
    for verb in ["recover", "convert"] {
        let help = place.ok(&[verb, "--help"]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(help.matches("copy whole packets").count(), 2, "{help}");
    }
}

#[test]
fn doctor_as_data() {
    let report = Place::new().json(&["doctor", "--json"]);
    assert_eq!(report["schema"], "lastwords.doctor.v2");
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.iter().any(|c| c["check"] == "core filter"));
    assert!(
        checks.iter().any(|c| c["check"] == "signs of death" && c["status"] == "good"),
        "{report}"
    );
    for check in checks {
        let status = check["status"].as_str().unwrap();
        assert!(check["section"].is_string(), "{check}");
        assert!(["good", "off", "partial", "bad"].contains(&status));
        assert!(check["fix"].is_string() || !["bad", "off"].contains(&status), "{check}");
    }
}

/// The text of `doctor` in a mount namespace of its own, marked as a container, after `mounts` were
/// made there.
fn doctor_in_a_container(mounts: &str, dir: &str) -> String {
    let program = env!("CARGO_BIN_EXE_lastwords");
    let script = format!(
        "set -e; {mounts}; LASTWORDS_DIR={dir} container=test {program} doctor || test $? = 1"
    );
    let ran = crate::support::tool("unshare", &["--map-root-user", "--mount", "sh", "-c", &script]);
    ran.out
}

#[test]
fn doctor_tells_memory_that_ends_with_its_container() {
    let own = "mount -t tmpfs tmpfs /dev/shm";
    doctor_in_a_container(own, "/dev/shm/lastwords")
        .has("end with the container")
        .has("-v /dev/shm/lastwords");
    // On a disk that outlives it, the advice is not to go back to what ends with it.
    doctor_in_a_container(own, "/var").lacks("export LASTWORDS_DIR=/dev/shm/lastwords-");
    let host = "mount -t tmpfs tmpfs /mnt; mkdir -p -m 700 /mnt/of/host; mount -t tmpfs tmpfs /dev/shm; \
                mkdir /dev/shm/lastwords; mount --bind /mnt/of/host /dev/shm/lastwords";
    doctor_in_a_container(host, "/dev/shm/lastwords").lacks("end with the container");
}

#[test]
fn doctor_tells_a_folder_that_cannot_be() {
    let place = Place::new();
    let output =
        place.command().args(["doctor"]).env("LASTWORDS_DIR", "/proc/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stdout).has("export LASTWORDS_DIR=");
}

#[test]
fn colour_only_where_it_is_asked_for() {
    let place = Place::new();
    place.ok(&["doctor"]).lacks("\x1b");
    place.ok(&["doctor", "--color", "always"]).has("\x1b");
    let output = place.command().args(["doctor", "--color", "never"]).output().unwrap();
    assert!(!output.stdout.contains(&0x1b));
}

#[test]
fn a_closed_pipe_is_quiet() {
    let place = Place::new();
    let mut child = place
        .command()
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{err}");
    assert_eq!(err, "");
}

#[test]
fn nobody_is_told_to_remove_a_folder_that_is_no_sessions() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    std::fs::create_dir(place.at("mine")).unwrap();
    std::fs::write(place.at("mine/notes"), "of mine").unwrap();
    for mode in [0o755, 0o777, 0o700] {
        std::fs::set_permissions(place.at("mine"), std::fs::Permissions::from_mode(mode)).unwrap();
        for verb in ["list", "stop"] {
            place.run(&[verb, "./mine"]).has_status(1).says("mine").does_not_say("remove it");
        }
    }
}

/// Returns the commands that a text advises: a verb and the word behind it, where `lastwords` begins
/// a command.
fn advised(text: &str) -> impl Iterator<Item = (String, String)> {
    let begins = ["`lastwords ", "\"lastwords ", "$ lastwords ", ": lastwords ", "    lastwords "];
    let behind = begins.into_iter().flat_map(|begin| text.split(begin).skip(1));
    behind.filter_map(|rest| {
        let word = |text: &str| -> String {
            text.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect()
        };
        let verb = word(rest);
        let next = rest.get(verb.len()..)?.strip_prefix(' ').map(word).unwrap_or_default();
        (!verb.is_empty() && !verb.starts_with('-') && !verb.ends_with('-')).then_some((verb, next))
    })
}

/// Each command in a message, a manual or a page exists.
#[test]
fn advised_commands_exist() {
    let mut commands: BTreeSet<(String, String)> = BTreeSet::new();
    for path in files_below(&["crates", "docs", "book/src", "hooks", "examples"]) {
        if !path.ends_with("Cargo.toml")
            && let Ok(text) = std::fs::read_to_string(&path)
        {
            commands.extend(advised(&text));
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    commands.extend(advised(&std::fs::read_to_string(root.join("README.md")).expect("the README")));
    assert!(commands.contains(&("snapshot".to_owned(), "take".to_owned())), "{commands:?}");
    let place = Place::new();
    for (verb, next) in commands.iter().filter(|(verb, _)| verb != "help") {
        let help = place.run(&["help", verb]);
        assert_eq!(help.status, 0, "lastwords {verb} {next}: {}", help.err);
        if help.out.contains("\nCommands:\n") && !next.is_empty() && !next.starts_with('-') {
            assert_eq!(place.run(&["help", verb, next]).status, 0, "lastwords {verb} {next}");
        }
    }
    let wrong = advised("; free it: `lastwords snapshot off`").next().expect("a command");
    assert_eq!(place.run(&["help", &wrong.0, &wrong.1]).status, 2);
}
