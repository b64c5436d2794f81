//! Programs of shapes: written, built, found again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::shape::{Language, Shape};
use super::{c, rust};
use rig::programs;

/// Rust programs among which the shapes are divided, so that the compiler has more than one to do
/// at a time.
const PARTS: usize = 4;

/// The programs of some shapes.
pub(super) struct Programs {
    paths: HashMap<u64, PathBuf>,
    /// Where the libraries and `lastwords` are.
    built: PathBuf,
}

impl Programs {
    /// Writes the programs into `folder` and builds them.
    pub(super) fn build(folder: &Path, shapes: &[Shape], release: bool) -> Result<Self> {
        let root = rig::root();
        let profile: &[&str] = if release { &["--release"] } else { &[] };
        let built = if release {
            programs::build("lastwords-capi")?;
            programs::build("lastwords-cli")?
        } else {
            programs::debug()?
        };
        let mut paths = HashMap::new();
        std::fs::create_dir_all(folder)?;
        let of = |language| {
            shapes.iter().filter(move |shape| shape.language == language).collect::<Vec<&Shape>>()
        };
        for (language, compiler, file) in
            [(Language::C, "cc", "shapes.c"), (Language::Cpp, "c++", "shapes.cpp")]
        {
            let shapes = of(language);
            if shapes.is_empty() {
                continue;
            }
            let program = compile(folder, &built, compiler, file, &shapes)?;
            paths.extend(shapes.iter().map(|shape| (shape.index, program.clone())));
        }
        let mut parts: Vec<Vec<&Shape>> = vec![Vec::new(); PARTS];
        of(Language::Rust)
            .into_iter()
            .enumerate()
            .for_each(|(i, shape)| parts[i % PARTS].push(shape));
        parts.retain(|part| !part.is_empty());
        let names: Vec<String> = (0..parts.len()).map(|part| format!("shapes-{part}")).collect();
        for (name, shapes) in names.iter().zip(&parts) {
            write(&folder.join(format!("{name}.rs")), &rust::program(shapes))?;
            paths.extend(shapes.iter().map(|shape| (shape.index, built.join(name))));
        }
        let workspace = std::fs::read_to_string(root.join("Cargo.toml"))?;
        write(&folder.join("Cargo.toml"), &rust::manifest(&root, &workspace, &names))?;
        std::fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
        let target = programs::target()?.display().to_string();
        let common =
            [&["build", "--quiet", "--offline", "--target-dir", &target], profile].concat();
        if !parts.is_empty() {
            cargo(folder, &[&common[..], &["--bins"]].concat())?;
        }
        Ok(Self { paths, built })
    }

    /// The program of a shape.
    pub(super) fn command(&self, shape: &Shape) -> Command {
        let mut command = Command::new(&self.paths[&shape.index]);
        command.env("LD_LIBRARY_PATH", &self.built);
        command
    }

    /// The command line program.
    pub(super) fn lastwords(&self) -> PathBuf {
        self.built.join("lastwords")
    }
}

fn cargo(folder: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(rig::cargo());
    command.current_dir(folder).args(arguments);
    let status = command.status().with_context(|| rig::shown(&command))?;
    ensure!(status.success(), "{}, in {}: {status}", rig::shown(&command), folder.display());
    Ok(())
}

/// Writes a file where it would change: an older build of the same text stays good.
fn write(path: &Path, text: &str) -> Result<()> {
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// Compiles a program of C or C++ and links it with the shared library that cargo built.
fn compile(
    folder: &Path,
    built: &Path,
    compiler: &str,
    file: &str,
    shapes: &[&Shape],
) -> Result<PathBuf> {
    let source = folder.join(file);
    write(&source, &c::program(shapes))?;
    let program = source.with_extension(compiler);
    let libraries = folder.join("lib");
    std::fs::create_dir_all(&libraries)?;
    for name in ["liblastwords.so", "liblastwords.so.0"] {
        let link = libraries.join(name);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(built.join("liblastwords_c.so"), &link)?;
    }
    let mut command = Command::new(compiler);
    command
        .args(["-O2", "-w", "-pthread", "-D_GNU_SOURCE", "-I"])
        .arg(rig::root().join("crates/capi/include"));
    command.arg(&source).arg("-L").arg(&libraries).args(["-llastwords", "-lrt"]);
    command.arg(format!("-Wl,-rpath,{}", libraries.display())).arg("-o").arg(&program);
    rig::run_quietly(&mut command)?;
    Ok(program)
}
