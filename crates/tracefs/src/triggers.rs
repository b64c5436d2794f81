//! The kernel's own triggers: what an event does when it occurs (`Documentation/trace/events.rst`, section 6).
//!
//! A trigger belongs to the instance of the recording, and goes with it. The recording takes part in two of them: the snapshot that
//! `snapshot` takes is saved beside the trace, and `traceoff` ends a recording without a command.

use crate::events::Rule;
use crate::instance::Instance;
use anyhow::bail;

/// The first kernel whose `traceon`, `traceoff` and `stacktrace` work on the instance. Before it they work on the top level.
const OWN_INSTANCE: (u32, u32) = (5, 17);

/// Returns the command of a trigger: the word before its arguments.
fn command(trigger: &str) -> &str {
    trigger.trim().split([':', ' ', '\t']).next().unwrap_or_default()
}

/// Returns true if a trigger of the rules has the command.
pub(crate) fn has(rules: &[Rule], wanted: &str) -> bool {
    rules.iter().flat_map(|rule| &rule.triggers).any(|trigger| command(trigger) == wanted)
}

/// Returns true if a trigger of the rules ends the recording for good.
pub(crate) fn stop(rules: &[Rule]) -> bool {
    has(rules, "traceoff") && !has(rules, "traceon")
}

/// Checks what the kernel would accept and a recording cannot do. `is_moved` is true if events are streamed or sent while recording
/// goes on; `release` is that of the kernel.
///
/// # Errors
/// A trigger is no single line, changes what is not of the instance, or has a result that would not be saved.
pub(crate) fn check(rules: &[Rule], top: &Instance, is_moved: bool, release: &str) -> anyhow::Result<()> {
    for trigger in rules.iter().flat_map(|rule| &rule.triggers) {
        let said = format!("--trigger {trigger:?}");
        match command(trigger) {
            _ if trigger.trim().contains('\n') => bail!("{said}: a trigger is one line; give --trigger several times"),
            "" => bail!("{said}: it begins with a command of the kernel, such as snapshot, traceoff or stacktrace"),
            word if word.starts_with('!') => {
                bail!("{said}: there is no trigger to remove in the instance of a recording")
            }
            "snapshot" if !top.path().join("snapshot").exists() => {
                bail!("{said}: this kernel was built without snapshots (CONFIG_TRACER_SNAPSHOT)")
            }
            "snapshot" if is_moved => bail!(
                "{said}: a snapshot takes events out of the ring before they are streamed: record without --stream and without a receiver"
            ),
            "traceon" | "traceoff" | "stacktrace" if version(release).is_none_or(|of| of < OWN_INSTANCE) => bail!(
                "{said}: before Linux 5.17 it may work on the machine's own tracing and not on the recording, and this is {release}"
            ),
            // Variables of a histogram serve the action of another one.
            "hist" if !rules.iter().flat_map(|rule| &rule.triggers).any(|other| other.contains(":on")) => bail!(
                "{said}: a histogram is not saved with a trace; give one with an action (onmatch, onmax, onchange), and what that records is"
            ),
            _ => {}
        }
    }
    Ok(())
}

/// Sets the triggers of an event in the instance.
///
/// # Errors
/// The kernel refuses one.
pub(crate) fn set(instance: &Instance, system: &str, event: &str, triggers: &[String]) -> anyhow::Result<()> {
    let file = format!("events/{system}/{event}/trigger");
    triggers.iter().try_for_each(|trigger| instance.write(&file, trigger.trim()))
}

/// Returns the first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(trigger: &str) -> Rule {
        Rule { pattern: "sched".to_owned(), filter: String::new(), triggers: vec![trigger.to_owned()] }
    }

    #[test]
    fn what_a_recording_cannot_do_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let top = Instance::top(folder.path());
        let of = |trigger: &str, is_moved: bool, release: &str| {
            check(&[rule(trigger)], &top, is_moved, release).map_err(|error| error.to_string())
        };
        let refused = |trigger: &str, is_moved, release: &str, why: &str| {
            let error = of(trigger, is_moved, release).unwrap_err();
            assert!(error.contains(why), "{trigger}: {error}");
        };
        refused("snapshot", false, "6.12.1", "CONFIG_TRACER_SNAPSHOT");
        std::fs::write(folder.path().join("snapshot"), "").unwrap();
        of("snapshot:1 if prev_pid == 1", false, "6.12.1").unwrap();
        refused("snapshot", true, "6.12.1", "without --stream");
        refused("traceoff if pid == 1", false, "5.16.3-1-amd64", "5.17");
        refused("stacktrace", false, "unknown", "5.17");
        of("traceoff:1", true, "5.17.0").unwrap();
        of("stacktrace", false, "10.0").unwrap();
        refused("hist:keys=pid", false, "6.12", "not saved");
        let waking = Rule { triggers: vec!["hist:keys=pid:t=common_timestamp.usecs".to_owned()], ..rule("") };
        let switch = rule("hist:keys=next_pid:d=common_timestamp.usecs-$t:onmatch(sched.sched_waking).lat($d)");
        check(&[waking, switch], &top, false, "6.12").unwrap();
        refused("!snapshot", false, "6.12", "to remove");
        refused(" ", false, "6.12", "a command");
        refused("snapshot\ntraceoff", false, "6.12", "one line");
    }

    #[test]
    fn only_a_trigger_that_is_not_undone_ends_a_recording() {
        assert!(stop(&[rule("traceoff:1 if pid == 1")]) && stop(&[rule("snapshot"), rule("traceoff")]));
        assert!(!stop(&[rule("traceoff"), rule("traceon if pid == 2")]) && !stop(&[rule("traceoffs")]));
        assert!(!stop(&[rule("snapshot")]) && has(&[rule("snapshot:3")], "snapshot"));
    }
}
