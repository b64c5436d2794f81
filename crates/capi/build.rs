//! Gives the shared library its soname.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblastwords.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
