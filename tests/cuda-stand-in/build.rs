//! Gives the shared library the name under which cudarc looks for NVIDIA's driver.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
}
