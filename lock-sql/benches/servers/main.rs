//! What locks on PostgreSQL and MariaDB cost, beside the bare statements of the same client in the
//! same run.
//!
//! `cargo bench -p lock-sql --features postgres,mysql,sqlite --bench servers
//! [pair|many|handoff|queue|renew]... [postgres|mariadb]`
//!
//! The server runs on processor 0 and the clients on processor 1, like two hosts: left alone, the
//! scheduler moves them together and apart, and a figure changes by a factor of three. The servers do
//! not wait for their disks, which would hide what the client costs, where a row does not say so.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program")]

mod bare;
mod figures;
mod handoff;
mod locks;
mod many;
mod pair;
mod queue;
mod renew;
mod server;

use self::server::Database;

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    // Threads that are there already keep their processors, and this one is the first.
    server::pin(rustix::process::getpid().as_raw_nonzero().get(), 1);
    if let [contender, url, rounds] = args.as_slice()
        && contender == "contend"
    {
        return handoff::contend(url, rounds.parse().unwrap());
    }
    let measures = [
        ("pair", pair::run as fn(Database)),
        ("many", many::run),
        ("handoff", handoff::run),
        ("queue", queue::run),
        ("renew", renew::run),
    ];
    let databases = [Database::Postgres, Database::MariaDb];
    for arg in &args {
        let is_measure = measures.iter().any(|(name, _)| arg == name);
        let is_database = databases.iter().any(|database| database.is_called(arg));
        assert!(is_measure || is_database, "what is {arg}?");
    }
    let all = |one: &dyn Fn(&str) -> bool| !args.iter().any(|arg| one(arg));
    let all_measures = all(&|arg| measures.iter().any(|(name, _)| arg == *name));
    let all_databases = all(&|arg| databases.iter().any(|database| database.is_called(arg)));
    for (name, run) in measures {
        if !all_measures && !args.iter().any(|arg| arg == name) {
            continue;
        }
        for database in databases {
            if all_databases || args.iter().any(|arg| database.is_called(arg)) {
                run(database);
            }
        }
        if name == "handoff" && all_databases {
            handoff::run_sqlite();
        }
    }
}
