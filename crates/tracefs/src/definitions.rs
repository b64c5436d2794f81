//! Events that a recording defines: probes of kernel functions (kprobes, fprobes), tracepoints
//! (tprobes), other events (eprobes) and user-space functions (uprobes), and synthetic events.
//!
//! They exist once for all instances, in the file `dynamic_events`. Probes get a group that no one
//! else uses, so that exactly they can be removed again, also after the recorder was killed.

use crate::elf;
use crate::instance::{Instance, KernelSays};
use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

/// The kind of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefinitionKind {
    /// A probe in the kernel: `p:NAME SYMBOL[+OFFSET] [ARGS]` or `r:NAME SYMBOL [ARGS]`.
    Kprobe,
    /// A probe in a program or library: `p:NAME PLACE [ARGS]` or `r:NAME PLACE [ARGS]`. PLACE is
    /// `PATH:OFFSET`, `PATH:FUNCTION` or, for `p`, a static probe `PATH:PROVIDER:PROBE`, or
    /// `PATH::PROBE` of any provider.
    Uprobe,
    /// A probe of a kernel function by ftrace: `[NAME] FUNCTION[%return] [ARGS]`.
    Fprobe,
    /// A probe of a tracepoint: `NAME TRACEPOINT [ARGS]`.
    Tprobe,
    /// An event that is made of another: `NAME SYSTEM.EVENT [ARGS] [if FILTER]`.
    Eprobe,
    /// A synthetic event: `NAME FIELD; …`.
    Synthetic,
}

impl DefinitionKind {
    /// Returns true if the kernel supports such definitions: it has a file for them, or describes
    /// them in its README.
    fn is_supported(self, top: &Instance) -> bool {
        let has = |file| top.path().join(file).exists();
        match self {
            Self::Kprobe => has("kprobe_events"),
            Self::Uprobe => has("uprobe_events"),
            Self::Synthetic => has("synthetic_events"),
            Self::Fprobe | Self::Tprobe | Self::Eprobe => {
                let form = self.letter().map(|letter| format!("{letter}[:["));
                let help = top.read("README").unwrap_or_default();
                form.is_some_and(|form| help.lines().any(|line| line.trim().starts_with(&form)))
            }
        }
    }

    /// Returns what a kernel needs for such definitions.
    fn needs(self) -> &'static str {
        match self {
            Self::Kprobe => "kprobe events: they need CONFIG_KPROBE_EVENTS",
            Self::Uprobe => "uprobe events: they need CONFIG_UPROBE_EVENTS",
            Self::Synthetic => "synthetic events: they need CONFIG_SYNTH_EVENTS",
            Self::Fprobe => "fprobe events: they need Linux 6.4 and CONFIG_FPROBE_EVENTS",
            Self::Tprobe => "tracepoint probes: they need Linux 6.4 and CONFIG_FPROBE_EVENTS",
            Self::Eprobe => {
                "event probes: they need Linux 5.15 and CONFIG_EPROBE_EVENTS, which older kernels call CONFIG_PROBE_EVENTS"
            }
        }
    }

    /// Returns the letter before the name, for kinds that have one alone.
    fn letter(self) -> Option<&'static str> {
        match self {
            Self::Kprobe | Self::Uprobe => None,
            Self::Synthetic => Some("s"),
            Self::Fprobe => Some("f"),
            Self::Tprobe => Some("t"),
            Self::Eprobe => Some("e"),
        }
    }

    fn option(self) -> &'static str {
        match self {
            Self::Kprobe => "--kprobe",
            Self::Uprobe => "--uprobe",
            Self::Synthetic => "--synthetic",
            Self::Fprobe => "--fprobe",
            Self::Tprobe => "--tprobe",
            Self::Eprobe => "--eprobe",
        }
    }
}

/// An event that a recording defines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The kind.
    pub kind: DefinitionKind,
    /// The system of the event.
    pub system: String,
    /// The name of the event.
    pub name: String,
    /// The line for `dynamic_events`; several for a static probe that is in several places.
    pub line: String,
}

