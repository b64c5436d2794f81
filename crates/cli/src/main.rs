//! The command `lastwords`: controls sessions and recovers their events. It records nothing itself.
//! Each verb has one file.
#![forbid(unsafe_code)]

mod account;
mod args;
mod clocks;
mod complete;
mod control;
mod deaths;
#[cfg(feature = "debuginfod")]
mod debuginfod;
mod ended;
mod exit;
mod help;
mod histograms;
mod input;
mod kernel_log;
mod kernels;
mod lines;
mod memory;
mod metrics;
mod moment;
mod output;
mod outside;
mod pager;
mod paint;
mod progress;
mod say;
mod select;
mod stop;
mod table;
mod text;
mod traces;
mod value;
mod verbs;
mod verdict;

use std::process::ExitCode;

fn main() -> ExitCode {
    complete::answer();
    let args = args::parse();
    paint::init(args.color);
    exit::code(verbs::run(args.verb))
}
