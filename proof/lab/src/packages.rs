//! Debian's packages for the guests: kernels, busybox, and programs with all the libraries that
//! they need.
//!
//! Each is fetched once and kept unpacked under `target/lab`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Arch;
use rig::apt::{self, Apt};
use rig::mirror::{Mirror, System};
use rig::scratch::files_below;
use rig::{make_empty, run_quietly};

/// Where a package is looked for, in this order.
const SUITES: &[&str] =
    &["bookworm", "trixie", "trixie-backports", "sid", "experimental", "bullseye-security"];

/// The packages that were fetched, and their sources.
pub(super) struct Store {
    folder: PathBuf,
}

/// An unpacked kernel.
pub(super) struct Kernel {
    /// As `uname -r` prints it.
    pub(super) release: String,
    /// The image that a boot loader loads.
    pub(super) image: PathBuf,
    /// The folder of its modules.
    modules: PathBuf,
}

/// A program on its own C library, as a package of some suite has it.
pub(super) struct Program {
    /// The folder that stands for its root.
    pub(super) root: PathBuf,
    program: PathBuf,
}

impl Store {
    /// The store of this repository.
    pub(super) fn open() -> Result<Self> {
        let folder = rig::root().join("target/lab");
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self { folder })
    }

    /// Where runs are kept.
    pub(super) fn runs(&self) -> PathBuf {
        self.folder.join("runs")
    }

    /// The newest kernel of a series that has been fetched.
    pub(super) fn kept(&self, want: &str, arch: Arch) -> Result<Option<Kernel>> {
        let folder = newest_kept(&self.folder.join("kernels"), want, arch.flavour())?;
        folder.map(|folder| Kernel::find(&folder)).transpose()
    }

    /// The kernel that `want` names: a `.deb`, a package, or the beginning of a version.
    pub(super) fn kernel(&self, want: &str, arch: Arch, flavour: Option<&str>) -> Result<Kernel> {
        let flavour = flavour.unwrap_or(arch.flavour());
        if want.ends_with(".deb") {
            return self.kernel_of_files(Path::new(want));
        }
        let named = want.starts_with("linux-");
        let kept = self.folder.join("kernels");
        if let Some(folder) = newest_kept(&kept, want, flavour)? {
            return Kernel::find(&folder);
        }
        let begin = if named { want.to_string() } else { format!("linux-image-{want}") };
        for suite in SUITES {
            let apt = self.apt(suite, arch.debian())?;
            let names = apt.names(&begin)?;
            let fits = |n: &&String| if named { *n == want } else { fits(n, &begin, flavour) };
            let Some(name) = names.iter().filter(fits).max_by_key(|n| version_key(n)) else {
                continue;
            };
            eprintln!("fetching {name} from {suite}");
            return self.fetch_kernel(&apt, name).with_context(|| format!("{name} from {suite}"));
        }
        bail!(
            "no package {begin}*-{flavour} in Debian's {}: name another with --kernel",
            SUITES.join(", ")
        )
    }

    /// A static busybox for the guest.
    pub(super) fn busybox(&self, arch: Arch) -> Result<PathBuf> {
        let root = self.folder.join(format!("busybox-{}", arch.debian()));
        let at = ["bin/busybox", "usr/bin/busybox"].map(|p| root.join(p));
        if !at.iter().any(|p| p.is_file()) {
            let packages = self.folder.join("packages");
            let file = self.apt(SUITES[0], arch.debian())?.download("busybox-static", &packages)?;
            unpack(&[file], &root)?;
        }
        at.into_iter()
            .find(|p| p.is_file())
            .with_context(|| format!("{}: no busybox in it", root.display()))
    }

    /// [`Self::program`] needs to fetch nothing.
    pub(super) fn has(&self, package: &str, suite: &str, program: &str) -> bool {
        self.folder.join(format!("{package}-{suite}")).join(program).is_file()
    }

    /// A program of a suite, with its libraries.
    pub(super) fn program(&self, package: &str, suite: &str, program: &str) -> Result<Program> {
        let root = self.folder.join(format!("{package}-{suite}"));
        if !self.has(package, suite, program) {
            eprintln!("fetching {package} from {suite}");
            let apt = self.apt(suite, &apt::architecture()?)?;
            unpack(&apt.with_all_they_need(&[package])?, &root)
                .with_context(|| format!("{package} from {suite}"))?;
        }
        Ok(Program { program: root.join(program), root })
    }

    /// Adds one package of another architecture, and of the version that the package of this one
    /// has, to an unpacked root.
    pub(super) fn add(&self, package: &str, suite: &str, arch: Arch, root: &Path) -> Result<()> {
        let mark = root.join(format!("{package}-{}", arch.debian()));
        if mark.exists() {
            return Ok(());
        }
        eprintln!("fetching {package} of {} from {suite}", arch.debian());
        let file =
            self.apt(suite, arch.debian())?.download(package, &self.folder.join("packages"))?;
        run_quietly(Command::new("dpkg-deb").arg("-x").arg(&file).arg(root))?;
        std::fs::write(&mark, name_of(&file)).with_context(|| mark.display().to_string())?;
        std::fs::remove_file(&file).with_context(|| file.display().to_string())
    }

    /// A folder of the store.
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The suite to build modules for a kernel with: the first that has its headers, or else its
    /// image.
    pub(super) fn suite_of_headers(&self, release: &str) -> Result<&'static str> {
        for package in [format!("linux-headers-{release}"), format!("linux-image-{release}")] {
            for suite in SUITES {
                let names = self.apt(suite, &apt::architecture()?)?.names(&package)?;
                if names.contains(&package) {
                    return Ok(suite);
                }
            }
        }
        bail!("no package linux-headers-{release} in Debian's {}", SUITES.join(", "))
    }

    /// A kernel's headers and other packages, with all that they need, of a suite and the one that
    /// it adds to.
    pub(super) fn headers(
        &self,
        suite: &str,
        release: &str,
        others: &[&str],
    ) -> Result<Vec<PathBuf>> {
        let base = suite.strip_suffix("-backports");
        let suites = base.map_or(suite.to_string(), |base| format!("{base} {suite}"));
        let apt = self.apt(&suites, &apt::architecture()?)?;
        let headers = format!("linux-headers-{release}");
        if apt.names(&headers)?.contains(&headers) {
            return apt.with_all_they_need(&[&[headers.as_str()], others].concat());
        }
        let (dropped, needed) = self.dropped(&apt, release)?;
        let wanted: Vec<&str> =
            needed.iter().map(String::as_str).chain(others.iter().copied()).collect();
        Ok([apt.with_all_they_need(&wanted)?, dropped].concat())
    }

    /// A package alone.
    pub(super) fn package(&self, suite: &str, name: &str) -> Result<PathBuf> {
        let base = suite.strip_suffix("-backports").unwrap_or(suite);
        self.apt(base, &apt::architecture()?)?.download(name, &self.folder.join("packages"))
    }

    /// Headers of a kernel whose image alone is still in the lists of its suite: backports keep
    /// signed images longer than what was built with them, and the pool keeps both. The files, and
    /// what else they need.
    fn dropped(&self, apt: &Apt, release: &str) -> Result<(Vec<PathBuf>, Vec<String>)> {
        let (pool, version) = apt.place(&format!("linux-image-{release}"))?;
        let (mut files, mut needed) = (Vec::new(), Vec::new());
        let mut wanted = vec![format!("linux-headers-{release}")];
        while let Some(name) = wanted.pop() {
            let architecture =
                if name.ends_with("-common") { "all".to_string() } else { apt::architecture()? };
            let file = format!("{name}_{version}_{architecture}.deb");
            eprintln!("fetching {name}, which is in no list any more: nothing signs it");
            let to = self.folder.join("packages").join(&file);
            apt.fetch(&format!("{pool}/main/l/linux/{file}"), &to)?;
            let depends = run_quietly(Command::new("dpkg-deb").arg("-f").arg(&to).arg("Depends"))?;
            let (parts, others) = header_parts(&depends);
            wanted.extend(parts);
            needed.extend(others);
            files.push(to);
        }
        Ok((files, needed))
    }

    /// Lists of a suite, or of several with blanks between; fetched where they never were.
    fn apt(&self, suite: &str, architecture: &str) -> Result<Apt> {
        let system = System::of_host()?;
        let mirror =
            if system.id == "debian" { Mirror::of_host(&system)? } else { Mirror::of_debian()? };
        let folder = self.folder.join(format!("apt-{}-{architecture}", suite.replace(' ', "+")));
        let apt = Apt::open(&folder, &mirror.source(suite, "main"), architecture)?;
        if !apt.is_updated() {
            eprintln!("fetching the package lists of {suite} ({architecture})");
            apt.update().with_context(|| format!("package lists of {suite}"))?;
        }
        Ok(apt)
    }

    fn fetch_kernel(&self, apt: &Apt, name: &str) -> Result<Kernel> {
        let packages = self.folder.join("packages");
        let mut files = vec![apt.download(name, &packages)?];
        // Newer packages are in parts: the image and the modules.
        for part in kernel_parts(&files[0])? {
            files.push(apt.download(&part, &packages)?);
        }
        let root = self.folder.join("kernels").join(name);
        unpack(&files, &root)?;
        for file in files {
            std::fs::remove_file(file)?;
        }
        Kernel::find(&root)
    }

    /// Unpacks a `.deb` and the parts that it names, which must lie beside it.
    fn kernel_of_files(&self, file: &Path) -> Result<Kernel> {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let root = self.folder.join("kernels").join(stem.split('_').next().unwrap_or(&stem));
        if !root.exists() {
            let folder = file.parent().unwrap_or(Path::new("."));
            let mut files = vec![file.to_path_buf()];
            for part in kernel_parts(file)? {
                let begin = format!("{part}_");
                let entries = std::fs::read_dir(folder)?.flatten().map(|e| e.path());
                let is = |p: &PathBuf| {
                    p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&begin))
                };
                let Some(found) = entries.into_iter().find(is) else {
                    bail!("{}: it needs {begin}*.deb, which is not beside it", file.display())
                };
                files.push(found);
            }
            unpack(&files, &root)?;
        }
        Kernel::find(&root)
    }
}