impl Definition {
    /// Makes a definition of a user's text. Probes are put into `group`; one without a name is
    /// called `probe_N` by its number.
    ///
    /// # Errors
    /// The text does not have the form of [`DefinitionKind`], or it names a group.
    pub(crate) fn parse(
        kind: DefinitionKind,
        text: &str,
        group: &str,
        number: usize,
    ) -> anyhow::Result<Self> {
        let option = kind.option();
        let (head, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let rest = rest.trim();
        if head.contains('\n') || rest.contains('\n') || rest.is_empty() {
            bail!("{option} {text:?}: it must be one line: a name, and what the event is made of");
        }
        if let Some(letter) = kind.letter() {
            let own = head.strip_prefix(letter).and_then(|rest| rest.strip_prefix(':'));
            let name = own.unwrap_or(head);
            check_name(option, name)?;
            let (system, line) = match kind {
                DefinitionKind::Synthetic => ("synthetic", format!("{letter}:{name} {rest}")),
                _ => (group, format!("{letter}:{group}/{name} {}", place_of(kind, rest))),
            };
            return Ok(Self { kind, system: system.to_owned(), name: name.to_owned(), line });
        }
        let (probe, name) =
            head.split_once(':').map_or((head, None), |(probe, name)| (probe, Some(name)));
        let is_probe = probe
            .strip_prefix(['p', 'r'])
            .is_some_and(|more| more.bytes().all(|b| b.is_ascii_digit()));
        if !is_probe {
            bail!(
                "{option} {text:?}: it begins with p:NAME for a probe, or r:NAME for one of the return; then the place follows"
            );
        }
        if name.is_some_and(|name| name.contains(['/', '.'])) {
            bail!(
                "{option} {text:?}: leave out the group; the probe gets a group of its own, so that it can be removed with certainty"
            );
        }
        let is_path = rest.starts_with('/');
        match kind {
            DefinitionKind::Kprobe if is_path => {
                bail!("{option} {text:?}: a probe in a program or library is given by --uprobe")
            }
            DefinitionKind::Uprobe if !is_path => {
                bail!(
                    "{option} {text:?}: the place is /PATH:FUNCTION, /PATH:OFFSET or /PATH:PROVIDER:PROBE; a function of the kernel is given by --kprobe"
                )
            }
            _ => {}
        }
        let name = name.map_or_else(|| format!("probe_{number}"), str::to_owned);
        check_name(option, &name)?;
        let places = match kind {
            DefinitionKind::Uprobe => offsets(probe, rest).with_context(|| option)?,
            _ => vec![rest.to_owned()],
        };
        let line = |place: &String| format!("{probe}:{group}/{name} {place}");
        let line = places.iter().map(line).collect::<Vec<_>>().join("\n");
        Ok(Self { kind, system: group.to_owned(), name, line })
    }

    /// Checks that the kernel has such definitions, and that no event has the name of a synthetic
    /// one.
    ///
    /// # Errors
    /// The kernel lacks them, or the name is taken.
    pub(crate) fn check(&self, top: &Instance) -> anyhow::Result<()> {
        let option = self.kind.option();
        if !self.kind.is_supported(top) {
            bail!("{option}: Linux {} has no {}", release(), self.kind.needs());
        }
        if self.exists(top)? {
            bail!("{option}: an event {}:{} exists; choose another name", self.system, self.name);
        }
        Ok(())
    }

    /// Adds the event.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(crate) fn add(&self, top: &Instance) -> anyhow::Result<()> {
        let option = self.kind.option();
        let added = self.line.lines().try_for_each(|line| top.write("dynamic_events", line));
        added.map_err(|error| {
            // The README of a kernel describes event probes even if it was built without them.
            let is_explained = error.chain().any(|cause| cause.is::<KernelSays>());
            match self.kind {
                DefinitionKind::Eprobe if !is_explained => error.context(format!(
                    "{option}: Linux {} may have no {}",
                    release(),
                    self.kind.needs()
                )),
                DefinitionKind::Tprobe => error.context(self.place_is_taken(top)),
                _ => error.context(option),
            }
        })
    }

