//! Gives the dynamic library a name with the major version of its interface, which programs look for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libjitinject_c.so.{major}");
}