/// Debian's package of `program`, made in `to` by the rig `dist`.
pub(super) fn package_of_debian(program: &Path, to: &Path) -> Result<()> {
    let dist = rig::programs::rig("dist")?;
    run_quietly(Command::new(dist).arg("for-guest").arg(program).arg(to)).map(drop)
}

/// Names of the packages with the kernel's image and modules, where it is in parts.
fn kernel_parts(file: &Path) -> Result<Vec<String>> {
    let depends = run_quietly(Command::new("dpkg-deb").arg("-f").arg(file).arg("Depends"))?;
    let names = depends.split([',', '|']).filter_map(|d| d.split_whitespace().next());
    let part = |n: &&str| n.starts_with("linux-binary-") || n.starts_with("linux-modules-");
    Ok(names.filter(part).map(str::to_string).collect())
}

/// Returns the dependencies of a kernel's headers: names of their parts, and of packages that are
/// not of the kernel.
fn header_parts(depends: &str) -> (Vec<String>, Vec<String>) {
    let names =
        depends.split(',').filter_map(|d| d.trim().split([' ', ':']).next()).map(str::to_string);
    let is_part =
        |name: &String| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-");
    let (parts, others): (Vec<_>, Vec<_>) = names.partition(is_part);
    (parts, others.into_iter().filter(|name| !name.starts_with("linux-")).collect())
}

