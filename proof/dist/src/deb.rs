//! Packages of Debian and its like, made by `dpkg-deb`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::contents::{self, System};
use super::tree::{FILE, PROGRAM, Tree};
use super::{Built, Release};
use rig::run_quietly;

/// The facts of a package's control file, and the package's scripts.
struct Package<'a> {
    name: &'a str,
    section: &'a str,
    /// Besides the shared libraries that its programs need.
    depends: String,
    more: &'a [(&'a str, &'a str)],
    summary: &'a str,
    description: &'a [&'a str],
    /// Files of the folder DEBIAN: name, mode, content.
    control: &'a [(&'a str, u32, &'a str)],
}

const PROGRAM_SCRIPTS: &[(&str, u32, &str)] = &[
    ("postinst", PROGRAM, include_str!("debian/postinst")),
    ("prerm", PROGRAM, include_str!("debian/prerm")),
    ("postrm", PROGRAM, include_str!("debian/postrm")),
];

/// Makes the four packages in `to`; returns their files.
pub(super) fn build(
    release: &Release,
    built: &Built,
    scratch: &Path,
    to: &Path,
) -> Result<Vec<PathBuf>> {
    let debug = Tree::create(scratch.join("deb-debug"))?;
    let program = program(release, &built.program, &debug, scratch, to)?;
    let libraries = libraries(release, built, &debug, scratch, to)?;
    Ok([vec![program], libraries, vec![debug_files(release, &debug, scratch, to)?]].concat())
}

/// Makes the package of the debug files of the program and the library.
fn debug_files(release: &Release, tree: &Tree, scratch: &Path, to: &Path) -> Result<PathBuf> {
    contents::debug(tree, System::Debian, "lastwords-dbg")?;
    let version = release.debian();
    let package = Package {
        name: "lastwords-dbg",
        section: "debug",
        depends: format!("lastwords (= {version}) | liblastwords0 (= {version})"),
        more: &[],
        summary: "flight recorder - debug symbols",
        description: &[
            "The symbols and the debug information of the program lastwords and of its C",
            "library, with which backtraces of them have names, files and lines.",
        ],
        control: &[],
    };
    finish(release, tree, &package, scratch, to)
}

/// Makes the package of the program. Its debug file goes to `debug`.
pub(super) fn program(
    release: &Release,
    program: &Path,
    debug: &Tree,
    scratch: &Path,
    to: &Path,
) -> Result<PathBuf> {
    let tree = Tree::create(scratch.join("deb-program"))?;
    contents::program(&tree, debug, System::Debian, program)?;
    let package = Package {
        name: "lastwords",
        section: "utils",
        depends: String::new(),
        more: &[("Recommends", "fuse3"), ("Suggests", "kdump-tools, trace-cmd, systemd-coredump")],
        summary: "flight recorder that keeps the last events of crashed programs",
        description: &[
            "Programs record events into ring buffers in shared memory. When a program dies,",
            "by a signal, by the OOM killer or with its kernel, this command recovers its",
            "last events from that memory. It also reads the traces in crash dumps of",
            "kernels (ftrace, LTTng), in process cores and in trace.dat files.",
        ],
        control: PROGRAM_SCRIPTS,
    };
    finish(release, &tree, &package, scratch, to)
}

/// Makes the packages of the C library: the library, and what compilers need.
fn libraries(
    release: &Release,
    built: &Built,
    debug: &Tree,
    scratch: &Path,
    to: &Path,
) -> Result<Vec<PathBuf>> {
    let tree = |name: &str| Tree::create(scratch.join(name));
    let (run_time, development) = (tree("deb-library")?, tree("deb-dev")?);
    contents::library(&built.libraries, System::Debian, &run_time, &development, debug)?;
    let soname = "liblastwords 0 liblastwords0";
    let of_library = Package {
        name: "liblastwords0",
        section: "libs",
        depends: String::new(),
        more: &[("Multi-Arch", "same"), ("Suggests", "lastwords")],
        summary: "flight recorder for programs in C and C++ - shared library",
        description: &[
            "Programs that are linked with this library record events into ring buffers that",
            "outlive them. The package lastwords has the command that reads the events.",
        ],
        control: &[
            ("triggers", FILE, "activate-noawait ldconfig\n"),
            ("shlibs", FILE, &format!("{soname} (>= {})\n", release.version)),
        ],
    };
    let for_compilers = Package {
        name: "liblastwords-dev",
        section: "libdevel",
        depends: format!("liblastwords0 (= {}), libc6-dev | libc-dev", release.debian()),
        more: &[("Multi-Arch", "same"), ("Suggests", "pkg-config, lastwords")],
        summary: "flight recorder for programs in C and C++ - development files",
        description: &[
            "The headers, the static library, the description for pkg-config and an example.",
            "Programs that are linked with it record events into ring buffers that outlive",
            "them.",
        ],
        control: &[],
    };
    let packages = [(&run_time, of_library), (&development, for_compilers)];
    packages
        .into_iter()
        .map(|(tree, package)| finish(release, tree, &package, scratch, to))
        .collect()
}

