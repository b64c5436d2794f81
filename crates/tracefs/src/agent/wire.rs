//! The questions of a host and the answers of an agent, as messages of [`lastwords_stream::Line`].

use crate::choice::Choice;
use crate::plan::Plan;
use crate::rule::Rule;
use anyhow::ensure;
use lastwords_open::tracer_now;
use lastwords_stream::Line;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The version of the messages.
pub(super) const VERSION: u32 = 1;

/// Most words in a list.
const MOST_WORDS: usize = 1024;
/// Most bytes of a word.
const MOST_WORD: usize = 256;
/// Most bytes of a filter. The kernel takes no longer one than a page.
const MOST_FILTER: usize = 4095;
/// Most bytes of the ring of a CPU.
const MOST_RING: u64 = 64 << 20;
/// Most characters of what a peer says that are shown.
const MOST_SAID: usize = 4096;
/// Most characters of a message of a peer that are quoted.
const MOST_QUOTED: usize = 256;
/// The shortest interval of flushes.
const LEAST_FLUSH: Duration = Duration::from_millis(10);

/// A question of a host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Ask {
    /// The first on a connection: prepare a recording.
    Record { version: u32, wanted: Box<Wanted> },
    /// The first on the second connection, with the key of [`Answer::Ready`]: it takes the stream.
    Join { key: String },
    /// Begin to record.
    Start,
    /// Read the clock of the events.
    Clock,
    /// Stop, and send what is left.
    Stop,
}

/// An answer of an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum Answer {
    /// The recording may be made: connect again, with this key.
    Ready { key: String },
    /// The recording is set up.
    Begun,
    /// It records.
    Started,
    /// The reading of the clock.
    Clock { nanoseconds: u64 },
    /// The recording has ended, and all of it was sent.
    Finished { errors: Vec<String> },
    /// Why there is no recording.
    Refused { why: String },
}

impl Answer {
    /// Returns the error of an answer that was not expected.
    pub(super) fn unexpected(&self, line: &Line) -> anyhow::Error {
        let peer = line.peer();
        match self {
            Self::Refused { why } => anyhow::anyhow!("{peer}: the agent says: {}", plain(why)),
            Self::Finished { .. } => anyhow::anyhow!("{peer}: the agent has ended the recording"),
            other => {
                let said = cut(&format!("{other:?}"));
                anyhow::anyhow!("{peer}: it answers {said}, as no agent does here")
            }
        }
    }
}

/// Returns the words of a peer, which a terminal must not obey.
pub(super) fn plain(text: &str) -> String {
    text.chars().take(MOST_SAID).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns the begin of a text that quotes a peer.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(MOST_QUOTED).collect()
}

/// The recording that a host wants of a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// The events.
    pub events: Vec<WantedEvents>,
    /// The tracer; none for no tracer.
    pub tracer: Option<String>,
    /// As [`Choice::functions`].
    pub functions: Vec<String>,
    /// As [`Choice::no_functions`].
    pub no_functions: Vec<String>,
    /// As [`Choice::graph_functions`].
    pub graph_functions: Vec<String>,
    /// As [`Choice::graph_depth`].
    pub graph_depth: Option<u32>,
    /// As [`Choice::pids`]: the guest's numbers of threads.
    pub pids: Vec<u32>,
    /// As [`Choice::children`].
    pub children: bool,
    /// As [`Choice::cpus`].
    pub cpus: Option<String>,
    /// As [`Choice::options`].
    pub options: Vec<String>,
    /// Bytes of the ring of each CPU; none for 8 MiB. 64 MiB are the most.
    pub size: Option<u64>,
    /// The clock: `mono`, `mono_raw` or `boot`.
    pub clock: String,
    /// As [`Plan::discard`].
    pub discard: bool,
    /// As [`Plan::flush`], in milliseconds.
    pub flush: u64,
}

/// Events that a host wants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedEvents {
    /// As [`Rule::pattern`].
    pub pattern: String,
    /// As [`Rule::filter`].
    pub filter: String,
    /// As [`Rule::is_left_out`].
    pub is_left_out: bool,
}

impl Wanted {
    /// Returns what is wanted of a guest.
    ///
    /// # Errors
    /// A rule has a trigger. Agents take none, because triggers act.
    pub fn new(rules: &[Rule], tracer: Option<&str>, choice: &Choice) -> Result<Self, String> {
        let event = |rule: &Rule| match rule.triggers.first() {
            Some(trigger) => {
                Err(format!("-R {trigger}: an agent takes no triggers: give it before -A"))
            }
            None => Ok(WantedEvents {
                pattern: rule.pattern.clone(),
                filter: rule.filter.clone(),
                is_left_out: rule.is_left_out,
            }),
        };
        let Choice {
            functions,
            no_functions,
            graph_functions,
            graph_depth,
            pids,
            is_for_command: _,
            children,
            cpus,
            options,
        } = choice.clone();
        Ok(Self {
            events: rules.iter().map(event).collect::<Result<_, _>>()?,
            tracer: tracer.map(str::to_owned),
            functions,
            no_functions,
            graph_functions,
            graph_depth,
            pids,
            children,
            cpus,
            options,
            ..Self::default()
        })
    }

