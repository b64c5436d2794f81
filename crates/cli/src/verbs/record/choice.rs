//! The options of `record` about functions, processes, CPUs and options of the kernel's tracer.
//! Their letters are trace-cmd's.

use crate::say;
use anyhow::ensure;
use lastwords_render::missing::count;
use lastwords_tracefs::Choice;

const HEADING: &str = "Functions, processes, CPUs";

/// Options for all instances that choose processes.
#[derive(Debug, clap::Args)]
pub(in crate::verbs) struct ProcessOptions {
    /// Record only COMMAND
    ///
    /// Without -c, that is only its first thread.
    #[arg(help_heading = HEADING, short = 'F', long, requires = "command")]
    only_command: bool,

    /// With -F or -P, record also the children
    ///
    /// These are all processes and threads that the chosen ones start.
    #[arg(help_heading = HEADING, short = 'c', long)]
    children: bool,
}

impl ProcessOptions {
    /// Returns the options of a recording without a command.
    pub(in crate::verbs) fn without_command(children: bool) -> Self {
        Self { only_command: false, children }
    }

    /// Returns true if only COMMAND is recorded.
    pub(in crate::verbs) fn is_for_command(&self) -> bool {
        self.only_command
    }

    /// Checks that `-c` has processes in some instance.
    pub(in crate::verbs) fn check<'a>(
        &self,
        mut all: impl Iterator<Item = &'a ChoiceOptions>,
    ) -> anyhow::Result<()> {
        let has_processes = self.only_command || all.any(|choice| !choice.pids.is_empty());
        ensure!(
            !self.children || has_processes,
            "-c: it adds the children of chosen processes: choose some by -P or -F"
        );
        Ok(())
    }

    /// Returns the choice of a guest, in which no COMMAND runs.
    pub(in crate::verbs) fn of_guest(&self, own: &ChoiceOptions) -> Choice {
        Choice { children: self.children && !own.pids.is_empty(), ..own.choice() }
    }

    /// Returns the choice of an instance for the plan.
    pub(in crate::verbs) fn choice(&self, own: &ChoiceOptions) -> Choice {
        let has_processes = self.only_command || !own.pids.is_empty();
        Choice {
            is_for_command: self.only_command,
            children: self.children && has_processes,
            ..own.choice()
        }
    }
}

/// Options that choose what the kernel's tracer records besides events.
#[derive(Debug, Clone, clap::Args)]
pub(in crate::verbs) struct ChoiceOptions {
    /// Trace only these functions: a name, a glob or :mod:MODULE
    ///
    /// This is for `-p function` and `-p function_graph`. The option may be given several times.
    /// /sys/kernel/tracing/available_filter_functions has all names.
    #[arg(help_heading = HEADING, short = 'l', long = "function", value_name = "FUNCTION")]
    functions: Vec<String>,

    /// Do not trace these functions, even if -l names them
    #[arg(help_heading = HEADING, short = 'n', long = "no-function", value_name = "FUNCTION")]
    no_functions: Vec<String>,

    /// Let function_graph record only these functions and their calls
    ///
    /// The kernel has one list of them for all instances. It must be empty, and is emptied at the
    /// end.
    #[arg(help_heading = HEADING, short = 'g', long = "graph-function", value_name = "FUNCTION")]
    graph_functions: Vec<String>,

    /// Let function_graph record no deeper calls than N
    ///
    /// With 1, it records only where programs enter the kernel. The kernel has one limit for all
    /// instances, which is restored at the end.
    #[arg(help_heading = HEADING, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_graph_depth: Option<u32>,

    /// Record only these threads, by their numbers
    ///
    /// A number of a process is that of its first thread. Each thread has a number of its own, in
    /// /proc/PID/task.
    #[arg(help_heading = HEADING, short = 'P', long = "pid", value_name = "PID[,PID]...", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pids: Vec<u32>,

    /// Record only these CPUs, a mask in hexadecimal digits; -1 is all
    ///
    /// 3 is the CPUs 0 and 1.
    #[arg(help_heading = HEADING, short = 'M', long, value_name = "MASK", allow_hyphen_values = true)]
    cpumask: Option<String>,

    /// Switch an option of the tracer on; noOPTION switches it off
    ///
    /// /sys/kernel/tracing/options has all names. The option may be given several times. An option
    /// that all instances share is restored at the end.
    #[arg(help_heading = HEADING, short = 'O', long = "option", value_name = "OPTION")]
    options: Vec<String>,

    /// Record the kernel's stack at each event
    #[arg(help_heading = HEADING, short = 'T', long)]
    stacktrace: bool,
}

impl ChoiceOptions {
    /// Returns the choice, but for the processes of all instances.
    fn choice(&self) -> Choice {
        let stacks = self.stacktrace.then(|| "stacktrace".to_owned());
        Choice {
            functions: self.functions.clone(),
            no_functions: self.no_functions.clone(),
            graph_functions: self.graph_functions.clone(),
            graph_depth: self.max_graph_depth,
            pids: self.pids.clone(),
            cpus: self.cpumask.clone(),
            options: stacks.into_iter().chain(self.options.iter().cloned()).collect(),
            ..Choice::default()
        }
    }

    /// Notes processes whose other threads are not recorded.
    pub(in crate::verbs) fn tell_other_threads(&self) {
        for pid in &self.pids {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
            let ids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
            let others = ids.filter(|id: &u32| !self.pids.contains(id)).count() as u64;
            if others > 0 {
                say::note(format_args!(
                    "-P {pid}: the process has {}, not recorded: name more numbers of /proc/{pid}/task",
                    count(others, "other thread")
                ));
            }
        }
    }
}
