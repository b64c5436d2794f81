//! The kernel's own triggers: what an event does when it occurs (`Documentation/trace/events.rst`,
//! section 6).
//!
//! A trigger belongs to the instance of the recording, and goes with it. The recording takes part
//! in three of them: the snapshots that `snapshot` takes are saved beside the trace
//! ([`crate::firings`]), so are the histograms of `hist` ([`crate::histograms()`]), and `traceoff`
//! ends a recording without a command.

use crate::instance::Instance;
use crate::plan::Plan;
use crate::rule::Rule;
use anyhow::bail;

/// The first kernel whose `traceon`, `traceoff` and `stacktrace` work on the instance. Before it
/// they work on the top level.
const OWN_INSTANCE: (u32, u32) = (5, 17);

/// What the kernel's own help says if it has histograms.
const HISTOGRAMS: &str = "hist trigger";

/// Returns the command of a trigger: the word before its arguments.
fn command(trigger: &str) -> &str {
    trigger.trim().split([':', ' ', '\t']).next().unwrap_or_default()
}

/// Returns true if a trigger of the rules has the command.
pub(crate) fn has(rules: &[Rule], wanted: &str) -> bool {
    rules.iter().flat_map(|rule| &rule.triggers).any(|trigger| command(trigger) == wanted)
}

/// A trigger of the rules that takes snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// How often it fires; none for as often as its event occurs.
    pub(crate) times: Option<u64>,
    /// The filter with the word `if` and a blank before it; empty for none.
    pub(crate) filter: String,
}

impl Snapshot {
    /// Reads `snapshot[:TIMES] [if FILTER]`; none if it is another trigger.
    ///
    /// # Errors
    /// The number is none.
    pub(crate) fn parse(trigger: &str) -> anyhow::Result<Option<Self>> {
        let Some(rest) =
            trigger.trim().strip_prefix("snapshot").filter(|_| command(trigger) == "snapshot")
        else {
            return Ok(None);
        };
        let (times, filter) = match rest.strip_prefix(':') {
            None => (None, rest),
            Some(rest) => {
                let (number, filter) = rest.split_at(rest.find([' ', '\t']).unwrap_or(rest.len()));
                let Ok(times) = number.parse() else {
                    bail!("--trigger {trigger:?}: {number:?} is no number of times")
                };
                (Some(times), filter)
            }
        };
        let filter = filter.trim();
        Ok(Some(Self {
            times,
            filter: if filter.is_empty() { String::new() } else { format!(" {filter}") },
        }))
    }
}

/// Returns true if the text of a `trigger` file has a snapshot with a count that has come to an
/// end.
pub(crate) fn has_fired(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("snapshot:count=0"))
}

/// Returns true if a trigger of the rules ends the recording for good.
pub(crate) fn stop(rules: &[Rule]) -> bool {
    has(rules, "traceoff") && !has(rules, "traceon")
}

/// Checks what the kernel would accept and a recording cannot do. `release` is that of the kernel.
///
/// # Errors
/// A trigger is no single line, changes what is not of the instance, or has a result that would not
/// be saved.
pub(crate) fn check(plan: &Plan, top: &Instance, release: &str) -> anyhow::Result<()> {
    let rules = &plan.events;
    let is_moved = plan.stream || plan.receiver.is_some();
    for trigger in rules.iter().flat_map(|rule| &rule.triggers) {
        let said = format!("--trigger {trigger:?}");
        match command(trigger) {
            _ if trigger.trim().contains('\n') => {
                bail!("{said}: a trigger is one line; give --trigger several times")
            }
            "" => bail!(
                "{said}: it begins with a command of the kernel, such as snapshot, traceoff or stacktrace"
            ),
            word if word.starts_with('!') => {
                bail!("{said}: there is no trigger to remove in the instance of a recording")
            }
            "snapshot" if !top.path().join("snapshot").exists() => {
                bail!("{said}: this kernel was built without snapshots (CONFIG_TRACER_SNAPSHOT)")
            }
            "snapshot" if is_moved => bail!(
                "{said}: a snapshot takes events out of the ring before they are streamed: record without --stream and without a receiver"
            ),
            "traceon" | "traceoff" | "stacktrace"
                if version(release).is_none_or(|of| of < OWN_INSTANCE) =>
            {
                bail!(
                    "{said}: before Linux 5.17 it may work on the machine's own tracing and not on the recording, and this is {release}"
                )
            }
            "hist" if top.read("README").is_ok_and(|text| !text.contains(HISTOGRAMS)) => {
                bail!("{said}: this kernel was built without histograms (CONFIG_HIST_TRIGGERS)")
            }
            // Variables of a histogram serve the action of another one.
            "hist"
                if plan.receiver.is_some()
                    && !rules
                        .iter()
                        .flat_map(|rule| &rule.triggers)
                        .any(|other| other.contains(":on")) =>
            {
                bail!("{said}: a receiver takes no histograms: record into a file")
            }
            _ => {}
        }
    }
    Ok(())
}

