//! The block that the text begins with (`s_show`, `trace_default_header`).

use lastwords_trace::ftrace::{Array, Ring, Tracing};

use super::events::{address, is_since};
use super::flags::Flags;
use super::{counts, graph};
use crate::ftrace::print::Names;

/// The header of a text that has events, or of an array without.
pub(crate) fn write(
    out: &mut Vec<u8>,
    tracing: &Tracing,
    array: &Array,
    ring: &dyn Ring,
    flags: &Flags,
    is_empty: bool,
) {
    tracer(out, array);
    if array.tracer == "function_graph" {
        if flags.context && flags.latency {
            if is_empty {
                return;
            }
            latency(out, tracing, array, ring, flags);
        }
        return graph::header(out, array, flags);
    }
    if array.tracer == "osnoise" || array.tracer == "timerlat" {
        return noise(out, &array.tracer);
    }
    if !flags.context {
        return;
    }
    if flags.latency {
        if !is_empty {
            latency(out, tracing, array, ring, flags);
            if !flags.verbose {
                out.extend_from_slice(LATENCY_LEGEND.as_bytes());
            }
        }
        return;
    }
    if !flags.verbose {
        columns(out, tracing, ring, flags);
    }
}

fn tracer(out: &mut Vec<u8>, array: &Array) {
    out.extend_from_slice(format!("# tracer: {}\n#\n", array.tracer).as_bytes());
}