/// A package's name is `begin`, then the rest of a version, then the flavour.
fn fits(name: &str, begin: &str, flavour: &str) -> bool {
    let rest = name.strip_prefix(begin).and_then(|r| r.strip_suffix(flavour)?.strip_suffix('-'));
    // `6.1` is not `6.12`; `+deb13-cloud` is not `+deb13`.
    rest.is_some_and(|r| {
        r.starts_with(['.', '-', '+']) && !r.contains("cloud") && !r.contains("-rt")
    })
}

/// Versions in their order: numbers as numbers.
fn version_key(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

/// The newest unpacked kernel that fits.
fn newest_kept(folder: &Path, want: &str, flavour: &str) -> Result<Option<PathBuf>> {
    let begin = format!("linux-image-{want}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == want || fits(&name, &begin, flavour) {
            found.push((version_key(&name), entry.path()));
        }
    }
    Ok(found.into_iter().max().map(|(_, path)| path))
}

/// Unpacks packages into one folder, which is there whole or not at all.
fn unpack(files: &[PathBuf], root: &Path) -> Result<()> {
    let part = root.with_extension("part");
    make_empty(&part)?;
    for file in files {
        run_quietly(Command::new("dpkg-deb").arg("-x").arg(file).arg(&part))?;
    }
    if root.exists() {
        std::fs::remove_dir_all(root)?;
    }
    std::fs::rename(&part, root).with_context(|| root.display().to_string())
}

