//! Checks that the machine can record as planned, before anything is changed.

use crate::adopted::Adopted;
use crate::changes::Changes;
use crate::definitions::Definition;
use crate::events;
use crate::instance::{Instance, NO_TRACER};
use crate::journal::{Journal, is_instance_name};
use crate::plan::Plan;
use crate::shared::Shared;
use crate::{histograms, snapshot, triggers};
use anyhow::{Context, bail, ensure};
use std::path::{Path, PathBuf};

/// Checks that the machine can record as planned, and returns what will be changed.
pub(crate) fn check(plan: &Plan, tracefs: PathBuf) -> anyhow::Result<Changes> {
    let top = Instance::top(&tracefs);
    let output =
        std::path::absolute(&plan.output).with_context(|| plan.output.display().to_string())?;
    if !plan.stays {
        check_output(&output, plan.force)?;
    }
    let pid = std::process::id();
    let name = match &plan.instance {
        Some(name) => name.clone(),
        None if plan.stays => "lastwords".to_owned(),
        None => format!("lastwords-{pid}"),
    };
    check_buffers(plan, &name)?;
    let group = format!("lastwords_{pid}");
    let definitions: Vec<Definition> = plan
        .definitions
        .iter()
        .enumerate()
        .map(|(number, (kind, text))| Definition::parse(*kind, text, &group, number))
        .collect::<anyhow::Result<_>>()?;
    definitions.iter().try_for_each(|definition| definition.check(&top))?;
    let of = |plan: &Plan, name: String, definitions| {
        check_instance(plan, &tracefs, Journal::new(plan, name, definitions, output.clone()))
    };
    let mut journal = of(plan, name, definitions)?;
    for buffer in &plan.buffers {
        let mut buffer = of(&plan.of_buffer(buffer), buffer.name.clone(), Vec::new())?;
        Shared::merge(&mut journal.shared, &std::mem::take(&mut buffer.shared));
        journal.buffers.push(buffer);
    }
    if journal.snapshots {
        ensure!(
            !plan.stays,
            "--trigger snapshot: a recorder that runs saves snapshots: use `lastwords record`"
        );
        snapshot::make_room(&journal.output, plan.force)?;
        check_window(plan, &journal.clock)?;
    }
    if !plan.stays && journal.with_histograms().next().is_some() {
        check_output(&histograms::path(&output), plan.force)?;
    }
    let changes = Changes { tracefs, journals: plan.journals.clone(), journal };
    if let Some((_, path)) = changes.each().iter().find_map(|changes| changes.parts().pop()) {
        bail!(
            "{}: a recorder that was killed has left it: run `lastwords restore`, or move it away",
            path.display()
        );
    }
    Ok(changes)
}

/// Checks that the names of the instances differ, and that more than one can be recorded.
fn check_buffers(plan: &Plan, name: &str) -> anyhow::Result<()> {
    let mut names = vec![name];
    for buffer in &plan.buffers {
        ensure!(
            !names.contains(&buffer.name.as_str()),
            "instance {}: it is named twice",
            buffer.name
        );
        names.push(&buffer.name);
        ensure!(
            plan.receiver.is_none(),
            "-B {}: a receiver takes one instance: record into a file, or start a recorder for each",
            buffer.name
        );
        ensure!(
            !triggers::has(&buffer.events, "snapshot"),
            "-B {}: snapshots are taken of the main instance alone: give -R snapshot before -B",
            buffer.name
        );
    }
    let wrong = names.into_iter().find(|name| !is_instance_name(name));
    wrong.map_or(Ok(()), |name| bail!("instance {name:?}: this is no name of a folder"))
}

/// Checks what is planned for one instance, and completes its journal.
fn check_instance(plan: &Plan, tracefs: &Path, mut journal: Journal) -> anyhow::Result<Journal> {
    let top = Instance::top(tracefs);
    check_known(&top, "trace_clock", plan.clock(), "clock")?;
    if let Some(tracer) = &plan.tracer {
        check_known(&top, "available_tracers", tracer, "tracer")?;
    }
    let known = events::list(&top)?;
    plan.events.iter().try_for_each(|rule| events::select(&known, &rule.pattern).map(drop))?;
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    triggers::check(plan, &top, &release)?;
    if plan.receiver.is_none() {
        journal.histograms = histograms::events(&known, &plan.events)?;
    }
    let own = Instance::named(tracefs, &journal.instance);
    let of_own = own.setting("current_tracer").ok().filter(|tracer| tracer != NO_TRACER);
    plan.choice.check(&top, plan.tracer.as_deref().or(of_own.as_deref()))?;
    journal.shared = plan.choice.shared(&top)?;
    if plan.instance.is_some() && own.exists() {
        journal.adopted = Some(Adopted::new(&own, &top, plan)?);
        journal.inode = own.inode();
        if plan.clock.is_none() {
            journal.clock = own.clock()?;
        }
    }
    Ok(journal)
}

/// Checks that the clock counts nanoseconds if snapshots are cut by time.
fn check_window(plan: &Plan, clock: &str) -> anyhow::Result<()> {
    let is_in_ns = !matches!(clock, "counter" | "uptime" | "x86-tsc" | "ppc-tb");
    ensure!(
        is_in_ns || !plan.snapshots.has_window(),
        "the clock {clock} does not count nanoseconds, so that no window of a snapshot can be cut: choose another by -C"
    );
    Ok(())
}

pub(crate) fn check_output(output: &Path, force: bool) -> anyhow::Result<()> {
    let shown = output.display();
    match output.symlink_metadata() {
        Ok(_) if !force => bail!("{shown} exists: choose another name or pass --force"),
        Ok(meta) if !meta.is_file() => bail!("{shown}: not a file; --force does not replace it"),
        _ => {}
    }
    match output.parent() {
        Some(folder) if folder.is_dir() => Ok(()),
        _ => bail!("{shown}: its folder does not exist"),
    }
}

/// Checks that a file of tracefs, a list of words, has a word. The chosen word is in brackets.
pub(crate) fn check_known(
    top: &Instance,
    file: &str,
    word: &str,
    kind: &str,
) -> anyhow::Result<()> {
    let list = top.read(file)?;
    let words: Vec<&str> =
        list.split_whitespace().map(|word| word.trim_matches(['[', ']'])).collect();
    if !words.contains(&word) {
        bail!("{kind} {word}: this kernel has {}", words.join(", "));
    }
    Ok(())
}