    /// Names the probe of the same tracepoint that somebody else has defined: Linux 6.12 takes one
    /// alone. Without any, it is only the option.
    fn place_is_taken(&self, top: &Instance) -> String {
        let option = self.kind.option();
        let place = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
        let all = top.read("dynamic_events").unwrap_or_default();
        let is_taken = |line: &&str| line.starts_with("t:") && place(line) == place(&self.line);
        all.lines().find(is_taken).map_or(option.to_owned(), |line| {
            format!("{option}: this kernel may take one probe of a tracepoint, and has `{line}`")
        })
    }

    /// Removes the event if it exists, and returns whether it did. A synthetic event has no group
    /// of its own; [`Definition::check`] made sure that its name was free before the journal was
    /// written.
    ///
    /// # Errors
    /// The kernel refuses, for example because another tracer uses the event.
    pub(crate) fn remove(&self, top: &Instance) -> anyhow::Result<bool> {
        if !self.exists(top)? {
            return Ok(false);
        }
        top.write("dynamic_events", &format!("-:{}/{}", self.system, self.name)).map(|()| true)
    }

    /// Returns true if the kernel lists the event.
    fn exists(&self, top: &Instance) -> anyhow::Result<bool> {
        Ok(top.read("dynamic_events")?.lines().any(|line| self.is_line(line)))
    }

    /// Returns true if a line of `dynamic_events` is of this event: `p:GROUP/NAME …`,
    /// `r8:GROUP/NAME …`, `s:synthetic/NAME …` or `s:NAME …`.
    fn is_line(&self, line: &str) -> bool {
        let head = line.split_whitespace().next().unwrap_or_default();
        let Some((_, name)) = head.split_once(':') else { return false };
        let (system, name) = name.split_once('/').unwrap_or(("synthetic", name));
        system == self.system && name == self.name
    }
}

/// Returns the place of a probe that has a letter of its own, as the kernel reads it: the event of
/// an eprobe is `SYSTEM.EVENT` there, and everywhere else `SYSTEM:EVENT`.
fn place_of(kind: DefinitionKind, text: &str) -> String {
    let (place, args) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    match kind {
        DefinitionKind::Eprobe => format!("{}{args}", place.replace(':', ".")),
        _ => text.to_owned(),
    }
}

/// Returns the text of a uprobe with the offset in the file of its function, or for each place of
/// its static probe. Other texts are left as they are.
fn offsets(probe: &str, text: &str) -> anyhow::Result<Vec<String>> {
    let (place, args) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    let Some((path, what)) = place.rsplit_once(':') else { return Ok(vec![text.to_owned()]) };
    if what.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(vec![text.to_owned()]);
    }
    let is_file = |path: &str| std::path::Path::new(path).is_file();
    if let Some((file, provider)) = path.rsplit_once(':').filter(|(file, _)| is_file(file)) {
        ensure!(probe.starts_with('p'), "{place}: a static probe has no return: begin with p:NAME");
        let places = elf::usdt(file.as_ref(), provider, what)?;
        let line = |place: &elf::Place| match place.semaphore {
            Some(counter) => format!("{file}:{:#x}({counter:#x}){args}", place.offset),
            None => format!("{file}:{:#x}{args}", place.offset),
        };
        return Ok(places.iter().map(line).collect());
    }
    let (name, more) = what.split_once('+').unwrap_or((what, "0"));
    let more = match more.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => more.parse(),
    };
    let more = more.with_context(|| format!("{place}: behind + is no offset"))?;
    let offset = elf::function(path.as_ref(), name)?.saturating_add(more);
    Ok(vec![format!("{path}:{offset:#x}{args}")])
}