impl Kernel {
    /// Finds the parts in an unpacked package.
    fn find(root: &Path) -> Result<Self> {
        let modules = ["lib/modules", "usr/lib/modules"]
            .map(|p| root.join(p))
            .into_iter()
            .find(|p| p.is_dir());
        let modules = modules.with_context(|| format!("{}: no modules in it", root.display()))?;
        let entry = std::fs::read_dir(&modules)?
            .next()
            .with_context(|| format!("{}: empty", modules.display()))??;
        let release = entry.file_name().to_string_lossy().into_owned();
        let places = [root.join(format!("boot/vmlinuz-{release}")), entry.path().join("vmlinuz")];
        let image = places.into_iter().find(|p| p.is_file());
        let image =
            image.with_context(|| format!("{}: no vmlinuz of {release} in it", root.display()))?;
        Ok(Self { release, image, modules: entry.path() })
    }

    /// Copies the modules into the tree of a system whose `/lib` is in `/usr`.
    pub(super) fn install_modules(&self, tree: &Path) -> Result<()> {
        let to = tree.join("usr/lib/modules");
        std::fs::create_dir_all(&to).with_context(|| to.display().to_string())?;
        run_quietly(Command::new("cp").arg("-a").arg(&self.modules).arg(&to)).map(drop)
    }

    /// Adds a module behind those that it needs, where they are not built in or there already.
    pub(super) fn add_module(&self, name: &str, to: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
        if to.iter().any(|(known, _)| known == name) {
            return Ok(());
        }
        // Names of modules have `_`, their files may have `-`.
        let found = match self.module(name)? {
            Some(module) => Some(module),
            None => self.module(&name.replace('_', "-"))?,
        };
        let Some(module) = found else { return Ok(()) };
        for needed in needs(&module) {
            self.add_module(&needed, to)?;
        }
        to.push((name.to_string(), module));
        Ok(())
    }

    /// A module's bytes, unpacked; none where it is built in.
    pub(super) fn module(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let files = files_below(&self.modules)?;
        let begin = format!("{name}.ko");
        let is =
            |p: &&PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&begin));
        let Some(path) = files.iter().find(is) else { return Ok(None) };
        let unpacker = match path.extension().and_then(OsStr::to_str) {
            Some("xz") => "xz",
            Some("zst") => "zstd",
            _ => return Ok(Some(std::fs::read(path)?)),
        };
        let output = Command::new(unpacker).arg("-dc").arg(path).output();
        let output = output.with_context(|| format!("{unpacker}, for {}", path.display()))?;
        if !output.status.success() {
            bail!("{unpacker} -dc {}: {}", path.display(), output.status);
        }
        Ok(Some(output.stdout))
    }
}

