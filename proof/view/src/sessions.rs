//! Pages of sessions: of a process that was killed, and of one that aborted in a request.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Run, service};

impl Run<'_> {
    /// Judges the page of a session with spans, whose process was killed.
    pub(super) fn session(&self) -> Result<()> {
        let program = rig::programs::debug()?.join("tokio-app");
        let sessions = self.folder.join("sessions");
        std::fs::create_dir_all(&sessions)?;
        let mut app =
            Command::new(program).env("LASTWORDS_DIR", &sessions).stdout(Stdio::null()).spawn()?;
        std::thread::sleep(std::time::Duration::from_millis(600));
        app.kill()?;
        app.wait()?;
        let (page, _) = self.page(Path::new("tokio-app"), "session", &[])?;
        self.open(&page, "session")?;
        // Spans of a process that was killed were open at the end.
        self.browser.wait("!window.lastwords.texts.isReading")?;
        let ending = self.text("#ending")?;
        for open in ["server", "task=3"] {
            ensure!(ending.contains(open), "no {open} at the end: {ending}");
        }
        let died = self.text("#died")?;
        ensure!(died.contains("tokio-app: killed"), "died: {died}");
        let labels = "return window.lastwords.timeline.rows.map((row) => row.label)";
        let labels = self.browser.ask(labels)?.to_string();
        ensure!(labels.contains("Spans") && labels.contains("tokio-rt-worker"), "rows: {labels}");
        // The spans `batch` lie in `server`: their lanes are below.
        let nested = "const { data } = window.lastwords; const { head, slices } = data; const depth = (name) => [...slices.tracks.keys()] \
            .filter((slice) => head.labels[slices.labels[slice]] === name).map((slice) => head.tracks[slices.tracks[slice]].depth); \
            return [Math.min(...depth('tokio_app::server')), Math.min(...depth('tokio_app::batch'))]";
        let depths = self.browser.ask(nested)?;
        ensure!(depths[0].as_u64() < depths[1].as_u64(), "lanes: {depths}");
        self.browser.press("t", 0)?;
        // Times count from the death, whose word the page has.
        let script = "const { times, data } = window.lastwords; const { time, word } = data.head.deaths[0]; \
            return time === null || (String(times.exact(times.end)) === time && times.before === `before the ${word}`)";
        ensure!(self.browser.ask(script)? == json!(true), "times do not count from the death");
        self.picture("session before the end")?;
        Ok(())
    }

    /// Runs the service until it aborts.
    fn serve(&self, how: &str) -> Result<()> {
        let mut service = Command::new(std::env::current_exe()?);
        service
            .env(service::ENV, how)
            .env("LASTWORDS_DIR", self.folder.join("sessions"))
            .env("RUST_BACKTRACE", "0")
            .stderr(Stdio::null());
        let status = service.status()?;
        ensure!(!status.success(), "the service ended well");
        Ok(())
    }

    /// Judges the page of a service that survived a panic and aborted in a request.
    pub(super) fn death(&self) -> Result<()> {
        self.serve("1")?;
        let (page, _) = self.page(Path::new("orders"), "death", &[])?;
        self.open(&page, "death")?;
        self.script(include_str!("death.js"))?;
        self.browser.wait("!window.lastwords.texts.isReading")?;
        self.picture("death")?;
        self.flame("spans", &json!(null))?;
        self.show_flame("flame of spans")?;
        self.serve(service::ENTERED)?;
        let (page, _) = self.page(Path::new(service::ENTERED), "entered", &[])?;
        self.open(&page, "entered")?;
        self.flame("spans", &json!(null))?;
        self.flame("thread", &json!(null))?;
        // Errors are in two channels: `convert` and `view` have them once, unless all are asked for.
        let all = ["--channel", "*"];
        let (page, _) = self.page(Path::new("orders"), "channels", &all)?;
        self.open(&page, "all channels")?;
        self.chosen(Path::new("orders"), &all, &service::WORDS, 60)
    }
}
