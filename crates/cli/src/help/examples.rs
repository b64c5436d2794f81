//! The examples of all verbs. `-h`, `--help` and the manual pages show them from this table.

/// A command line, and what it does.
pub(crate) type Example = (&'static str, &'static str);

/// The examples of each verb and of each verb below a verb, by the words that name it. The empty
/// name is the program.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "",
        &[
            ("lastwords demo", "record, kill, recover and compare: shows how it works"),
            ("lastwords report shop --last 20", "the last 20 events of the session shop"),
            ("lastwords recover vmcore -o crash", "the trace of a crashed kernel, as files"),
        ],
    ),
    (
        "demo",
        &[
            ("lastwords demo", "record in four threads, and kill them within 2 seconds"),
            ("lastwords demo --threads 8 -o trace", "keep the recovered trace in the folder trace"),
        ],
    ),
    (
        "recover",
        &[
            (
                "lastwords recover vmcore -o crash",
                "a trace.dat file for each kernel's trace in a crash dump",
            ),
            ("lastwords recover shop -o out --to json", "a file of JSON lines in the folder out"),
            ("lastwords recover core -o out --carve", "search all memory of a damaged core"),
        ],
    ),
    (
        "convert",
        &[
            ("lastwords convert shop -o - --to json | jq .event", "JSON lines on stdout"),
            (
                "lastwords convert vmcore shop -o all.perfetto-trace",
                "the kernel and a program, for ui.perfetto.dev",
            ),
            ("lastwords convert shop -o shop.otlp", "logs and spans for OpenTelemetry's collector"),
        ],
    ),
    #[cfg(feature = "arrow")]
    (
        "ingest",
        &[
            ("lastwords ingest /var/crash --into crashes", "all of /var/crash, each crash once"),
            (
                "lastwords ingest /var/crash --into crashes --redact customer",
                "without the values of a field",
            ),
        ],
    ),
    (
        "sql",
        &[
            (
                "lastwords sql vmcore -c 'SELECT count(*) FROM sched_switch'",
                "how often threads were switched",
            ),
            (
                "lastwords sql crashes -c 'FROM new_signatures'",
                "a question of the book, to a data set",
            ),
        ],
    ),
    (
        "mcp",
        &[("lastwords mcp /var/crash", "as the command of a server in an assistant's settings")],
    ),
    (
        "report",
        &[
            ("lastwords report svc --last 20", "the last 20 events of the session svc"),
            (
                "lastwords report svc -e order -F time,customer,amount",
                "chosen fields of one kind of event",
            ),
            (
                "lastwords report vmcore --relative -F time,cpu,comm,event",
                "times before the newest event",
            ),
        ],
    ),
    (
        "view",
        &[
            ("lastwords view shop", "the newest session of this name, in the browser"),
            (
                "lastwords view vmcore -o crash.html",
                "a kernel's last events, its log and its panic",
            ),
            (
                "lastwords view vmcore --since -2s -e 'sched:*'",
                "only these events of the last 2 seconds",
            ),
        ],
    ),
    (
        "inspect",
        &[
            ("lastwords inspect shop", "its events by name and time, losses, channels"),
            (
                "lastwords inspect shop --since -10s",
                "only events of the last 10 seconds are counted",
            ),
            (
                "lastwords inspect vmcore --json | jq .kernels",
                "what a kernel's trace holds, as data",
            ),
        ],
    ),
    (
        "why",
        &[
            ("lastwords why shop", "what the newest session of this name died of"),
            ("lastwords why vmcore --json | jq '.inputs[].verdict'", "a kernel's cause, as data"),
            (
                "lastwords why evidence --kernel-log dmesg.txt",
                "a copied session, its machine's log",
            ),
        ],
    ),
    (
        "diff",
        &[
            ("lastwords diff good bad", "two sessions, by their folders or names"),
            ("lastwords diff good bad -e 'shop:*' --json", "only these events, as data"),
        ],
    ),
    (
        "record",
        &[
            ("lastwords record -e sched -e irq", "record until Ctrl-C, then write trace.dat"),
            (
                "lastwords record -e 'syscalls:*' --user -- ./shop",
                "the kernel and the sessions of a command",
            ),
            (
                "lastwords record -v -e sched_switch -R hist:keys=next_comm",
                "count events by key, and record none",
            ),
        ],
    ),
    (
        "receive",
        &[
            ("lastwords receive -d traces", "from this machine alone"),
            (
                "lastwords receive -d traces --listen tcp:0.0.0.0:7117 --trust-network",
                "from every network",
            ),
        ],
    ),
    (
        "restore",
        &[
            ("lastwords restore", "save what a killed `record` left, and clean up"),
            ("lastwords restore --discard", "clean up without saving"),
        ],
    ),
    (
        "kernel",
        &[
            ("lastwords kernel start -e sched", "record in an instance that stays"),
            ("lastwords kernel extract -o sched.dat", "save what it has"),
            ("lastwords kernel reset", "remove it, and restore the settings"),
        ],
    ),
    (
        "kernel start",
        &[
            ("lastwords kernel start -e sched -e irq", "in the instance lastwords"),
            (
                "lastwords kernel start -p function -l 'vfs_*' --instance calls",
                "some functions, in the instance calls",
            ),
        ],
    ),
    ("kernel stop", &[("lastwords kernel stop", "keep what was recorded")]),
    ("kernel restart", &[("lastwords kernel restart", "record on after `stop`")]),
    (
        "kernel show",
        &[
            ("lastwords kernel show | tail", "the newest events"),
            ("lastwords kernel show --live", "events as they come"),
        ],
    ),
    (
        "kernel extract",
        &[("lastwords kernel extract -o sched.dat", "for `report`, trace-cmd and KernelShark")],
    ),
    ("kernel reset", &[("lastwords kernel reset calls", "remove the instance calls")]),
    (
        "kernel hist",
        &[
            ("lastwords kernel hist -i 1s", "the histograms of a `record` that runs, each second"),
            ("lastwords kernel hist trace.dat.hist --json", "those that it saved, as data"),
        ],
    ),
    (
        "list",
        &[
            ("lastwords list", "all sessions, and how each ended"),
            ("lastwords list shop", "channels, rules and events of a session"),
            ("lastwords list --all-namespaces", "the sessions of all users and containers"),
        ],
    ),
    (
        "top",
        &[
            ("lastwords top", "the newest session that is live"),
            ("lastwords top svc --interval 5s", "a session by its name, a reading every 5 seconds"),
            ("lastwords top svc --json | jq '.events[]'", "one reading as data"),
        ],
    ),
    (
        "enable",
        &[
            ("lastwords enable 'shop:*' -s shop", "record all events of the provider shop"),
            ("lastwords enable order -f 'amount > 100'", "record only orders of more than 100"),
            (
                "lastwords enable slow_payment --to payments",
                "record these events in the channel payments",
            ),
        ],
    ),
    (
        "disable",
        &[
            ("lastwords disable 'shop:*' -s shop", "do not record the events of the provider shop"),
            (
                "lastwords disable order --channel payments",
                "do not record this event in the channel payments",
            ),
        ],
    ),
    (
        "channel",
        &[(
            "lastwords channel create payments -s shop",
            "rings of their own for events that matter",
        )],
    ),
    (
        "channel create",
        &[
            (
                "lastwords channel create payments --size 1M",
                "rings of their own; see `enable --to payments`",
            ),
            (
                "lastwords channel create slow -f 'millis > 500'",
                "a channel that takes all events with such a field",
            ),
        ],
    ),
    (
        "start",
        &[
            ("lastwords start shop", "record again in the session shop"),
            ("lastwords start shop --channel errors", "record again in one of its channels"),
        ],
    ),
    (
        "stop",
        &[
            ("lastwords stop shop", "stop recording, and keep what was recorded"),
            ("lastwords stop shop --channel errors", "stop one channel only"),
        ],
    ),
    #[cfg(feature = "guests")]
    (
        "watch-guest",
        &[
            ("lastwords watch-guest qmp.sock -o crash", "wait for the guest's panic"),
            ("lastwords watch-guest qmp.sock -o crash --now", "read its memory at once"),
        ],
    ),
    (
        "snapshot",
        &[
            ("lastwords snapshot enable shop", "allocate the spare rings, once"),
            ("lastwords snapshot record shop -o out", "keep the events until now, and write them"),
        ],
    ),
    (
        "snapshot enable",
        &[("lastwords snapshot enable shop", "allocate the spare rings of the session shop")],
    ),
    (
        "snapshot disable",
        &[("lastwords snapshot disable shop", "free the spare rings and the snapshot in them")],
    ),
    (
        "snapshot take",
        &[
            (
                "lastwords snapshot take shop",
                "keep the events until now, for `report shop --snapshot`",
            ),
            ("lastwords snapshot take shop --cpu 0", "the same for the streams of CPU 0 only"),
        ],
    ),
    (
        "snapshot record",
        &[(
            "lastwords snapshot record shop -o out",
            "take a snapshot, and write it into the folder out",
        )],
    ),
    (
        "trigger",
        &[
            ("lastwords trigger fire slow -s shop", "save the moments before now"),
            (
                "lastwords trigger add slow_payment -s shop",
                "save the moments before each such event",
            ),
        ],
    ),
    (
        "trigger fire",
        &[(
            "lastwords trigger fire slow -s shop",
            "save the moments before now as a session of its own",
        )],
    ),
    (
        "trigger add",
        &[
            (
                "lastwords trigger add slow_payment --before 10s",
                "save 10 seconds before each such event",
            ),
            (
                "lastwords trigger add order -f 'items > 9' --do stop",
                "stop recording at a large order",
            ),
            (
                "lastwords trigger add db:begin --then db:end --above 5ms",
                "fire if an end comes later than 5 ms",
            ),
        ],
    ),
    ("trigger list", &[("lastwords trigger list shop", "the conditions of the session shop")]),
    (
        "trigger remove",
        &[
            (
                "lastwords trigger remove slow_payment -s shop",
                "remove the conditions on this event",
            ),
            ("lastwords trigger remove --all -s shop", "remove all conditions"),
        ],
    ),
    (
        "trigger watch",
        &[
            ("lastwords trigger watch shop", "print the folder of each snapshot"),
            ("lastwords trigger watch shop --exec './notify'", "run a command for each snapshot"),
            ("lastwords trigger watch trace.dat", "the snapshots of a `record` of the kernel"),
        ],
    ),
    (
        "clear",
        &[
            ("lastwords clear shop", "readers skip what was recorded until now"),
            ("lastwords clear shop --force", "also if the session has ended"),
        ],
    ),
    (
        "destroy",
        &[
            ("lastwords destroy shop", "remove the ended session shop with its events"),
            ("lastwords destroy --left-over", "remove all ended sessions"),
        ],
    ),
    (
        "mount",
        &[
            ("lastwords mount /mnt/shop shop", "the session as files: cat /mnt/shop/trace"),
            ("lastwords mount /mnt/shop --foreground", "the newest session, until Ctrl-C"),
        ],
    ),
    ("umount", &[("lastwords umount /mnt/shop", "end the mount")]),
    (
        "core-helper",
        &[
            ("lastwords core-helper install", "keep the sessions of processes that a signal kills"),
            ("lastwords core-helper status", "print whether it is installed, and where cores go"),
        ],
    ),
    (
        "core-helper install",
        &[("lastwords core-helper install", "put the helper in front of core_pattern, as root")],
    ),
    (
        "core-helper remove",
        &[("lastwords core-helper remove", "restore the core_pattern of before, as root")],
    ),
    (
        "core-helper status",
        &[("lastwords core-helper status", "print whether it is installed, and where cores go")],
    ),
    (
        "bundle",
        &[(
            "lastwords bundle save -o kernel.bundle",
            "describe the running kernel's events, as root",
        )],
    ),
    (
        "bundle save",
        &[(
            "lastwords bundle save -o kernel.bundle",
            "describe the running kernel's events, as root",
        )],
    ),
    (
        "bundle pack",
        &[(
            "lastwords bundle pack copied -o kernel.bundle",
            "the same from files of another machine",
        )],
    ),
    (
        "doctor",
        &[
            ("lastwords doctor", "check this machine, and print remedies"),
            (
                "lastwords doctor --kernel-args",
                "kernel arguments for a trace that outlives a reboot",
            ),
        ],
    ),
    (
        "completions",
        &[
            (
                "lastwords completions bash > ~/.local/share/bash-completion/completions/lastwords",
                "for bash",
            ),
            ("lastwords completions fish > ~/.config/fish/completions/lastwords.fish", "for fish"),
        ],
    ),
    (
        "man",
        &[(
            "lastwords man -o pages && man -l pages/lastwords-recover.1",
            "write all pages, and read one",
        )],
    ),
];

