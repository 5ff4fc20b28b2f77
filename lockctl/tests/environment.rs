//! What the command finds in its environment.

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::common::{Place, Process};

/// The variables that the command of this line sees.
fn seen(place: &Place, args: &[&str]) -> BTreeMap<String, String> {
    let line = [args, &["--", "env", "-0"]].concat();
    let output = place.run(&line);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("text");
    let pairs = text
        .split_terminator('\0')
        .map(|pair| pair.split_once('=').expect("a pair"));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn the_command_is_told_about_its_lock() {
    let place = Place::new();
    let vars = seen(&place, &["run", "--ttl", "20s", "orders/42"]);
    assert_eq!(vars["LOCK_HELD"], "1");
    assert_eq!(vars["LOCK_KEY"], "orders/42");
    assert_eq!(vars["LOCK_KEYS"], "orders/42");
    assert_eq!(vars["LOCK_NAMESPACE"], "");
    assert_eq!(vars["LOCK_BACKEND"], "sqlite");
    assert_eq!(vars["LOCK_TTL_MS"], "20000");
    assert_eq!(vars["LOCK_DEPTH"], "1");
    assert_eq!(vars["USER"], "deploy", "the rest is inherited");
    let token: u64 = vars["LOCK_FENCING_TOKEN"].parse().unwrap();
    assert_eq!(vars["LOCK_FENCING_TOKENS"], format!("orders/42={token}"));
    let (host, pid) = vars["LOCK_OWNER"].rsplit_once(':').unwrap();
    assert!(!host.is_empty() && pid.parse::<u32>().is_ok());
    let deadline = Duration::from_millis(vars["LOCK_DEADLINE_UNIX_MS"].parse().unwrap());
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    assert!(deadline < now + Duration::from_secs(20));
    assert!(deadline > now + Duration::from_secs(5));
}

#[test]
fn tokens_grow() {
    let place = Place::new();
    let token = || {
        seen(&place, &["run", "k"])["LOCK_FENCING_TOKEN"]
            .parse::<u64>()
            .unwrap()
    };
    let (first, second) = (token(), token());
    assert!(first < second, "{first} {second}");
}

#[test]
fn several_keys_come_sorted_with_a_token_each() {
    let place = Place::new();
    let vars = seen(&place, &["--namespace", "shop", "run", "b", "a=1", "b"]);
    assert_eq!(vars["LOCK_KEY"], "a=1");
    assert_eq!(vars["LOCK_KEYS"], "a=1\nb");
    assert_eq!(vars["LOCK_NAMESPACE"], "shop");
    let lines: Vec<_> = vars["LOCK_FENCING_TOKENS"].lines().collect();
    let keys: Vec<_> = lines
        .iter()
        .map(|line| line.rsplit_once('=').unwrap().0)
        .collect();
    assert_eq!(keys, ["a=1", "b"]);
}

#[test]
fn an_inner_lock_replaces_what_the_outer_one_said() {
    let place = Place::new();
    let lockctl = env!("CARGO_BIN_EXE_lockctl");
    let vars = seen(
        &place,
        &[
            "run", "--ttl", "20s", "outer", "--", lockctl, "run", "inner",
        ],
    );
    assert_eq!(vars["LOCK_KEY"], "inner");
    assert_eq!(vars["LOCK_DEPTH"], "2");
    assert_eq!(vars["LOCK_TTL_MS"], "30000");
    let held: serde_json::Value = serde_json::from_str(&vars["LOCK_HELD_KEYS"]).unwrap();
    assert_eq!(
        (&held[0]["key"], &held[1]["key"]),
        (&"outer".into(), &"inner".into())
    );
}

#[test]
fn the_same_key_again_is_refused_instead_of_waited_for() {
    let place = Place::new();
    let lockctl = env!("CARGO_BIN_EXE_lockctl");
    for inner in [
        &[lockctl, "run", "k", "--", "true"][..],
        &[lockctl, "acquire", "k"],
    ] {
        let line = [&["run", "j", "k", "--"], inner].concat();
        let outer = place.start(&line);
        let pid = outer.pid().as_raw_nonzero();
        let output = outer.output();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{said}");
        let expected = format!("error: you already hold k (outer lockctl pid {pid})");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn the_same_key_elsewhere_is_another_lock() {
    let place = Place::new();
    let lockctl = env!("CARGO_BIN_EXE_lockctl");
    for elsewhere in [["--namespace", "other"], ["--backend", "sqlite:other.db"]] {
        let inner = [
            &[lockctl],
            &elsewhere[..],
            &["run", "-n", "k", "--", "true"],
        ]
        .concat();
        let line = [&["run", "k", "--"], &inner[..]].concat();
        assert_eq!(place.code(&line), (0, String::new()));
    }
}

#[test]
fn a_process_that_outlived_its_lockctl_may_wait_for_the_lock() {
    let place = Place::new();
    let lockctl = env!("CARGO_BIN_EXE_lockctl");
    // The daemon is started under the lock, survives it, and takes it later.
    let daemon = format!(
        "setsid sh -c 'until test -e go; do sleep 0.01; done; {lockctl} run k -- touch done' >/dev/null 2>&1 &"
    );
    assert_eq!(place.code(&["run", "k", "--", "sh", "-c", &daemon]).0, 0);
    std::fs::write(place.file("go"), "").unwrap();
    common::until("the daemon had the lock", || place.file("done").exists());
}

#[test]
fn arguments_and_environment_need_not_be_utf8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let place = Place::new();
    let odd = OsStr::from_bytes(b"\xff odd");
    let mut command = place.lockctl(&["run", "k", "--", "sh", "-c", "printf %s \"$1$ODD\"", "sh"]);
    command.arg(odd).env("ODD", odd);
    assert_eq!(Process::start(command).output().stdout, b"\xff odd\xff odd");
}

#[test]
fn the_shell_option_runs_a_line() {
    let place = Place::new();
    let mut command = place.lockctl(&["run", "k", "-c", "echo \"$0 $LOCK_KEY\""]);
    command.env("SHELL", "/bin/sh");
    let output = Process::start(command).output();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "/bin/sh k\n");
}
