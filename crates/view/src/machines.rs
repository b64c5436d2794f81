//! The machines that traces are of, and the processes that created sessions.

use lastwords_ctf::read::Trace;
use std::path::Path;

/// Returns the machine, the id and the program of the processes that created sessions.
pub(crate) fn processes(traces: &[Trace], machine_of: &[u32]) -> Vec<(u32, i64, String)> {
    let of = |(trace, machine): (&Trace, &u32)| {
        let program = trace.class().text("program")?;
        let name = program.rsplit('/').next().unwrap_or(program).to_owned();
        Some((*machine, trace.class().number("vpid")?, name))
    };
    traces.iter().zip(machine_of).filter_map(of).collect()
}

/// Returns the machine of each trace, and the names of the machines. Kernels in different inputs
/// are different machines, or the same one at another boot. Other traces belong to the kernel with
/// their host's name, if there is one such kernel.
pub(crate) fn machines(traces: &[Trace]) -> (Vec<u32>, Vec<String>) {
    let is_kernel = |trace: &Trace| {
        let is_beside = trace.is_beside || trace.class().text("domain") == Some("kernel");
        is_beside && trace.account.is_some()
    };
    let mut kernels: Vec<(&Path, String)> = Vec::new();
    for trace in traces.iter().filter(|trace| is_kernel(trace) && !trace.is_beside) {
        if !kernels.iter().any(|(path, _)| *path == trace.path) {
            kernels.push((&trace.path, host(trace)));
        }
    }
    let mut names: Vec<String> = kernels.iter().map(|(_, host)| host.clone()).collect();
    let mut of = Vec::new();
    for trace in traces {
        let (name, by_path) =
            (host(trace), kernels.iter().position(|(path, _)| *path == trace.path));
        let mut fitting = names.iter().enumerate().filter(|(_, own)| **own == name);
        let only = fitting.next().map(|(at, _)| at).filter(|_| fitting.next().is_none());
        let at = by_path.filter(|_| is_kernel(trace)).or(only).unwrap_or_else(|| {
            names.push(name);
            names.len().saturating_sub(1)
        });
        of.push(u32::try_from(at).unwrap_or(0));
    }
    // Machines of one name are told apart by their inputs.
    for (at, (path, name)) in kernels.iter().enumerate() {
        if kernels.iter().filter(|(_, other)| other == name).count() > 1 {
            let file = path.file_name().unwrap_or(path.as_os_str());
            let named = format!("{} ({name})", file.display());
            names.get_mut(at).into_iter().for_each(|name| name.clone_from(&named));
        }
    }
    if names.is_empty() {
        names.push(String::new());
    }
    (of, names)
}

/// Returns the name of the host that a trace is of, as far as the trace says.
fn host(trace: &Trace) -> String {
    let class = trace.class();
    let named = class.text("hostname").map(str::to_owned);
    named
        .or_else(|| class.text("uname")?.split_whitespace().nth(1).map(str::to_owned))
        .unwrap_or_default()
}
