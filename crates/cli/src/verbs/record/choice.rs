//! The options of `record` about functions, processes, CPUs and options of the kernel's tracer.
//! Their letters are trace-cmd's.

use crate::say;
use lastwords_render::missing::count;
use lastwords_tracefs::Choice;

const HEADING: &str = "Functions, processes, CPUs";

/// Options that choose what the kernel's tracer records besides events.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = HEADING)]
pub(super) struct ChoiceOptions {
    /// Trace only these functions: a name, a glob or :mod:MODULE
    ///
    /// This is for `-p function` and `-p function_graph`. The option may be given several times.
    /// /sys/kernel/tracing/available_filter_functions has all names.
    #[arg(short = 'l', long = "function", value_name = "FUNCTION")]
    functions: Vec<String>,

    /// Do not trace these functions, even if -l names them
    #[arg(short = 'n', long = "no-function", value_name = "FUNCTION")]
    no_functions: Vec<String>,

    /// Let function_graph record only these functions and what they call
    ///
    /// The kernel has one list of them for all instances. It must be empty, and is emptied at the
    /// end.
    #[arg(short = 'g', long = "graph-function", value_name = "FUNCTION")]
    graph_functions: Vec<String>,

    /// Let function_graph record no deeper calls than N
    ///
    /// With 1, it records only where programs enter the kernel. The kernel has one limit for all
    /// instances, which is restored at the end.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_graph_depth: Option<u32>,

    /// Record only these threads, by their numbers
    ///
    /// A number of a process is that of its first thread. Each thread has a number of its own, in
    /// /proc/PID/task.
    #[arg(short = 'P', long = "pid", value_name = "PID[,PID]...", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pids: Vec<u32>,

    /// Record only COMMAND
    ///
    /// Without -c, that is only its first thread.
    #[arg(short = 'F', long, requires = "command")]
    only_command: bool,

    /// With -F or -P, also record children and threads that they start
    #[arg(short = 'c', long)]
    children: bool,

    /// Record only these CPUs: a hexadecimal mask, or -1 for all
    ///
    /// 3 is CPU 0 and 1.
    #[arg(short = 'M', long, value_name = "MASK", allow_hyphen_values = true)]
    cpumask: Option<String>,

    /// Switch an option of the tracer on, or off by `no` before it
    ///
    /// /sys/kernel/tracing/options has all names. The option may be given several times. An option
    /// that all instances share is restored at the end.
    #[arg(short = 'O', long = "option", value_name = "OPTION")]
    options: Vec<String>,

    /// Record the kernel's stack at each event
    #[arg(short = 'T', long)]
    stacktrace: bool,
}

impl ChoiceOptions {
    /// Returns true if only COMMAND is recorded.
    pub(super) fn is_for_command(&self) -> bool {
        self.only_command
    }

    /// Returns the choice for the plan.
    pub(super) fn choice(&self) -> Choice {
        let stacks = self.stacktrace.then(|| "stacktrace".to_owned());
        Choice {
            functions: self.functions.clone(),
            no_functions: self.no_functions.clone(),
            graph_functions: self.graph_functions.clone(),
            graph_depth: self.max_graph_depth,
            pids: self.pids.clone(),
            is_for_command: self.only_command,
            children: self.children,
            cpus: self.cpumask.clone(),
            options: stacks.into_iter().chain(self.options.iter().cloned()).collect(),
        }
    }

    /// Notes processes whose other threads are not recorded.
    pub(super) fn tell_other_threads(&self) {
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
