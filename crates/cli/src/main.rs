//! `lastwords`: records nothing itself; controls sessions, and recovers what they held. One file a verb.
#![forbid(unsafe_code)]

mod args;
mod control;
mod crash;
mod ctf;
mod evidence;
mod exit;
mod ftrace;
mod holds;
mod inputs;
mod lttng;
mod memory;
mod meter;
mod moment;
mod names;
mod output;
mod pager;
mod paint;
mod progress;
mod say;
mod select;
mod table;
mod verbs;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args = args::parse();
    paint::init(args.color);
    exit::code(verbs::run(args.verb))
}