/// Returns the examples of a verb.
pub(crate) fn for_verb(verb: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(name, _)| *name == verb).map_or(&[], |(_, examples)| examples)
}

/// Formats examples for a terminal: the commands in one column, what they do in the next.
pub(crate) fn text(examples: &[Example]) -> String {
    let width = examples.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let lines = examples.iter().map(|(command, what)| format!("\n  {command:width$}  {what}"));
    format!("Examples:{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    /// Splits a command as a shell does: at spaces outside of quotes. What follows a pipe, `>` or
    /// `&&` is not part of it.
    fn words(command: &str) -> Vec<String> {
        let (mut words, mut word, mut is_word, mut quoted) =
            (Vec::new(), String::new(), false, false);
        for letter in command.chars() {
            match letter {
                '\'' => (quoted, is_word) = (!quoted, true),
                '|' | '>' | '&' if !quoted => break,
                ' ' if !quoted => {
                    if std::mem::take(&mut is_word) {
                        words.push(std::mem::take(&mut word));
                    }
                }
                letter => {
                    word.push(letter);
                    is_word = true;
                }
            }
        }
        words.extend(is_word.then_some(word));
        words
    }

    fn paths(command: &clap::Command, above: &str, found: &mut Vec<String>) {
        found.push(above.to_owned());
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            paths(verb, format!("{above} {}", verb.get_name()).trim_start(), found);
        }
    }

    #[test]
    fn each_verb_has_examples_and_no_other_has() {
        let mut verbs = Vec::new();
        paths(&crate::args::described(), "", &mut verbs);
        for verb in &verbs {
            assert!((1..=3).contains(&for_verb(verb).len()), "examples of {verb:?}");
        }
        for (verb, _) in EXAMPLES {
            assert!(verbs.iter().any(|known| known == verb), "there is no verb {verb:?}");
        }
    }

    #[test]
    fn each_example_is_a_command_of_its_verb() {
        for (verb, examples) in EXAMPLES {
            for (command, what) in *examples {
                assert!(command.starts_with(format!("lastwords {verb}").trim_end()), "{command}");
                assert!(!what.is_empty() && !what.ends_with('.'), "{what}");
                if let Err(error) = crate::args::Args::try_parse_from(words(command)) {
                    panic!("{command}: {error}");
                }
            }
            let text = text(examples);
            assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        }
    }

    #[test]
    fn words_are_those_of_a_shell() {
        assert_eq!(words("a 'b c|' --d='e' '' | f"), ["a", "b c|", "--d=e", ""]);
    }
}
