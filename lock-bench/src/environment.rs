//! Where and with what a run is made.

use std::fs;
use std::net::IpAddr;
use std::thread;
use std::time::SystemTime;

use polylock::LockUrl;

use crate::report::Environment;

/// That of this process.
pub(crate) fn of_this_machine() -> Environment {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let load = load();
    let mut warnings = Vec::new();
    if cfg!(debug_assertions) {
        warnings.push("built without optimization: the figures are those of a debug build".into());
    }
    if load > cores as f64 / 2.0 {
        let text = format!("the machine was busy before the run: load {load:.1} on {cores} cores");
        warnings.push(text);
    }
    Environment {
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        processor: processor(),
        cores: u32::try_from(cores).unwrap_or(u32::MAX),
        kernel: kernel(),
        version: match option_env!("POLYLOCK_COMMIT") {
            Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
            None => env!("CARGO_PKG_VERSION").to_owned(),
        },
        build: match cfg!(debug_assertions) {
            true => concat!(env!("LOCK_BENCH_RUSTC"), ", debug").to_owned(),
            false => concat!(env!("LOCK_BENCH_RUSTC"), ", release").to_owned(),
        },
        load,
        warnings,
    }
}

/// A warning if some of the URLs lead to this machine and some away from it.
pub(crate) fn distances<'a>(urls: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let (mut near, mut far) = (false, false);
    for url in urls {
        let Ok(url) = LockUrl::parse(url) else {
            continue;
        };
        let is_far = url.hosts().iter().any(|host| !is_this_machine(&host.name));
        near |= !is_far;
        far |= is_far;
    }
    let text = "some targets are on this machine and some are not: compare them in round trips";
    (near && far).then(|| text.to_owned())
}

fn is_this_machine(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']);
    let is_loopback = address
        .parse()
        .is_ok_and(|address: IpAddr| address.is_loopback());
    is_loopback || address.eq_ignore_ascii_case("localhost")
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": "));
    model
        .map_or(std::env::consts::ARCH, |(_, name)| name)
        .to_owned()
}

fn kernel() -> String {
    let names = rustix::system::uname();
    let (name, release) = (names.sysname(), names.release());
    format!("{} {}", name.to_string_lossy(), release.to_string_lossy())
}

/// Of the last minute; 0 where the system does not tell.
fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|load| load.parse().ok());
    first.unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_of_this_machine() {
        let environment = of_this_machine();
        assert!(environment.started.starts_with("20"), "{environment:?}");
        assert!(environment.kernel.starts_with("Linux "), "{environment:?}");
        assert!(environment.build.contains("rustc 1."), "{environment:?}");
        assert!(environment.cores > 0 && environment.load >= 0.0);
    }

    #[test]
    fn near_and_far_targets_are_told_apart() {
        let near = ["memory:", "sqlite:locks.db", "redis://127.0.0.1:7000"];
        let cases: &[(&[&str], bool)] = &[
            (&[], false),
            (&near, false),
            (&["redis://cache", "postgres://db/locks"], false),
            (&["redis://localhost", "zk://[::1]:2181"], false),
            (&["redis://LOCALHOST", "postgres://db/locks"], true),
            (&["memory:", "zk://zk1,zk2"], true),
            (&["memory:", "(not a URL)"], false),
        ];
        for (urls, is_mixed) in cases {
            let warning = distances(urls.iter().copied());
            assert_eq!(warning.is_some(), *is_mixed, "{urls:?}");
        }
    }
}
