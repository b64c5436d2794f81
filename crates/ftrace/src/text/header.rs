//! The header of the text (`s_show`, `trace_default_header`).

use crate::{Array, FlagColumns, Ring, Tracing, is_since};

use super::flags::{Flags, address};
use super::{counts, graph, is_built, is_real_time};
use crate::print::Names;

/// Appends the header of a text. `is_empty`: the array has no events to show.
pub(crate) fn write(
    out: &mut Vec<u8>,
    tracing: &Tracing,
    array: &Array,
    ring: &dyn Ring,
    flags: &Flags,
    is_empty: bool,
) {
    tracer(out, array);
    if graph::draws(array) {
        if flags.context && flags.latency {
            if is_empty {
                return;
            }
            latency(out, tracing, array, ring, flags);
        }
        return graph::header(out, array, flags);
    }
    if matches!(array.tracer_name(), "osnoise" | "timerlat") {
        return noise(out, array.tracer_name(), is_real_time(tracing));
    }
    if array.tracer_name() == "branch" {
        return out.extend_from_slice(BRANCH_COLUMNS.as_bytes());
    }
    if array.tracer_name() == "blk" {
        return if flags.block.classic {
            out.extend_from_slice(BLOCK_COLUMNS.as_bytes())
        };
    }
    if !flags.context {
        return;
    }
    if flags.latency {
        if !is_empty {
            latency(out, tracing, array, ring, flags);
            if !flags.verbose {
                latency_legend(out, tracing.flag_columns);
            }
        }
        return;
    }
    if !flags.verbose {
        columns(out, tracing, ring, flags);
    }
}

const BRANCH_COLUMNS: &str = concat!(
    "#           TASK-PID    CPU#    TIMESTAMP  CORRECT  FUNC:FILE:LINE\n",
    "#              | |       |          |         |       |\n",
);

const BLOCK_COLUMNS: &str =
    concat!("# DEV   CPU TIMESTAMP     PID ACT FLG\n", "#  |     |     |           |   |   |\n",);

fn tracer(out: &mut Vec<u8>, array: &Array) {
    out.extend_from_slice(format!("# tracer: {}\n#\n", array.tracer_name()).as_bytes());
}

