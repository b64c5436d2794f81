//! How the machines of the scenario `why` end, and what `why` may say of it.

use anyhow::{Context, Result};
use lastwords_testkit::random::Random;
use serde_json::Value;

/// A cause of the end of a machine, or of its application.
pub(super) struct Cause {
    /// The word in the plan.
    pub(super) name: &'static str,
    /// What it is, for the table.
    pub(super) what: &'static str,
    /// The ways in which it comes, and a text that the sentence, an item of evidence or a hint must
    /// have.
    variants: &'static [(&'static str, &'static str)],
    /// The cause that `why` must name; none if nothing that a guest leaves proves one.
    proven: Option<&'static str>,
}

impl Cause {
    const fn new(
        name: &'static str,
        what: &'static str,
        proven: Option<&'static str>,
        variants: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { name, what, variants, proven }
    }

    /// Returns true if these counts of right, unknown and wrong verdicts are good enough: none is
    /// wrong, and what can be proven is proven more often than not.
    pub(super) fn is_met(&self, [right, unknown, wrong]: [u32; 3]) -> bool {
        wrong == 0 && (self.proven.is_none() || right > unknown)
    }
}

/// What is known of a process that its machine ended, if nothing shows how.
const LIVED_ON: &str = "\"sentence\":\"ended with its machine";

pub(super) const CAUSES: &[Cause] = &[
    Cause::new(
        "panic",
        "panic",
        Some("kernel-panic"),
        &[("sysrq", "sysrq triggered crash"), ("init", "Attempted to kill init")],
    ),
    Cause::new(
        "oops",
        "oops, panic_on_oops",
        Some("kernel-panic"),
        &[
            ("ud2", "invalid opcode"),
            ("null", "NULL pointer dereference"),
            ("address", "general protection fault"),
        ],
    ),
    Cause::new(
        "hung",
        "hung task",
        Some("lockup"),
        &[("2", "hung_task: "), ("3", "hung_task: "), ("5", "hung_task: ")],
    ),
    Cause::new(
        "watchdog",
        "software watchdog",
        Some("lockup"),
        &[("1", "Watchdog Timer"), ("2", "Watchdog Timer"), ("4", "Watchdog Timer")],
    ),
    Cause::new(
        "memory",
        "no memory",
        Some("out-of-memory"),
        &[
            ("tail", "panic_on_oom is enabled"),
            ("files", "panic_on_oom is enabled"),
            ("deadlock", "deadlocked on memory"),
        ],
    ),
    Cause::new(
        "reboot",
        "reboot, halt, power off",
        Some("reboot"),
        &[
            ("reboot", "Restarting system"),
            ("poweroff", "Power down"),
            ("halt", "System halted"),
            ("oopsed", "Restarting system"),
        ],
    ),
    Cause::new("cut", "loss of power", None, &[("plain", LIVED_ON), ("again", LIVED_ON)]),
    Cause::new(
        "reset",
        "reset of the hardware",
        None,
        &[("plain", LIVED_ON), ("amd", "hardware watchdog timer expired")],
    ),
    Cause::new(
        "killed",
        "SIGKILL before a panic",
        None,
        &[
            ("0", "before its machine ended"),
            ("100", "before its machine ended"),
            ("1000", "before its machine ended"),
            ("4000", "before its machine ended"),
        ],
    ),
];

/// The end of one boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    /// Index in [`CAUSES`].
    pub(super) cause: usize,
    pub(super) variant: &'static str,
    /// Milliseconds that the application records at least.
    pub(super) pause: u64,
    /// The records of older boots are removed from pstore, as systemd does.
    pub(super) is_clean: bool,
}

impl End {
    /// The line for the guest.
    pub(super) fn line(&self) -> String {
        let keep = if self.is_clean { "clean" } else { "keep" };
        format!("{} {} {} {keep}\n", CAUSES[self.cause].name, self.variant, self.pause)
    }
}

/// Returns the ends of all boots, `count` of each cause, in an order that the seed chooses.
pub(super) fn make(count: u32, seed: u64) -> Vec<End> {
    let mut rng = Random(seed);
    let mut ends = Vec::new();
    for round in 0..count as usize {
        for (cause, Cause { variants, .. }) in CAUSES.iter().enumerate() {
            let (variant, _) = variants[round % variants.len()];
            let (pause, is_clean) = (200 + rng.below(2500), rng.below(2) == 0);
            ends.push(End { cause, variant, pause, is_clean });
        }
    }
    for at in (1..ends.len()).rev() {
        ends.swap(at, rng.below(at as u64 + 1) as usize);
    }
    ends
}

/// What a verdict is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worth {
    Right,
    Unknown,
    Wrong,
}

/// Judges what `why --json` said of a boot that ended in this way. Returns also what it said, in a
/// line.
pub(super) fn judge(end: &End, said: &str) -> Result<(Worth, String)> {
    let report: Value = serde_json::from_str(said).context("the JSON of why")?;
    let verdict = &report["inputs"][0]["verdict"];
    let cause = verdict["cause"].as_str().context("a cause")?;
    let Cause { proven, variants, .. } = &CAUSES[end.cause];
    let (_, words) = variants.iter().find(|(name, _)| *name == end.variant).context("a variant")?;
    let has_words = verdict.to_string().contains(words);
    let worth = match (cause, proven) {
        // A hint that is missing makes it worth nothing.
        ("unknown", None) if !has_words => Worth::Wrong,
        ("unknown", _) => Worth::Unknown,
        (cause, Some(proven)) if cause == *proven && has_words => Worth::Right,
        _ => Worth::Wrong,
    };
    Ok((worth, format!("{cause}: {}", verdict["sentence"].as_str().unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_each_cause_as_often_as_asked() {
        let plan = make(4, 7);
        assert_eq!(plan.len(), 4 * CAUSES.len());
        for (cause, Cause { variants, .. }) in CAUSES.iter().enumerate() {
            let own: Vec<&End> = plan.iter().filter(|end| end.cause == cause).collect();
            assert_eq!(own.len(), 4);
            let has = |(name, _): &(&str, &str)| own.iter().any(|end| end.variant == *name);
            assert!(variants.iter().all(has));
        }
        assert_ne!(plan, make(4, 8));
    }

    #[test]
    fn another_cause_or_one_without_its_words_is_wrong() {
        let of = |cause: &str, variant| End {
            cause: CAUSES.iter().position(|own| own.name == cause).unwrap(),
            variant,
            pause: 0,
            is_clean: true,
        };
        let worth = |end: &End, cause: &str, sentence: &str| {
            let verdict = serde_json::json!({ "cause": cause, "sentence": sentence });
            let said = serde_json::json!({ "inputs": [{ "verdict": verdict }] }).to_string();
            judge(end, &said).unwrap().0
        };
        let hung = of("hung", "2");
        assert_eq!(worth(&hung, "lockup", "hung_task: blocked tasks"), Worth::Right);
        assert_eq!(worth(&hung, "lockup", "Watchdog Timer"), Worth::Wrong);
        assert_eq!(worth(&hung, "kernel-panic", "hung_task: blocked tasks"), Worth::Wrong);
        assert_eq!(worth(&hung, "unknown", "x"), Worth::Unknown);
        let cut = of("cut", "plain");
        assert_eq!(worth(&cut, "unknown", "ended with its machine: unknown which"), Worth::Unknown);
        assert_eq!(worth(&cut, "unknown", "x"), Worth::Wrong);
        assert_eq!(worth(&cut, "reboot", "ended with its machine"), Worth::Wrong);
        assert!(judge(&cut, "{}").is_err());
    }
}