fn columns(out: &mut Vec<u8>, tracing: &Tracing, ring: &dyn Ring, flags: &Flags) {
    let (entries, written) = counts(tracing, ring);
    let cpus = tracing.cpus;
    out.extend_from_slice(
        format!("# entries-in-buffer/entries-written: {entries}/{written}   #P:{cpus}\n#\n").as_bytes(),
    );
    if !flags.irq {
        let (title, bars) = if flags.tgid { ("   TGID   ", "     |    ") } else { ("", "") };
        let text = format!(
            "#           TASK-PID    {title} CPU#     TIMESTAMP  FUNCTION\n\
             #              | |      {bars}   |         |         |\n"
        );
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let width = if flags.tgid { 12 } else { 2 };
    let legend = [
        "  _-----=> irqs-off/BH-disabled",
        " / _----=> need-resched",
        "| / _---=> hardirq/softirq",
        "|| / _--=> preempt-depth",
        "||| / _-=> migrate-disable",
        "|||| /     delay",
    ];
    for line in legend {
        out.extend_from_slice(format!("#                            {:width$}{line}\n", "").as_bytes());
    }
    let cut = |text: &'static str| &text[..width];
    let (title, bars) = (cut("     TGID   "), cut("       |    "));
    let text = format!(
        "#           TASK-PID  {title} CPU#  |||||  TIMESTAMP  FUNCTION\n\
         #              | |    {bars}   |   |||||     |         |\n"
    );
    out.extend_from_slice(text.as_bytes());
}

const LATENCY_LEGEND: &str = concat!(
    "#                    _------=> CPU#            \n",
    "#                   / _-----=> irqs-off/BH-disabled\n",
    "#                  | / _----=> need-resched    \n",
    "#                  || / _---=> hardirq/softirq \n",
    "#                  ||| / _--=> preempt-depth   \n",
    "#                  |||| / _-=> migrate-disable \n",
    "#                  ||||| /     delay           \n",
    "#  cmd     pid     |||||| time  |   caller     \n",
    "#     \\   /        ||||||  \\    |    /       \n",
);

/// The block of the latency format (`print_trace_header`).
fn latency(out: &mut Vec<u8>, tracing: &Tracing, array: &Array, ring: &dyn Ring, flags: &Flags) {
    let (entries, written) = counts(tracing, ring);
    let model = preemption(tracing);
    let longest = ring.latency();
    let text = format!(
        "# {tracer} latency trace v1.1.5 on {release}\n\
         # --------------------------------------------------------------------\n\
         # latency: {time} us, #{entries}/{written}, CPU#{cpu} | (M:{model} VP:0, KP:0, SP:0 HP:0 #P:{cpus})\n\
         #    -----------------\n\
         #    | task: {comm:.16}-{pid} (uid:{uid} nice:{nice} policy:{policy} rt_prio:{priority})\n\
         #    -----------------\n",
        tracer = array.tracer,
        release = tracing.release,
        time = longest.time.saturating_add(500) / 1000,
        cpu = longest.cpu,
        cpus = tracing.cpus,
        comm = longest.comm,
        pid = longest.pid,
        uid = longest.uid,
        nice = longest.nice,
        policy = longest.policy,
        priority = longest.rt_priority,
    );
    out.extend_from_slice(text.as_bytes());
    let (start, end) = longest.section;
    if start != 0 {
        let mut names = Names::new(tracing, flags.hash);
        out.extend_from_slice(b"#  => started at: ");
        address(out, &mut names, start, flags, tracing.word_size);
        out.extend_from_slice(b"\n#  => ended at:   ");
        address(out, &mut names, end, flags, tracing.word_size);
        out.extend_from_slice(b"\n#\n");
    }
    out.extend_from_slice(b"#\n");
}

/// The word for the kernel's preemption; where it was not chosen at boot, as far as its version string tells it.
fn preemption(tracing: &Tracing) -> String {
    let has = |word| tracing.uname.split_whitespace().any(|w| w == word);
    let mode = |names: [&'static str; 4]| {
        let mode = tracing.preempt_dynamic_mode.and_then(|mode| names.get(usize::from(mode)));
        mode.copied().or(has("PREEMPT_DYNAMIC").then_some("undef"))
    };
    // `preempt_model_str` of kernel/sched/core.c.
    if is_since(&tracing.release, (6, 15)) {
        return match mode(["none", "voluntary", "full", "lazy"]) {
            Some(mode) if has("PREEMPT_RT") => format!("PREEMPT_{{RT,({mode})}}"),
            Some(mode) => format!("PREEMPT({mode})"),
            None if has("PREEMPT_RT") => "PREEMPT_RT".into(),
            None if has("PREEMPT") => "PREEMPT".into(),
            None if tracing.preempt_voluntary => "VOLUNTARY".into(),
            None => "NONE".into(),
        };
    }
    let word = match mode(["server", "desktop", "preempt", "lazy"]) {
        Some(word) if word != "undef" => word,
        _ if has("PREEMPT_RT") => "preempt_rt",
        _ if has("PREEMPT") => "preempt",
        Some(_) => "desktop",
        None if tracing.preempt_voluntary => "desktop",
        None => "server",
    };
    word.into()
}

fn noise(out: &mut Vec<u8>, tracer: &str) {
    let text = if tracer == "osnoise" {
        concat!(
            "#                                _-----=> irqs-off\n",
            "#                               / _----=> need-resched\n",
            "#                              | / _---=> hardirq/softirq\n",
            "#                              || / _--=> preempt-depth\n",
            "#                              ||| / _-=> migrate-disable                         MAX\n",
            "#                              |||| /     delay                                   SINGLE      Interference counters:\n",
            "#                              |||||               RUNTIME      NOISE  % OF CPU  NOISE    +-----------------------------+\n",
            "#           TASK-PID      CPU# |||||   TIMESTAMP    IN US       IN US  AVAILABLE  IN US     HW    NMI    IRQ   SIRQ THREAD\n",
            "#              | |         |   |||||      |           |             |    |            |      |      |      |      |      |\n",
        )
    } else {
        concat!(
            "#                                _-----=> irqs-off\n",
            "#                               / _----=> need-resched\n",
            "#                              | / _---=> hardirq/softirq\n",
            "#                              || / _--=> preempt-depth\n",
            "#                              ||| / _-=> migrate-disable\n",
            "#                              |||| /     delay\n",
            "#                              |||||            ACTIVATION    CONTEXT                TIMER_LATENCY\n",
            "#           TASK-PID      CPU# |||||   TIMESTAMP   ID            CONTEXT                 LATENCY\n",
            "#              | |         |   |||||      |         |                  |                       |\n",
        )
    };
    out.extend_from_slice(text.as_bytes());
}

/// The text of `snapshot` where there is nothing to show: how to use it.
pub(crate) fn unused_snapshot(out: &mut Vec<u8>, array: &Array, one_cpu: bool, allocated: bool) {
    tracer(out, array);
    let state = if allocated { "allocated" } else { "freed" };
    out.extend_from_slice(format!("#\n# * Snapshot is {state} *\n#\n# Snapshot commands:\n").as_bytes());
    let help = if one_cpu {
        concat!(
            "# echo 0 > snapshot : Invalid for per_cpu snapshot file.\n",
            "# echo 1 > snapshot : Not supported with this kernel.\n",
            "#                     Must use main snapshot file to allocate.\n",
            "# echo 2 > snapshot : Clears this cpu's snapshot buffer (but does not allocate)\n",
        )
    } else {
        concat!(
            "# echo 0 > snapshot : Clears and frees snapshot buffer\n",
            "# echo 1 > snapshot : Allocates snapshot buffer, if not already allocated.\n",
            "#                      Takes a snapshot of the main buffer.\n",
            "# echo 2 > snapshot : Clears snapshot buffer (but does not allocate or free)\n",
        )
    };
    out.extend_from_slice(help.as_bytes());
    out.extend_from_slice(b"#                      (Doesn't have to be '2' works with any number that\n");
    out.extend_from_slice(b"#                       is not a '0' or '1')\n");
}