    /// Checks the numbers and forms that do not depend on the kernel. [`crate::Recording::begin`]
    /// checks the names.
    ///
    /// # Errors
    /// The first that is wrong.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.events.is_empty() || self.tracer.is_some(),
            "nothing to record: it names no events and no tracer"
        );
        let lists = [&self.functions, &self.no_functions, &self.graph_functions, &self.options];
        let counts = lists.iter().map(|list| list.len());
        let longest = counts.chain([self.events.len(), self.pids.len()]).max().unwrap_or(0);
        ensure!(longest <= MOST_WORDS, "a list of {longest} words; {MOST_WORDS} are the most");
        let patterns = self.events.iter().map(|event| &event.pattern);
        let single = [&self.tracer, &self.cpus].into_iter().flatten();
        for word in lists.into_iter().flatten().chain(patterns).chain(single) {
            let is_word = (1..=MOST_WORD).contains(&word.len())
                && word.chars().all(|c| c.is_ascii_graphic())
                && !word.contains(['/', ';', '|']);
            ensure!(is_word, "{word:?}: no name of an event, a function, a tracer or an option");
        }
        for WantedEvents { pattern, filter, .. } in &self.events {
            let is_line = filter.len() <= MOST_FILTER && !filter.chars().any(char::is_control);
            ensure!(is_line, "the filter of {pattern}: no line of at most {MOST_FILTER} bytes");
        }
        let size = self.size.unwrap_or(1);
        ensure!(
            (1..=MOST_RING).contains(&size),
            "a ring of {size} bytes for each CPU; {MOST_RING} are the most"
        );
        ensure!(
            tracer_now(&self.clock).is_some(),
            "the clock {:?}: only mono, mono_raw and boot can be related to another machine's",
            self.clock
        );
        Ok(())
    }

    /// Returns the plan of a recording, but for the receiver and the places of files.
    pub(super) fn plan(&self) -> Plan {
        let rule = |event: &WantedEvents| Rule {
            pattern: event.pattern.clone(),
            filter: event.filter.clone(),
            triggers: Vec::new(),
            is_left_out: event.is_left_out,
        };
        let flush = Duration::from_millis(self.flush);
        Plan {
            events: self.events.iter().map(rule).collect(),
            tracer: self.tracer.clone(),
            choice: Choice {
                functions: self.functions.clone(),
                no_functions: self.no_functions.clone(),
                graph_functions: self.graph_functions.clone(),
                graph_depth: self.graph_depth,
                pids: self.pids.clone(),
                is_for_command: false,
                children: self.children,
                cpus: self.cpus.clone(),
                options: self.options.clone(),
            },
            size: self.size,
            clock: Some(self.clock.clone()),
            discard: self.discard,
            flush: if flush.is_zero() { flush } else { flush.max(LEAST_FLUSH) },
            ..Plan::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Wanted {
        let rule = Rule {
            pattern: "sched:*".into(),
            filter: "prev_pid != 0 && next_comm ~ \"a/b*\"".into(),
            ..Rule::default()
        };
        let choice = Choice {
            functions: vec!["vfs_*".into(), "ext4_*:mod:ext4".into()],
            cpus: Some("-1".into()),
            options: vec!["nofunc_stack_trace".into()],
            ..Choice::default()
        };
        Wanted { clock: "mono".into(), ..Wanted::new(&[rule], Some("function"), &choice).unwrap() }
    }

    #[test]
    fn what_a_host_may_not_want_is_refused() {
        type Change = fn(&mut Wanted);
        good().check().unwrap();
        let cases: [(&str, Change); 12] = [
            ("nothing to record", |w| (w.events.clear(), w.tracer = None).0),
            ("no name", |w| w.events[0].pattern = "../../x".into()),
            ("no name", |w| w.events[0].pattern = "a\nb".into()),
            ("no name", |w| w.functions.push("x | tee /etc/passwd".into())),
            ("no name", |w| w.options.push("../tracing_on".into())),
            ("no name", |w| w.tracer = Some(String::new())),
            ("no name", |w| w.cpus = Some("f".repeat(MOST_WORD + 1))),
            ("1025 words", |w| w.pids = vec![1; 1025]),
            ("the filter of sched:*", |w| w.events[0].filter = "a\nb".into()),
            ("the filter of sched:*", |w| w.events[0].filter = "x".repeat(4096)),
            ("ring of", |w| w.size = Some(MOST_RING + 1)),
            ("the clock \"local\"", |w| w.clock = "local".into()),
        ];
        for (why, change) in cases {
            let mut wanted = good();
            change(&mut wanted);
            let error = wanted.check().unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    #[test]
    fn a_host_can_say_nothing_else() {
        let message =
            serde_json::to_value(Ask::Record { version: 1, wanted: good().into() }).unwrap();
        assert!(serde_json::from_value::<Ask>(message.clone()).is_ok());
        for (key, value) in [("instance", "x"), ("output", "/etc/x"), ("triggers", "x")] {
            let mut message = message.clone();
            message["wanted"][key] = value.into();
            assert!(serde_json::from_value::<Ask>(message).is_err(), "{key}");
        }
        let plan = good().plan();
        assert_eq!(plan.instance, None);
        assert!(plan.definitions.is_empty() && plan.events.iter().all(|e| e.triggers.is_empty()));
        let trigger = Rule { triggers: vec!["traceoff".into()], ..Rule::default() };
        assert!(Wanted::new(&[trigger], None, &Choice::default()).is_err());
    }
}