/// Sets the triggers of an event in the instance, but for those that take snapshots.
///
/// # Errors
/// The kernel refuses one.
pub(crate) fn set(
    instance: &Instance,
    system: &str,
    event: &str,
    triggers: &[String],
) -> anyhow::Result<()> {
    let file = format!("events/{system}/{event}/trigger");
    let mut others = triggers.iter().filter(|trigger| command(trigger) != "snapshot");
    others.try_for_each(|trigger| instance.write(&file, trigger.trim()))
}

/// Returns the first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

impl Rule {
    /// Returns true if a trigger of the rule takes snapshots.
    #[must_use]
    pub fn takes_snapshots(&self) -> bool {
        has(std::slice::from_ref(self), "snapshot")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_stream::Address;

    fn rule(trigger: &str) -> Rule {
        Rule { pattern: "sched".to_owned(), triggers: vec![trigger.to_owned()], ..Rule::default() }
    }

    #[test]
    fn what_a_recording_cannot_do_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let top = Instance::top(folder.path());
        let of = |trigger: &str, is_moved: bool, release: &str| {
            let plan = Plan { events: vec![rule(trigger)], stream: is_moved, ..Plan::default() };
            check(&plan, &top, release).map_err(|error| error.to_string())
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
        of("hist:keys=pid", true, "6.12").unwrap();
        std::fs::write(folder.path().join("README"), "tracing mini-HOWTO:\n").unwrap();
        refused("hist:keys=pid", false, "6.12", "CONFIG_HIST_TRIGGERS");
        std::fs::write(folder.path().join("README"), format!("\t{HISTOGRAMS}\t- \n")).unwrap();
        let waking = rule("hist:keys=pid:t=common_timestamp.usecs");
        let switch = rule(
            "hist:keys=next_pid:d=common_timestamp.usecs-$t:onmatch(sched.sched_waking).lat($d)",
        );
        let receiver = Address::of_output("tcp:localhost:1".as_ref()).unwrap();
        let sent = |events| Plan { events, receiver: receiver.clone(), ..Plan::default() };
        let error = check(&sent(vec![waking.clone()]), &top, "6.12").unwrap_err().to_string();
        assert!(error.contains("a receiver takes no histograms"), "{error}");
        check(&sent(vec![waking, switch]), &top, "6.12").unwrap();
        refused("!snapshot", false, "6.12", "to remove");
        refused(" ", false, "6.12", "a command");
        refused("snapshot\ntraceoff", false, "6.12", "one line");
    }

    #[test]
    fn a_trigger_that_takes_snapshots_is_read() {
        let of =
            |text: &str| Snapshot::parse(text).unwrap().map(|found| (found.times, found.filter));
        assert_eq!(of("snapshot"), Some((None, String::new())));
        assert_eq!(
            of(" snapshot:3 if a == 1 || b ~ \"x if y\" "),
            Some((Some(3), " if a == 1 || b ~ \"x if y\"".to_owned()))
        );
        assert_eq!(of("snapshot\tif pid == 1"), Some((None, " if pid == 1".to_owned())));
        assert_eq!(of("snapshots:1"), None);
        assert!(
            Snapshot::parse("snapshot:many")
                .unwrap_err()
                .to_string()
                .contains("\"many\" is no number")
        );
        assert!(
            has_fired("# Available\nsnapshot:count=0 if pid == 1\n")
                && !has_fired("snapshot:count=1\n")
        );
        assert!(!has_fired("snapshot:unlimited\ntraceoff:count=0\n"));
    }

    #[test]
    fn only_a_trigger_that_is_not_undone_ends_a_recording() {
        assert!(
            stop(&[rule("traceoff:1 if pid == 1")]) && stop(&[rule("snapshot"), rule("traceoff")])
        );
        assert!(
            !stop(&[rule("traceoff"), rule("traceon if pid == 2")]) && !stop(&[rule("traceoffs")])
        );
        assert!(!stop(&[rule("snapshot")]) && has(&[rule("snapshot:3")], "snapshot"));
    }
}
