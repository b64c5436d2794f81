//! The program of the book's chapter on `tracing`: the layer of lastwords beside another layer.
#![forbid(unsafe_code)]

use lastwords::Session;
use tracing::{info, info_span};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    lastwords::crash::install_panic_hook();
    let _session = Session::builder("layers").errors_channel().start()?;
    tracing_subscriber::registry().with(lastwords::layer::layer()).init();

    let _import = info_span!("import", file = "orders.csv").entered();
    for line in 1u64..=1000 {
        info!(line, "read");
    }
    panic!("line 1001 is not UTF-8");
}