fn columns(out: &mut Vec<u8>, tracing: &Tracing, ring: &dyn Ring, flags: &Flags) {
    let (entries, written) = counts(tracing, ring);
    let cpus = tracing.cpus;
    out.extend_from_slice(
        format!("# entries-in-buffer/entries-written: {entries}/{written}   #P:{cpus}\n#\n")
            .as_bytes(),
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
    let FlagColumns { migration, bottom_halves } = tracing.flag_columns;
    let usual = [
        if bottom_halves { "  _-----=> irqs-off/BH-disabled" } else { "  _-----=> irqs-off" },
        " / _----=> need-resched",
        "| / _---=> hardirq/softirq",
        "|| / _--=> preempt-depth",
    ];
    let last: &[&str] = if migration {
        &["||| / _-=> migrate-disable", "|||| /     delay"]
    } else {
        &["||| /     delay"]
    };
    for line in usual.iter().chain(last) {
        out.extend_from_slice(
            format!("#                            {:width$}{line}\n", "").as_bytes(),
        );
    }
    let cut = |text: &'static str| &text[..width];
    let (title, bars) = (cut("     TGID   "), cut("       |    "));
    let flags = if migration { "|||||" } else { "|||| " };
    let text = format!(
        "#           TASK-PID  {title} CPU#  {flags}  TIMESTAMP  FUNCTION\n\
         #              | |    {bars}   |   {flags}     |         |\n"
    );
    out.extend_from_slice(text.as_bytes());
}

/// Appends the legend of the latency format's columns (`print_lat_help_header`).
fn latency_legend(out: &mut Vec<u8>, columns: FlagColumns) {
    out.extend_from_slice(
        b"#                    _------=> CPU#            \n#                   / _-----=> irqs-off",
    );
    out.extend_from_slice(if columns.bottom_halves { b"/BH-disabled\n" } else { b"        \n" });
    out.extend_from_slice(if columns.migration {
        LEGEND.as_bytes()
    } else {
        LEGEND_WITHOUT_MIGRATION.as_bytes()
    });
}

const LEGEND: &str = concat!(
    "#                  | / _----=> need-resched    \n",
    "#                  || / _---=> hardirq/softirq \n",
    "#                  ||| / _--=> preempt-depth   \n",
    "#                  |||| / _-=> migrate-disable \n",
    "#                  ||||| /     delay           \n",
    "#  cmd     pid     |||||| time  |   caller     \n",
    "#     \\   /        ||||||  \\    |    /       \n",
);

const LEGEND_WITHOUT_MIGRATION: &str = concat!(
    "#                  | / _----=> need-resched    \n",
    "#                  || / _---=> hardirq/softirq \n",
    "#                  ||| / _--=> preempt-depth   \n",
    "#                  |||| /     delay            \n",
    "#  cmd     pid     ||||| time  |   caller      \n",
    "#     \\   /        |||||  \\    |   /         \n",
);

/// Appends the header of the latency format (`print_trace_header`).
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
        tracer = array.tracer_name(),
        release = tracing.release,
        time = longest.time / 1000,
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

/// Returns the word for the kernel's preemption model. If the model was not selected at boot, the
/// word is derived from the version string.
fn preemption(tracing: &Tracing) -> String {
    let has = |word| is_built(tracing, word);
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
    // Linux 6.13 is the first to print `lazy`; some kernels before it were lazy by a patch.
    let is_said = |word| word != "undef" && (word != "lazy" || is_since(&tracing.release, (6, 13)));
    let word = match mode(["server", "desktop", "preempt", "lazy"]) {
        Some(word) if is_said(word) => word,
        _ if has("PREEMPT_RT") => "preempt_rt",
        Some("lazy") => "unknown",
        _ if has("PREEMPT") => "preempt",
        Some(_) => "desktop",
        None if tracing.preempt_voluntary => "desktop",
        None => "server",
    };
    word.into()
}

/// Appends the column titles of `osnoise` and `timerlat`, which have one for each flag. The flags
/// depend on the kernel's preemption model.
fn noise(out: &mut Vec<u8>, tracer: &str, is_real_time: bool) {
    let flags = if is_real_time { REAL_TIME_FLAGS } else { USUAL_FLAGS };
    out.extend_from_slice(flags.as_bytes());
    out.extend_from_slice(match (tracer == "osnoise", is_real_time) {
        (true, true) => REAL_TIME_NOISE.as_bytes(),
        (true, false) => USUAL_NOISE.as_bytes(),
        (false, true) => REAL_TIME_LATENCY.as_bytes(),
        (false, false) => USUAL_LATENCY.as_bytes(),
    });
}

const USUAL_FLAGS: &str = concat!(
    "#                                _-----=> irqs-off\n",
    "#                               / _----=> need-resched\n",
    "#                              | / _---=> hardirq/softirq\n",
    "#                              || / _--=> preempt-depth\n",
);

/// The kernel prints both percent signs.
const USUAL_NOISE: &str = concat!(
    "#                              ||| / _-=> migrate-disable                         MAX\n",
    "#                              |||| /     delay                                   SINGLE      Interference counters:\n",
    "#                              |||||               RUNTIME      NOISE  %% OF CPU  NOISE    +-----------------------------+\n",
    "#           TASK-PID      CPU# |||||   TIMESTAMP    IN US       IN US  AVAILABLE  IN US     HW    NMI    IRQ   SIRQ THREAD\n",
    "#              | |         |   |||||      |           |             |    |            |      |      |      |      |      |\n",
);

const USUAL_LATENCY: &str = concat!(
    "#                              ||| / _-=> migrate-disable\n",
    "#                              |||| /     delay\n",
    "#                              |||||            ACTIVATION\n",
    "#           TASK-PID      CPU# |||||   TIMESTAMP   ID            CONTEXT                 LATENCY\n",
    "#              | |         |   |||||      |         |                  |                       |\n",
);

const REAL_TIME_FLAGS: &str = concat!(
    "#                                _-------=> irqs-off\n",
    "#                               / _------=> need-resched\n",
    "#                              | / _-----=> need-resched-lazy\n",
    "#                              || / _----=> hardirq/softirq\n",
    "#                              ||| / _---=> preempt-depth\n",
    "#                              |||| / _--=> preempt-lazy-depth\n",
    "#                              ||||| / _-=> migrate-disable\n",
);

const REAL_TIME_NOISE: &str = concat!(
    "#                              |||||| /                                               MAX\n",
    "#                              ||||| /                                             SINGLE      Interference counters:\n",
    "#                              |||||||               RUNTIME      NOISE  %% OF CPU  NOISE    +-----------------------------+\n",
    "#           TASK-PID      CPU# |||||||   TIMESTAMP    IN US       IN US  AVAILABLE  IN US     HW    NMI    IRQ   SIRQ THREAD\n",
    "#              | |         |   |||||||      |           |             |    |            |      |      |      |      |      |\n",
);

const REAL_TIME_LATENCY: &str = concat!(
    "#                              |||||| /\n",
    "#                              |||||||             ACTIVATION\n",
    "#           TASK-PID      CPU# |||||||   TIMESTAMP    ID            CONTEXT                LATENCY\n",
    "#              | |         |   |||||||      |         |                  |                       |\n",
);

/// Appends the text of an empty `snapshot`, which explains how to use it.
pub(crate) fn unused_snapshot(out: &mut Vec<u8>, array: &Array, one_cpu: bool, allocated: bool) {
    tracer(out, array);
    let state = if allocated { "allocated" } else { "freed" };
    out.extend_from_slice(
        format!("#\n# * Snapshot is {state} *\n#\n# Snapshot commands:\n").as_bytes(),
    );
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
    out.extend_from_slice(
        b"#                      (Doesn't have to be '2' works with any number that\n",
    );
    out.extend_from_slice(b"#                       is not a '0' or '1')\n");
}
