//! Babeltrace 2.1 or newer, which reads CTF 2, beside the system's own.
//!
//! Where the system's is new enough, [`NAME`] only calls it. Else the package and all that it
//! needs, its C library included, come from a newer suite of the host's own mirror, through apt
//! with a state of its own (the host's packages, sources and lists are neither read nor changed; no
//! root is needed), and are unpacked under `target/tools`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::apt::{self, Apt};
use crate::mirror::{Mirror, System};
use crate::scratch::files_below;
use crate::version::{State, Version, state as probe};
use crate::{make_empty, run_quietly};

/// The name by which the tests call it.
pub const NAME: &str = "babeltrace2.1";
const LEAST: Version = (2, 1, 0);

/// By system: the suite that has it, and the components to look in.
const SUITES: &[(&str, &str, &str)] =
    &[("debian", "trixie", "main"), ("ubuntu", "resolute", "main universe")];

/// Where it is laid out.
fn folder() -> PathBuf {
    crate::tools()
}

/// Found, with its version, or not.
pub fn state() -> State {
    let wrapper = folder().join("bin").join(NAME);
    probe(&format!("'{}' --version", wrapper.display()), Some(LEAST))
}

/// Lays it out, unless it is there.
pub fn install() -> Result<()> {
    if state().is_found() {
        return Ok(());
    }
    let folder = folder();
    std::fs::create_dir_all(folder.join("bin")).with_context(|| folder.display().to_string())?;
    if probe("babeltrace2 --version", Some(LEAST)).is_found() {
        write_wrapper(&folder, SYSTEMS_OWN)?;
    } else {
        let unpacked = unpack(&folder)
            .context("no Babeltrace 2.1 or newer: put one on the path as `babeltrace2`")?;
        write_wrapper(&folder, &wrapper(&unpacked)?)?;
    }
    prove(&folder.join("bin").join(NAME))
}

const SYSTEMS_OWN: &str = "#!/bin/sh\n# Made by `cargo xtask setup`: the system's own is new enough.\nexec babeltrace2 \"$@\"\n";

/// Fetches and unpacks the packages of the newer suite; returns the folder that stands for its
/// root.
fn unpack(folder: &Path) -> Result<PathBuf> {
    let system = System::of_host()?;
    let Some((_, suite, components)) = SUITES.iter().find(|(id, ..)| *id == system.id) else {
        bail!("`{}` is neither Debian nor Ubuntu", system.id);
    };
    let source = Mirror::of_host(&system)?.source(suite, components);
    println!("laying out Babeltrace 2.1 from {suite} in {}", folder.display());
    let apt = Apt::open(&folder.join("apt"), &source, &apt::architecture()?)?;
    apt.update()?;
    let unpacked = folder.join("babeltrace-2.1");
    make_empty(&unpacked)?;
    for package in apt.with_all_they_need(&["babeltrace2"])? {
        run_quietly(Command::new("dpkg").arg("-x").arg(&package).arg(&unpacked))?;
    }
    apt.remove()?;
    Ok(unpacked)
}

/// The script that runs the unpacked program on its own C library and with its own plug-ins alone.
fn wrapper(unpacked: &Path) -> Result<String> {
    let files = files_below(unpacked)?;
    let relative = |path: &Path| path.strip_prefix(unpacked).unwrap_or(path).display().to_string();
    let named = |begin: &str| {
        let is =
            |p: &&PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(begin));
        files.iter().find(is).with_context(|| format!("{}: no {begin}* in it", unpacked.display()))
    };
    let loader = named("ld-linux")?;
    let plugins = named("babeltrace-plugin-ctf.so")?.parent().unwrap_or(unpacked);
    let libraries = named("libbabeltrace2.so")?.parent().unwrap_or(unpacked);
    let c_library = loader.parent().unwrap_or(unpacked);
    Ok(format!(
        "#!/bin/sh\n\
         # Made by `cargo xtask setup`: Babeltrace of a newer suite, on its own C library.\n\
         root=$(cd \"$(dirname \"$(readlink -f \"$0\")\")/../{}\" && pwd)\n\
         BABELTRACE_PLUGIN_PATH=$root/{}\n\
         LIBBABELTRACE2_PLUGIN_PROVIDER_DIR=$root/no-providers\n\
         export BABELTRACE_PLUGIN_PATH LIBBABELTRACE2_PLUGIN_PROVIDER_DIR\n\
         exec \"$root/{}\" --library-path \"$root/{}:$root/{}\" \\\n    \
         \"$root/usr/bin/babeltrace2\" --omit-system-plugin-path --omit-home-plugin-path \"$@\"\n",
        unpacked.file_name().unwrap_or_default().to_string_lossy(),
        relative(plugins),
        relative(loader),
        relative(c_library),
        relative(libraries),
    ))
}

fn write_wrapper(folder: &Path, text: &str) -> Result<()> {
    let path = folder.join("bin").join(NAME);
    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Has it read the smallest CTF 2 trace: one stream of two events, a byte each.
fn prove(program: &Path) -> Result<()> {
    let trace = folder().join("proof");
    make_empty(&trace)?;
    std::fs::write(trace.join("metadata"), CTF2)?;
    std::fs::write(trace.join("stream"), [7, 9])?;
    let printed = run_quietly(Command::new(program).arg(&trace))?;
    let values: Vec<&str> =
        printed.lines().filter_map(|l| l.split("x = ").nth(1)?.split(' ').next()).collect();
    if values != ["7", "9"] {
        bail!(
            "{}: read {printed:?} in {}, expected the events 7 and 9",
            program.display(),
            trace.display()
        );
    }
    std::fs::remove_dir_all(&trace)?;
    Ok(())
}

const CTF2: &str = concat!(
    "\u{1e}{\"type\":\"preamble\",\"version\":2}\n",
    "\u{1e}{\"type\":\"data-stream-class\"}\n",
    "\u{1e}{\"type\":\"event-record-class\",\"name\":\"byte\",\"payload-field-class\":{\"type\":\"structure\",",
    "\"member-classes\":[{\"name\":\"x\",\"field-class\":{\"type\":\"fixed-length-unsigned-integer\",\"length\":8,",
    "\"byte-order\":\"little-endian\",\"alignment\":8}}]}}\n",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapper_needs_what_it_names() {
        let empty = std::env::temp_dir().join(format!("lastwords-xtask-{}", std::process::id()));
        make_empty(&empty).unwrap();
        let error = wrapper(&empty).unwrap_err().to_string();
        std::fs::remove_dir_all(&empty).unwrap();
        assert!(error.contains("no ld-linux* in it"), "{error}");
    }
}
