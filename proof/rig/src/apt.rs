//! apt with a state of its own: the host's packages, sources and lists are neither read nor
//! changed, and no root is needed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{make_empty, run_quietly};

/// One source of packages, for one architecture, with its lists in a folder of its own.
pub struct Apt {
    folder: PathBuf,
    options: Vec<String>,
}

impl Apt {
    /// Makes the folder and writes `source` (deb822) into it. The lists of an earlier time stay.
    pub fn open(folder: &Path, source: &str, architecture: &str) -> Result<Self> {
        for part in ["state/lists/partial", "cache/archives/partial", "sources", "preferences"] {
            let part = folder.join(part);
            std::fs::create_dir_all(&part).with_context(|| part.display().to_string())?;
        }
        std::fs::write(folder.join("status"), "")?;
        std::fs::write(folder.join("sources/only.sources"), source)?;
        Ok(Self { folder: folder.to_path_buf(), options: options(folder, architecture) })
    }

    /// Fetches the lists.
    pub fn update(&self) -> Result<()> {
        run_quietly(self.get().args(["-q", "update"])).map(drop)
    }

    /// The lists have been fetched at some time.
    pub fn is_updated(&self) -> bool {
        let lists =
            std::fs::read_dir(self.folder.join("state/lists")).into_iter().flatten().flatten();
        lists.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().contains("Packages"))
    }

    /// Names of packages that begin so.
    pub fn names(&self, begin: &str) -> Result<Vec<String>> {
        let printed =
            run_quietly(Command::new("apt-cache").args(&self.options).args(["pkgnames", begin]))?;
        Ok(printed.split_whitespace().map(str::to_string).collect())
    }

    /// Fetches one package alone into `to`; returns the file.
    pub fn download(&self, package: &str, to: &Path) -> Result<PathBuf> {
        let parent = to.parent().unwrap_or(to);
        let fetched = parent.join(format!(".{package}"));
        make_empty(&fetched)?;
        run_quietly(self.get().current_dir(&fetched).args(["-q", "download", package]))?;
        let file = packages(&fetched)?.pop();
        let Some(file) = file else { bail!("apt-get download {package}: no package came") };
        std::fs::create_dir_all(to).with_context(|| to.display().to_string())?;
        let at = to.join(file.file_name().unwrap_or_default());
        std::fs::rename(&file, &at).with_context(|| at.display().to_string())?;
        std::fs::remove_dir_all(&fetched)?;
        Ok(at)
    }

    /// Where the archive's pool is that has a package, and the package's version.
    pub fn place(&self, package: &str) -> Result<(String, String)> {
        let printed = run_quietly(self.get().args(["-q", "download", "--print-uris", package]))?;
        let uri = printed.lines().find_map(|line| line.strip_prefix('\'')?.split('\'').next());
        let pool = uri.and_then(|uri| Some(format!("{}/pool", uri.split("/pool/").next()?)));
        let shown =
            Command::new("apt-cache").args(&self.options).args(["show", package]).output()?.stdout;
        let shown = String::from_utf8_lossy(&shown).into_owned();
        let version = shown.lines().find_map(|line| line.strip_prefix("Version: "));
        let (Some(pool), Some(version)) = (pool, version) else { bail!("{package}: in no pool") };
        Ok((pool, version.to_string()))
    }

    /// Fetches a file of an archive that is in no list.
    pub fn fetch(&self, uri: &str, to: &Path) -> Result<()> {
        let helper = "/usr/lib/apt/apt-helper";
        run_quietly(Command::new(helper).args(&self.options).arg("download-file").arg(uri).arg(to))
            .map(drop)
    }

    /// Fetches packages and all that they depend on, the C library included; returns the files.
    pub fn with_all_they_need(&self, wanted: &[&str]) -> Result<Vec<PathBuf>> {
        make_empty(&self.folder.join("cache/archives"))?;
        std::fs::create_dir_all(self.folder.join("cache/archives/partial"))?;
        let install = ["-q", "-y", "--no-install-recommends", "--download-only", "install"];
        run_quietly(self.get().args(install).args(wanted))?;
        packages(&self.folder.join("cache/archives"))
    }

    /// Removes it all.
    pub fn remove(self) -> Result<()> {
        std::fs::remove_dir_all(&self.folder).with_context(|| self.folder.display().to_string())
    }

    fn get(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.args(&self.options);
        command
    }
}

/// The host's architecture by Debian's name.
pub fn architecture() -> Result<String> {
    Ok(run_quietly(Command::new("dpkg").arg("--print-architecture"))?.trim().to_string())
}

/// The packages in a folder.
fn packages(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "deb") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Keeps apt in `folder`: nothing installed, one source, its own lists. The host's trusted keys and
/// proxies still count.
fn options(folder: &Path, architecture: &str) -> Vec<String> {
    let at = |part: &str| folder.join(part).display().to_string();
    let options = [
        format!("Dir::State={}", at("state")),
        format!("Dir::State::status={}", at("status")),
        format!("Dir::Cache={}", at("cache")),
        "Dir::Etc::sourcelist=/dev/null".into(),
        format!("Dir::Etc::sourceparts={}", at("sources")),
        "Dir::Etc::preferences=/dev/null".into(),
        format!("Dir::Etc::preferencesparts={}", at("preferences")),
        format!("APT::Architecture={architecture}"),
        format!("APT::Architectures={architecture}"),
        "APT::Sandbox::User=".into(),
        "APT::Keep-Downloaded-Packages=true".into(),
        "Acquire::Languages=none".into(),
    ];
    options.into_iter().flat_map(|option| ["-o".to_string(), option]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apt_is_kept_in_its_folder() {
        let options = options(Path::new("/a"), "amd64");
        assert!(options.contains(&"Dir::State=/a/state".to_string()));
        assert!(
            options.iter().skip(1).step_by(2).all(|o| !o.contains("=/etc") && !o.contains("=/var"))
        );
    }
}
