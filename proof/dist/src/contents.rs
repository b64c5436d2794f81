//! The files of each package, and where each kind of system expects them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::linked;
use super::tree::{FILE, PROGRAM, Tree};
use rig::{make_empty, run_quietly};

/// Where a kind of system expects what others expect elsewhere.
pub(super) struct Layout {
    /// The folder of libraries, below `usr`.
    pub(super) libraries: String,
    /// The folder of zsh's completions.
    pub(super) zsh: &'static str,
    /// The compressed change log's name, below the folder of documentation.
    pub(super) changes: &'static str,
}

/// Files of `hooks` that are installed as they are: mode, folder in the repository, folder on the
/// system, names. A file with another name on the system is `FROM=TO`.
const HOOKS: &str = "\
program hooks/systemd  usr/lib/lastwords save-bundle save-last-boot collect retain
file    hooks/systemd  usr/lib/lastwords common.sh sessions.sh
file    hooks/systemd  usr/lib/systemd/system lastwords-bundle.service lastwords-last-boot.service
file    hooks/systemd  usr/lib/systemd/system lastwords-collect.service lastwords-collect.timer
file    hooks/systemd  usr/lib/systemd/system lastwords-retention.service lastwords-retention.timer
file    hooks/systemd  usr/lib/tmpfiles.d lastwords.conf
program hooks/kdump    usr/lib/lastwords save-trace
file    hooks/apparmor usr/share/lastwords application=apparmor
program hooks/dracut   usr/lib/dracut/modules.d/95lastwords module-setup.sh save-trace-hook.sh";

/// What puts the program into a crash kernel's first file system on Debian, besides the hook of
/// dracut, which is there too.
const DEBIAN_HOOKS: &str = "\
program hooks/initramfs-tools usr/share/initramfs-tools/hooks lastwords
program hooks/initramfs-tools usr/share/initramfs-tools/scripts/local-bottom lastwords-save-trace
file    hooks/kdump usr/lib/systemd/system/kdump-tools-dump.service.d kdump-tools.conf=lastwords.conf";

/// Pages of the program's package: path in the repository, name.
const DOCUMENTS: &[(&str, &str)] = &[
    ("README.md", "README.md"),
    ("docs/INSTALL.md", "README.setup.md"),
    ("docs/TRIGGERS.md", "TRIGGERS.md"),
    ("docs/FILTER.md", "FILTER.md"),
    ("docs/CORE-HELPER.md", "CORE-HELPER.md"),
    ("docs/CONFINEMENT.md", "CONFINEMENT.md"),
];

/// The kinds of packages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum System {
    Debian,
    Rpm,
}

impl System {
    pub(super) fn layout(self) -> Result<Layout> {
        Ok(match self {
            Self::Debian => {
                let triplet = run_quietly(
                    Command::new("dpkg-architecture").args(["-q", "DEB_HOST_MULTIARCH"]),
                )?;
                Layout {
                    libraries: format!("lib/{}", triplet.trim()),
                    zsh: "usr/share/zsh/vendor-completions",
                    changes: "changelog",
                }
            }
            Self::Rpm => Layout {
                libraries: "lib64".into(),
                zsh: "usr/share/zsh/site-functions",
                changes: "CHANGELOG.md",
            },
        })
    }
}

/// Where the system's debuggers look for debug files.
const DEBUG: &str = "usr/lib/debug/";

/// Puts the program and all that belongs to it into the tree, and its debug file into `debug`.
pub(super) fn program(tree: &Tree, debug: &Tree, system: System, program: &Path) -> Result<()> {
    let layout = system.layout()?;
    tree.copy("usr/bin/lastwords", PROGRAM, program)?;
    tree.split("usr/bin/lastwords", debug, DEBUG)?;
    texts(tree, program, "usr/share", layout.zsh)?;
    hooks(tree, HOOKS)?;
    // The hook of initramfs-tools is of no use where there is no initramfs-tools.
    if system == System::Debian {
        hooks(tree, DEBIAN_HOOKS)?;
    }
    document(tree, system, "lastwords", layout.changes)?;
    tree.compress("usr/share/doc/lastwords/THIRD-PARTY", linked::notices("lastwords-cli")?)?;
    // The installation itself is done; the rest of the page is about units and hooks.
    for (text, name) in DOCUMENTS {
        tree.copy(&format!("usr/share/doc/lastwords/{name}"), FILE, &rig::root().join(text))?;
    }
    Ok(())
}

/// Copies the files of a table of hooks.
fn hooks(tree: &Tree, table: &str) -> Result<()> {
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mode, from, to, names @ ..] = &words[..] else { bail!("{line}") };
        let mode = if *mode == "program" { PROGRAM } else { FILE };
        for name in names {
            let (source, name) = name.split_once('=').unwrap_or((name, name));
            tree.copy(&format!("{to}/{name}"), mode, &rig::root().join(from).join(source))?;
        }
    }
    Ok(())
}

/// Writes the manual pages and the completions, as the program itself prints them, below `share`.
pub(super) fn texts(tree: &Tree, program: &Path, share: &str, zsh: &str) -> Result<()> {
    let folder = tree.root().with_extension("man");
    make_empty(&folder)?;
    run_quietly(Command::new(program).arg("man").arg("-o").arg(&folder))?;
    let mut pages: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        pages.push(entry?.path());
    }
    pages.sort();
    ensure!(pages.len() > 20, "`lastwords man` wrote {} pages only", pages.len());
    for page in pages {
        let name = page.file_name().and_then(|name| name.to_str()).context("the name of a page")?;
        tree.compress(&format!("{share}/man/man1/{name}"), std::fs::read(&page)?)?;
    }
    std::fs::remove_dir_all(&folder)?;
    let places = [
        ("bash", format!("{share}/bash-completion/completions/lastwords")),
        ("zsh", format!("{zsh}/_lastwords")),
        ("fish", format!("{share}/fish/vendor_completions.d/lastwords.fish")),
    ];
    for (shell, path) in places {
        let text = run_quietly(Command::new(program).args(["completions", shell]))?;
        ensure!(text.contains("lastwords"), "`lastwords completions {shell}` printed: {text:?}");
        tree.write(&path, FILE, text)?;
    }
    Ok(())
}

