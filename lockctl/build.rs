//! Refuses systems that `lockctl` does not run on, by one sentence and before anything is compiled.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_CFG_UNIX").is_none() {
        println!(
            "cargo::error=lockctl needs Linux or macOS: `lockctl run` signals the process group of its \
             command, and the default backend is SQLite; on Windows use the library polylock, or \
             lockctl in WSL"
        );
    }
}
