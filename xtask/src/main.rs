//! Project automation
fn main() {}
