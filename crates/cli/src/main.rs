//! lastwords: the command line
fn main() {}