/// Installs the C library as its own script does, and divides the files between the library's
/// package and the one for compilers.
pub(super) fn library(
    libraries: &Path,
    system: System,
    run_time: &Tree,
    development: &Tree,
    debug: &Tree,
) -> Result<()> {
    let layout = system.layout()?;
    let whole = Tree::create(run_time.root().with_extension("whole"))?;
    run_quietly(
        Command::new(rig::root().join("crates/capi/install.sh"))
            .arg("/usr")
            .arg(libraries)
            .env("DESTDIR", whole.root())
            .env("LIBDIR", &layout.libraries),
    )?;
    let folder = format!("usr/{}", layout.libraries);
    for path in whole.files()? {
        // `liblastwords.so.0` and the file that it names are for programs that run; the rest is for
        // compilers.
        let is_run_time = path.contains("/liblastwords.so.");
        let to = if is_run_time { run_time } else { development };
        to.take(&path, &whole, &path)?;
    }
    std::fs::remove_dir_all(whole.root())?;
    let shared = format!("{folder}/liblastwords.so.{}", super::version()?);
    run_time.split(&shared, debug, DEBUG)?;
    check_static_tls(&run_time.root().join(&shared))?;
    // Debian's libraries are not executable; rpm finds the dependencies of executable files only.
    run_time.set_mode(&shared, if system == System::Debian { FILE } else { PROGRAM })?;
    let archive = format!("{folder}/liblastwords.a");
    development.strip(&archive, "--strip-debug")?;
    let (names, example) = match system {
        System::Debian => (
            ["liblastwords0", "liblastwords-dev"],
            "usr/share/doc/liblastwords-dev/examples/hello.c",
        ),
        System::Rpm => {
            (["liblastwords0", "liblastwords-devel"], "usr/share/doc/liblastwords-devel/hello.c")
        }
    };
    for (tree, name) in [(run_time, names[0]), (development, names[1])] {
        document(tree, system, name, layout.changes)?;
        tree.compress(
            &format!("usr/share/doc/{name}/THIRD-PARTY"),
            linked::notices("lastwords-capi")?,
        )?;
    }
    development.copy(example, FILE, &rig::root().join("crates/capi/examples/hello.c"))?;
    Ok(())
}

/// Largest size of the library's thread-local variables, in bytes. If a program loads the library
/// late, they are in 1,664 bytes that all such libraries share. The test of the C library
/// (`capi/tests/capi/c/threads.rs`) has the same limit and the reason.
const MOST_TLS: u64 = 320;

/// Checks that a program can load the library late beside others.
fn check_static_tls(library: &Path) -> Result<()> {
    let segments = run_quietly(Command::new("readelf").arg("-lW").arg(library))?;
    let size = static_tls(&segments).context("readelf shows no segment TLS")?;
    ensure!(
        size <= MOST_TLS,
        "{}: {size} bytes of thread-local variables, {MOST_TLS} at most",
        library.display()
    );
    Ok(())
}

/// Returns the size in memory of the segment TLS, in the text of `readelf -lW`.
fn static_tls(segments: &str) -> Option<u64> {
    let line = segments.lines().find(|line| line.trim_start().starts_with("TLS "))?;
    u64::from_str_radix(line.split_whitespace().nth(5)?.strip_prefix("0x")?, 16).ok()
}

/// Completes the package of the debug files.
pub(super) fn debug(tree: &Tree, system: System, name: &str) -> Result<()> {
    document(tree, system, name, system.layout()?.changes)
}

/// Every package has the licences and the change log.
fn document(tree: &Tree, system: System, name: &str, changes: &str) -> Result<()> {
    let folder = format!("usr/share/doc/{name}");
    match system {
        System::Debian => drop(tree.write(&format!("{folder}/copyright"), FILE, copyright()?)?),
        System::Rpm => licences(tree, &format!("usr/share/licenses/{name}"))?,
    }
    tree.compress(&format!("{folder}/{changes}"), read("CHANGELOG.md")?)
}

/// Copies the texts of the licences into a folder.
pub(super) fn licences(tree: &Tree, folder: &str) -> Result<()> {
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        tree.write(&format!("{folder}/{name}"), FILE, read(name)?)?;
    }
    Ok(())
}

/// The licences in the form of Debian (DEP 5).
fn copyright() -> Result<String> {
    let mit = read("LICENSE-MIT")?;
    let holder = mit
        .lines()
        .find_map(|line| line.strip_prefix("Copyright (c) "))
        .context("LICENSE-MIT names no holder")?;
    let indented: String = mit
        .lines()
        .map(|line| if line.is_empty() { " .\n".into() } else { format!(" {line}\n") })
        .collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: lastwords\n\
         Comment: Libraries of others are linked in; THIRD-PARTY.gz has their licences.\n\n\
         Files: *\nCopyright: {holder}\nLicense: Expat or Apache-2.0\n\n\
         License: Expat\n{indented}\nLicense: Apache-2.0\n On Debian systems, /usr/share/common-licenses/Apache-2.0 has the text of the licence.\n"
    ))
}

fn read(name: &str) -> Result<String> {
    let path = rig::root().join(name);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}
