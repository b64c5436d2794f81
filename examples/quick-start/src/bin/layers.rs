//! The program of the book's chapter on `tracing`: it logs warnings, and records everything.
#![forbid(unsafe_code)]

use tracing::{info, info_span};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

fn main() {
    lastwords::start("layers");
    let log = tracing_subscriber::fmt::layer().with_filter(LevelFilter::WARN);
    tracing_subscriber::registry().with(log).with(lastwords::layer()).init();

    let _import = info_span!("import", file = "orders.csv").entered();
    for line in 1u64..=1000 {
        info!(line, "read");
    }
    panic!("line 1001 is not UTF-8");
}