/// The modules that a module names in its `.modinfo`: `depends=a,b`.
fn needs(module: &[u8]) -> Vec<String> {
    let words = module
        .split(|b| *b == 0)
        .filter_map(|text| std::str::from_utf8(text.strip_prefix(b"depends=")?).ok());
    words
        .flat_map(|list| list.split(','))
        .filter(|name| !name.is_empty())
        .map(str::to_string)
        .collect()
}

impl Program {
    /// A program in a folder that stands for the root of a system.
    pub(super) fn at(root: &Path, program: &str) -> Self {
        Self { root: root.to_path_buf(), program: root.join(program) }
    }

    /// Runs it with its own libraries.
    pub(super) fn command(&self) -> Result<Command> {
        let mut command = Command::new(self.loader()?);
        command.arg("--library-path").arg(self.library_path()).arg(&self.program);
        Ok(command)
    }

    /// The program, its loader and the libraries that it needs: the path that each has in the
    /// guest, and its file.
    pub(super) fn files(&self) -> Result<Vec<(String, PathBuf)>> {
        let mut list = Command::new(self.loader()?);
        list.arg("--library-path").arg(self.library_path()).arg("--list").arg(&self.program);
        let printed = run_quietly(&mut list)?;
        let mut files = vec![
            (format!("bin/{}", name_of(&self.program)), self.program.clone()),
            ("lib64/ld-linux-x86-64.so.2".to_string(), self.loader()?),
        ];
        let libraries =
            printed.lines().filter_map(|l| l.split("=> ").nth(1)?.split_whitespace().next());
        for library in libraries.map(PathBuf::from).filter(|l| !name_of(l).starts_with("ld-linux"))
        {
            files.push((format!("lib/{}", name_of(&library)), library));
        }
        Ok(files)
    }

    fn loader(&self) -> Result<PathBuf> {
        let is = |path: &PathBuf| name_of(path).starts_with("ld-linux") && !path.is_symlink();
        let found = files_below(&self.root)?.into_iter().find(is);
        found.with_context(|| format!("{}: no ld-linux* in it", self.root.display()))
    }

    fn library_path(&self) -> String {
        let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
        // systemd's own programs share a library in a folder of its own.
        let places = [
            format!("lib/{triplet}"),
            format!("usr/lib/{triplet}"),
            format!("usr/lib/{triplet}/systemd"),
        ];
        places.map(|p| self.root.join(p).display().to_string()).join(":")
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_headers_depend_on() {
        let depends = "gcc-14-for-host, linux-base (>= 4.12~), linux-headers-6.18.15+deb13-common (= 6.18.15-1~bpo13+1), \
                       linux-kbuild-6.18.15+deb13, python3:any\n";
        let (parts, others) = header_parts(depends);
        assert_eq!(parts, ["linux-headers-6.18.15+deb13-common", "linux-kbuild-6.18.15+deb13"]);
        assert_eq!(others, ["gcc-14-for-host", "python3"]);
    }

    #[test]
    fn a_series_is_not_another() {
        let image =
            |want: &str, name: &str| fits(name, &format!("linux-image-{want}"), "cloud-amd64");
        assert!(image("6.1", "linux-image-6.1.0-56-cloud-amd64"));
        assert!(image("6.12", "linux-image-6.12.107+deb13-cloud-amd64"));
        assert!(!image("6.1", "linux-image-6.12.107+deb13-cloud-amd64"));
        assert!(!image("6.1", "linux-image-6.1.0-56-cloud-amd64-unsigned"));
        assert!(!fits("linux-image-6.1.0-56-cloud-amd64", "linux-image-6.1", "amd64"));
    }

    #[test]
    fn modules_name_what_they_need() {
        assert_eq!(needs(b"license=GPL\0depends=libcrc32c,jbd2\0name=x\0"), ["libcrc32c", "jbd2"]);
        assert!(needs(b"depends=\0").is_empty());
    }

    #[test]
    fn versions_are_numbers() {
        assert!(version_key("linux-image-7.2.13+deb14") > version_key("linux-image-7.2.9+deb13"));
    }
}
