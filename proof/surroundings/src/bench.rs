//! The things that the rows use: the application, with and without a recorder, its sessions, and
//! what is cleaned up.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rig::run_quietly;
use rig::scratch::{self, Scratch};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// The programs, and a folder that goes with this.
pub(crate) struct Bench {
    /// The folder of the applications.
    apps: PathBuf,
    pub(crate) lastwords: PathBuf,
    folder: Scratch,
}

/// The application with its recorder.
pub(crate) const APP: &str = "app";
/// The same, loaded by a program that knows nothing of a recorder.
pub(crate) const LATE: &str = "late";
/// The same without a recorder.
pub(crate) const PLAIN: &str = "plain";

/// A session, as `lastwords list --json` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) uuid: String,
    pub(crate) created: u64,
    pub(crate) state: String,
    /// How it ended.
    pub(crate) how: String,
    /// Whether its processes live.
    pub(crate) lives: Vec<String>,
    pub(crate) folder: PathBuf,
    /// Why it cannot be read.
    pub(crate) unreadable: String,
}

/// An application that stays, and what ends it.
pub(crate) struct Staying {
    child: Child,
    pub(crate) pid: u32,
    /// `pid` is a number of our own namespace.
    is_ours: bool,
    ended: bool,
}

impl Bench {
    /// `built` is the folder of the libraries and of `lastwords`, `compiled` that of the
    /// applications, which are compiled if it is missing.
    pub(crate) fn new(root: &Path, built: &Path, compiled: Option<&Path>) -> Result<Self> {
        let lastwords = built.join("lastwords");
        ensure!(lastwords.is_file(), "no program {}", lastwords.display());
        let folder = Scratch::create(Path::new("/dev/shm"), "lastwords-proof-surroundings")?;
        let mut bench = Self { apps: folder.path().to_owned(), lastwords, folder };
        match compiled {
            Some(apps) => {
                bench.apps = apps.canonicalize().with_context(|| apps.display().to_string())?
            }
            None => compile(root, built, &bench.apps)?,
        }
        Ok(bench)
    }

    /// Makes a new folder for sessions or for other things of a row.
    pub(crate) fn place(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.path().join(name);
        scratch::private(&folder)?;
        Ok(folder)
    }

    /// Removes what a row left.
    pub(crate) fn clear(&self, dir: &Path) -> Result<()> {
        let own = |name| self.folder.path().join(name);
        for folder in [dir.to_path_buf(), own("jail"), own("recovered")] {
            if folder.exists() {
                std::fs::remove_dir_all(folder)?;
            }
        }
        Ok(())
    }

    fn app(&self, name: &str, dir: &Path, wrapper: &[&str], words: &[&str]) -> Command {
        let mut command = self.command(&self.apps.join(name), dir, wrapper, words);
        // Not by `$ORIGIN`, which needs /proc.
        command.env("LD_LIBRARY_PATH", &self.apps);
        command
    }

    fn command(&self, program: &Path, dir: &Path, wrapper: &[&str], words: &[&str]) -> Command {
        let mut all = wrapper.iter().map(PathBuf::from).chain([program.to_path_buf()]);
        let mut command = Command::new(all.next().unwrap_or_default());
        command
            .args(all)
            .args(words)
            .env("LASTWORDS_DIR", dir)
            .env_remove("LASTWORDS")
            .current_dir(self.folder.path());
        command.stdin(Stdio::null());
        command
    }

    /// Runs the application to its end, wrapped by `wrapper`; an error if it does not end as it
    /// does without a recorder.
    pub(crate) fn run(&self, dir: &Path, wrapper: &[&str], words: &[&str]) -> Result<()> {
        self.run_as(APP, dir, wrapper, words)
    }

    /// Does the same with the application of this name.
    pub(crate) fn run_as(
        &self,
        name: &str,
        dir: &Path,
        wrapper: &[&str],
        words: &[&str],
    ) -> Result<()> {
        let end = |name| -> Result<(ExitStatus, String)> {
            let out = self.app(name, dir, wrapper, words).output()?;
            Ok((out.status, String::from_utf8_lossy(&out.stderr).into_owned()))
        };
        let (status, said) = end(name)?;
        let (expected, _) = end(PLAIN)?;
        ensure!(
            status == expected,
            "`{wrapper:?} {name} {words:?}` ended with {status}, without a recorder {expected}\n{said}"
        );
        Ok(())
    }

    /// Starts applications that all run at once, and waits for all.
    pub(crate) fn run_at_once(
        &self,
        count: usize,
        dir: &Path,
        wrapper: &[&str],
        words: &[&str],
    ) -> Result<()> {
        let start = || {
            self.app(APP, dir, wrapper, words).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        };
        let mut children = (0..count).map(|_| start()).collect::<std::io::Result<Vec<Child>>>()?;
        children.iter_mut().try_for_each(|child| child.wait().map(drop))?;
        Ok(())
    }