/// Adds what dpkg needs to know, and makes the package.
fn finish(
    release: &Release,
    tree: &Tree,
    package: &Package<'_>,
    scratch: &Path,
    to: &Path,
) -> Result<PathBuf> {
    let changes = format!(
        "lastwords ({}) unstable; urgency=medium\n\n  * Release {}; changelog.gz has what is new.\n\n -- {}  {}\n",
        release.debian(),
        release.version,
        release.maintainer,
        run_quietly(
            Command::new("date").args(["-u", "-R", "-d"]).arg(format!("@{}", release.epoch))
        )?
        .trim()
    );
    tree.compress(&format!("usr/share/doc/{}/changelog.Debian", package.name), changes)?;
    let files = tree.files()?;
    let sums =
        run_quietly(Command::new("md5sum").current_dir(tree.root()).args(regular(tree, &files)))?;
    let architecture = rig::apt::architecture()?;
    let depends = depends(tree, &files, package, scratch)?;
    let mut fields: Vec<(&str, String)> = vec![
        ("Package", package.name.into()),
        ("Source", "lastwords".into()),
        ("Version", release.debian()),
        ("Architecture", architecture.clone()),
        ("Maintainer", release.maintainer.clone()),
        ("Installed-Size", size(tree, &files)?.to_string()),
        ("Depends", depends),
        ("Section", package.section.into()),
        ("Priority", "optional".into()),
    ];
    fields.extend(package.more.iter().map(|(name, value)| (*name, (*value).to_string())));
    fields.extend(release.homepage.clone().map(|page| ("Homepage", page)));
    fields.push((
        "Description",
        format!("{}\n {}", package.summary, package.description.join("\n ")),
    ));
    let control: String = fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    tree.write("DEBIAN/control", FILE, control)?;
    tree.write("DEBIAN/md5sums", FILE, sums)?;
    for (name, mode, content) in package.control {
        tree.write(&format!("DEBIAN/{name}"), *mode, content)?;
    }
    let file = to.join(format!("{}_{}_{architecture}.deb", package.name, release.debian()));
    let mut command = Command::new("dpkg-deb");
    // dpkg-deb gives files that are younger than SOURCE_DATE_EPOCH that time, and ends lists in a
    // fixed order.
    command.env("SOURCE_DATE_EPOCH", release.epoch.to_string()).arg("--root-owner-group");
    command.args(if release.small { ["-Zxz", "-z6"] } else { ["-Zgzip", "-z1"] });
    run_quietly(command.arg("--build").arg(tree.root()).arg(&file))?;
    Ok(file)
}

/// The files that are no links.
fn regular<'a>(tree: &Tree, files: &'a [String]) -> Vec<&'a String> {
    files.iter().filter(|path| !tree.root().join(path).is_symlink()).collect()
}

/// Kilobytes on a disk, as policy 5.6.20 counts them: files by their blocks of 1 KiB, links as one.
fn size(tree: &Tree, files: &[String]) -> Result<u64> {
    let kilobytes = |path: &String| -> Result<u64> {
        let path = tree.root().join(path);
        let data = path.symlink_metadata().with_context(|| path.display().to_string())?;
        Ok(if data.is_symlink() { 1 } else { data.len().div_ceil(1024) })
    };
    files.iter().map(kilobytes).sum()
}

/// The packages that have the shared libraries which the programs need, by `dpkg-shlibdeps`, and
/// those that the package names.
fn depends(tree: &Tree, files: &[String], package: &Package<'_>, scratch: &Path) -> Result<String> {
    let is_elf = |path: &&String| {
        let path = tree.root().join(path);
        let is_other = path.extension().is_some_and(|e| e == "a" || e == "debug");
        !path.is_symlink() && !is_other && starts_with_elf(&path)
    };
    let programs: Vec<&String> = files.iter().filter(is_elf).collect();
    let mut all = Vec::new();
    if !programs.is_empty() {
        // The tool reads the names of the packages from the source's control file.
        let source = scratch.join("shlibdeps");
        let control = source.join("debian/control");
        std::fs::create_dir_all(source.join("debian"))?;
        std::fs::write(
            &control,
            format!("Source: lastwords\n\nPackage: {}\nArchitecture: any\n", package.name),
        )?;
        let mut command = Command::new("dpkg-shlibdeps");
        command.current_dir(&source).args(["-O", "--warnings=0"]);
        for program in programs {
            command.arg(tree.root().join(program));
        }
        let printed = run_quietly(&mut command)?;
        let needed = printed.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
        let needed = needed.with_context(|| format!("dpkg-shlibdeps printed {printed:?}"))?;
        ensure!(
            needed.contains("libc6"),
            "{} does not need a C library, as dpkg-shlibdeps says: {needed}",
            package.name
        );
        all.push(needed.to_string());
    }
    all.extend((!package.depends.is_empty()).then(|| package.depends.clone()));
    Ok(all.join(", "))
}

fn starts_with_elf(path: &Path) -> bool {
    use std::io::Read as _;
    let mut magic = [0; 4];
    std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *b"\x7fELF"
}
