//! What the layer costs, through real HTTP on loopback, beside the same routes without it.
//!
//! `cargo bench -p lock-tower --features axum --bench http [alone|distinct|added|hot]...`
//!
//! Server, clients and what they lock with share the processors of this machine. Figures compare
//! within one run only: the contenders of a table take turns, and each row is the median of its
//! turns.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program")]

mod added;
mod alone;
mod distinct;
mod hot;
mod load;
mod routes;

fn main() {
    let measures = [
        ("alone", alone::run as fn()),
        ("distinct", distinct::run),
        ("added", added::run),
        ("hot", hot::run),
    ];
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().filter(|arg| *arg != "--bench").collect();
    for arg in &args {
        let is_known = measures.iter().any(|(name, _)| arg == name);
        assert!(is_known, "what is {arg}?");
    }
    for (name, run) in measures {
        if args.is_empty() || args.iter().any(|arg| *arg == name) {
            run();
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn median<T: Copy + PartialOrd>(mut values: Vec<T>) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap());
    values[values.len() / 2]
}