    /// Starts the application, which stays; returns when it has recorded.
    pub(crate) fn stay(&self, dir: &Path, wrapper: &[&str], words: &[&str]) -> Result<Staying> {
        self.stay_as(APP, dir, wrapper, words)
    }

    /// Does the same with the application of this name.
    pub(crate) fn stay_as(
        &self,
        name: &str,
        dir: &Path,
        wrapper: &[&str],
        words: &[&str],
    ) -> Result<Staying> {
        let mut command = self.app(name, dir, wrapper, words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut line)?;
        let pid = line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
        let pid = pid.with_context(|| format!("the application said {line:?}"))?;
        Ok(Staying { child, pid, is_ours: !wrapper.contains(&"--pid"), ended: false })
    }

    /// The sessions of the folder, the oldest first. The reader is wrapped by `wrapper`.
    pub(crate) fn sessions(&self, dir: &Path, wrapper: &[&str]) -> Result<Vec<Session>> {
        let text =
            run_quietly(&mut self.command(&self.lastwords, dir, wrapper, &["list", "--json"]))?;
        let json: serde_json::Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let session = |value: &serde_json::Value| Session {
            uuid: text(&value["uuid"]),
            created: text(&value["created_ns"]).parse().unwrap_or(0),
            state: text(&value["state"]),
            how: text(&value["ended"]["how"]),
            lives: value["processes"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|one| text(&one["life"]))
                .collect(),
            folder: text(&value["folder"]).into(),
            unreadable: text(&value["unreadable"]),
        };
        let mut sessions: Vec<Session> =
            json["sessions"].as_array().into_iter().flatten().map(session).collect();
        sessions.sort_by_key(|session| session.created);
        Ok(sessions)
    }

    /// The only session of the folder.
    pub(crate) fn only(&self, dir: &Path, wrapper: &[&str]) -> Result<Session> {
        let sessions = self.sessions(dir, wrapper)?;
        let [session] = &sessions[..] else { bail!("{} sessions instead of one", sessions.len()) };
        Ok(session.clone())
    }
}

/// Compiles the applications into a folder, with the library beside them under the name by which
/// programs load it.
pub(crate) fn compile(root: &Path, built: &Path, to: &Path) -> Result<()> {
    let source = |name: &str| root.join("proof/surroundings").join(name);
    let compile = |name: &str, of: &str, more: &[&str]| -> Result<()> {
        let mut command = Command::new("cc");
        command
            .args(["-O1", "-g", "-pthread", "-Wall", "-I"])
            .arg(root.join("crates/capi/include"));
        run_quietly(command.arg("-o").arg(to.join(name)).arg(source(of)).args(more)).map(drop)
    };
    let folder = built.display().to_string();
    let recorder = ["-L", &folder, "-llastwords_c"];
    compile(PLAIN, "app.c", &["-DPLAIN"])?;
    compile(APP, "app.c", &recorder)?;
    compile(
        "app.so",
        "app.c",
        &[&["-shared", "-fPIC", "-Dmain=app_main"], &recorder[..]].concat(),
    )?;
    compile(LATE, "late.c", &["-ldl"])?;
    let library = to.join("liblastwords.so.0");
    std::fs::copy(built.join("liblastwords_c.so"), &library)
        .with_context(|| library.display().to_string())?;
    Ok(())
}

impl Session {
    pub(crate) fn is_live(&self) -> bool {
        self.state == "live" && self.how.is_empty() && self.lives.iter().any(|life| life == "alive")
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.state != "live" && self.how == "killed" && self.lives.iter().all(|life| life == "dead")
    }

    /// True if the session ended well.
    pub(crate) fn has_ended(&self) -> bool {
        self.state != "live" && !["killed", ""].contains(&self.how.as_str())
    }
}

impl Staying {
    /// Lets an application go on that waits for SIGUSR1, and returns how it ends.
    pub(crate) fn go_on(&mut self) -> Result<ExitStatus> {
        run_quietly(Command::new("kill").args(["-USR1", &self.pid.to_string()]))?;
        self.ended = true;
        Ok(self.child.wait()?)
    }

    /// Ends the process by SIGKILL, and what wraps it.
    pub(crate) fn kill(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        if self.is_ours {
            run_quietly(Command::new("kill").args(["-KILL", &self.pid.to_string()]))?;
            // A process whose parent is gone is reaped by another.
            wait(|| is_gone(self.pid))?;
        } else {
            self.child.kill()?;
        }
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn is_gone(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z") || stat.contains(") X")
}

/// Waits until `is_so`.
pub(crate) fn wait(is_so: impl Fn() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !is_so() {
        ensure!(begun.elapsed() < PATIENCE, "nothing came for {} s", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