/// Returns the version of the running kernel.
fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn check_name(option: &str, name: &str) -> anyhow::Result<()> {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if name.is_empty()
        || name.len() > 64
        || name.as_bytes()[0].is_ascii_digit()
        || !name.bytes().all(is_word)
    {
        bail!(
            "{option}: {name:?} is no name of an event: it has letters, digits and underscores, at most 64"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_get_the_group_of_their_own() {
        let line = |kind, text| {
            Definition::parse(kind, text, "lw_7", 3).map(|d| d.line).map_err(|e| e.to_string())
        };
        let kprobe = |text| line(DefinitionKind::Kprobe, text);
        assert_eq!(
            kprobe("p:opened do_sys_openat2 dfd=%di").unwrap(),
            "p:lw_7/opened do_sys_openat2 dfd=%di"
        );
        assert_eq!(kprobe("r16 do_exit $retval").unwrap(), "r16:lw_7/probe_3 do_exit $retval");
        assert_eq!(
            line(DefinitionKind::Uprobe, "p:m /lib/x.so:0x10").unwrap(),
            "p:lw_7/m /lib/x.so:0x10"
        );
        assert_eq!(
            line(DefinitionKind::Synthetic, "lat u64 t; int cpu").unwrap(),
            "s:lat u64 t; int cpu"
        );
        for (kind, text, expected) in [
            (
                DefinitionKind::Fprobe,
                "got vfs_read%return $retval",
                "f:lw_7/got vfs_read%return $retval",
            ),
            (DefinitionKind::Tprobe, "t:sw sched_switch preempt", "t:lw_7/sw sched_switch preempt"),
            (
                DefinitionKind::Eprobe,
                "sw sched:sched_switch p=$prev_pid:s32",
                "e:lw_7/sw sched.sched_switch p=$prev_pid:s32",
            ),
        ] {
            assert_eq!(line(kind, text).unwrap(), expected);
        }
        for wrong in [
            "p:g/opened do_exit",
            "-:opened x",
            "p:opened",
            "p:1 x",
            "p:a-b x",
            "p:a /bin/sh:0x1",
            "p:a x\n-:g/b",
        ] {
            assert!(kprobe(wrong).is_err(), "{wrong}");
        }
        assert!(line(DefinitionKind::Uprobe, "p:m do_exit").is_err());
    }

    #[test]
    fn the_kernel_s_help_says_which_probes_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let top = Instance::top(folder.path());
        let help = "\t  Format: p[:[<group>/][<event>]] <place> [<args>]\n\
                    \t           t[:[<group>/][<event>]] <tracepoint> [<args>]\n\
                    \t\t   e[:[<group>/]<event>] <attached-group>.<attached-event> [<args>]\n";
        std::fs::write(folder.path().join("README"), help).unwrap();
        assert!(DefinitionKind::Tprobe.is_supported(&top));
        assert!(DefinitionKind::Eprobe.is_supported(&top));
        assert!(!DefinitionKind::Fprobe.is_supported(&top));
        assert!(!DefinitionKind::Kprobe.is_supported(&top));
        std::fs::write(folder.path().join("kprobe_events"), "").unwrap();
        assert!(DefinitionKind::Kprobe.is_supported(&top));
    }

    #[test]
    fn the_other_probe_of_a_tracepoint_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let top = Instance::top(folder.path());
        let path = folder.path().join("dynamic_events");
        let probe = Definition::parse(DefinitionKind::Tprobe, "x sched_switch", "lw_7", 0).unwrap();
        for (line, says) in [
            ("t:other/y sched_switch old=$arg2\n", "has `t:other/y sched_switch old=$arg2`"),
            ("t:other/y sched_waking\n", "--tprobe"),
            ("p:other/y sched_switch\n", "--tprobe"),
        ] {
            std::fs::write(&path, line).unwrap();
            let said = probe.place_is_taken(&top);
            assert!(said.ends_with(says), "{said}");
        }
    }

    #[test]
    fn only_the_lines_of_the_event_are_its_own() {
        let of = |kind, text| Definition::parse(kind, text, "lw_7", 0).unwrap();
        let probe = of(DefinitionKind::Kprobe, "p:opened do_exit");
        assert!(probe.is_line("p:lw_7/opened do_exit"));
        assert!(
            !probe.is_line("p:lw_77/opened do_exit") && !probe.is_line("p:lw_7/opened2 do_exit")
        );
        let synthetic = of(DefinitionKind::Synthetic, "lat u64 t");
        assert!(synthetic.is_line("s:synthetic/lat\tu64 t") && synthetic.is_line("s:lat u64 t"));
        assert!(!synthetic.is_line("p:lat/lat do_exit"));
    }
}
