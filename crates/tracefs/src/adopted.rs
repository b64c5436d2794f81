//! An instance that existed before the recording: its settings, which the recording leaves as it
//! found them.

use crate::events;
use crate::instance::Instance;
use crate::plan::{Plan, kib as size_text};
use crate::rule::Rule;
use anyhow::{Context, bail};
use lastwords_ftrace::Stats;
use lastwords_stream::wire::Counters;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The settings that a recording changes, as they were before, and the counters of the rings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Adopted {
    /// The instance was recording.
    is_on: bool,
    /// The file of each setting that is changed, with its text.
    settings: Vec<(String, String)>,
    /// The events that were enabled, as `SYSTEM:EVENT`.
    enabled: BTreeSet<String>,
    /// The counters of each CPU's ring. What they count was before the recording.
    #[serde(default)]
    before: Vec<Counters>,
}

impl Adopted {
    /// Reads the settings of an instance, and refuses what could not be restored.
    ///
    /// # Errors
    /// A file cannot be read; the instance has the events of the last boot, which a recording would
    /// destroy; triggers are wanted, whose work cannot be undone; the rings of its CPUs differ in
    /// size, and another size is wanted.
    pub(crate) fn new(instance: &Instance, top: &Instance, plan: &Plan) -> anyhow::Result<Self> {
        let shown = instance.path().display().to_string();
        if let Some(trigger) = plan.events.iter().flat_map(|rule| &rule.triggers).next() {
            bail!(
                "--trigger {trigger:?}: {shown} exists, and triggers need an instance that `record` makes"
            );
        }
        let last_boot = instance.read("last_boot_info").unwrap_or_default();
        let mut has_events = false;
        for cpu in instance.cpus()? {
            has_events |= instance.stats(cpu)?.entries > 0;
        }
        if has_events && !last_boot.is_empty() && !last_boot.starts_with("# Current") {
            bail!(
                "{shown}: it may have the events of the last boot, which a recording would destroy: save them (`lastwords report {shown}`), \
                 then clear the rings (`echo > {shown}/trace`)"
            );
        }
        let mut settings = Vec::new();
        let mut keep = |file: &str, text: String| settings.push((file.to_owned(), text));
        for rule in plan.events.iter().filter(|rule| !rule.filter.is_empty()) {
            for file in filters(top, rule)? {
                let filter = instance.read(&file)?;
                let filter = filter.trim();
                keep(&file, if filter == "none" { "0".to_owned() } else { filter.to_owned() });
            }
        }
        if plan.tracer.is_some() {
            keep("current_tracer", instance.read("current_tracer")?.trim().to_owned());
        }
        for file in plan.choice.files(top, instance, plan.tracer.as_deref())? {
            let text = instance.setting(&file)?;
            if text.contains(':') {
                bail!(
                    "{shown}/{file}: it has commands of functions, which could not be restored: remove them first"
                );
            }
            keep(&file, text);
        }
        if plan.discard {
            keep("options/overwrite", instance.read("options/overwrite")?.trim().to_owned());
        }
        if plan.stream || plan.receiver.is_some() {
            // Kernels before 5.0 have no such file.
            instance
                .read("buffer_percent")
                .into_iter()
                .for_each(|text| keep("buffer_percent", text.trim().to_owned()));
        }
        let empties = |option: &str| {
            anyhow::anyhow!(
                "--{option}: that would empty the rings of {shown}, which have events: read them first (`lastwords report --consume`)"
            )
        };
        if let Some(wanted) = &plan.clock {
            let clock = instance.clock()?;
            if has_events && clock != *wanted {
                return Err(empties("clock"));
            }
            keep("trace_clock", clock);
        }
        if let Some(size) = plan.size {
            let text = instance.read("buffer_size_kb")?;
            let kib = text.split(|c: char| !c.is_ascii_digit()).rfind(|number| !number.is_empty());
            let kib = kib.with_context(|| {
                format!("--size: the rings of {shown} differ in size, which cannot be restored")
            })?;
            if has_events && kib != size_text(size) {
                return Err(empties("size"));
            }
            keep("buffer_size_kb", kib.to_owned());
        }
        let is_on = instance.read("tracing_on")?.trim() == "1";
        Ok(Self { is_on, settings, enabled: instance.enabled()?, before: Vec::new() })
    }

    /// Notes the counters of the rings, after all settings that empty rings.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn count(&mut self, instance: &Instance) -> anyhow::Result<()> {
        let of = |cpu: u32| Ok(Counters::new(cpu, &instance.stats(cpu)?));
        self.before = instance.cpus()?.into_iter().map(of).collect::<anyhow::Result<_>>()?;
        Ok(())
    }

    /// Returns what a CPU's counters counted since the recording began.
    pub(crate) fn since(&self, cpu: u32, now: Stats) -> Stats {
        let Some(before) =
            self.before.iter().find(|before| before.cpu == cpu).map(|before| before.stats())
        else {
            return now;
        };
        Stats {
            overrun: now.overrun.saturating_sub(before.overrun),
            commit_overrun: now.commit_overrun.saturating_sub(before.commit_overrun),
            dropped: now.dropped.saturating_sub(before.dropped),
            read: now.read.saturating_sub(before.read),
            ..now
        }
    }

    /// Makes the settings again what they were. All are tried.
    ///
    /// # Errors
    /// One of them cannot be written.
    pub(crate) fn restore(&self, instance: &Instance) -> anyhow::Result<()> {
        let mut result = Ok(());
        let mut set = |file: &str, text: &str| {
            // A setting that has not changed is not written: writing a clock or a size empties the
            // rings.
            let is_so = match file {
                "trace_clock" => instance.clock().is_ok_and(|clock| clock == text),
                _ => instance.setting(file).is_ok_and(|now| now == text),
            };
            if !is_so && let Err(error) = instance.set(file, text) {
                result = Err(error);
            }
        };
        let now = instance.enabled()?;
        let too_many = now.difference(&self.enabled).map(|event| (event, "0"));
        let too_few = self.enabled.difference(&now).map(|event| (event, "1"));
        for (event, text) in too_many.chain(too_few) {
            if let Some((system, name)) = event.split_once(':') {
                set(&format!("events/{system}/{name}/enable"), text);
            }
        }
        self.settings.iter().for_each(|(file, text)| set(file, text));
        set("tracing_on", if self.is_on { "1" } else { "0" });
        result
    }
}

/// Returns the files with the filters of a rule's events.
fn filters(top: &Instance, rule: &Rule) -> anyhow::Result<Vec<String>> {
    let events = events::select(&events::list(top)?, &rule.pattern)?;
    Ok(events::pairs(&events)
        .map(|(system, event)| format!("events/{system}/{event}/filter"))
        .collect())
}
