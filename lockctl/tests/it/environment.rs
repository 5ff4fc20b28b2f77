//! The environment of the command.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use crate::fixture::{LOCKCTL, Place, Process};

/// The variables of the command of this line.
#[track_caller]
fn seen(place: &Place, line: &str) -> BTreeMap<String, String> {
    let ended = place.expect(0, &format!("{line} -- env -0"));
    let pairs = ended.stdout.split_terminator('\0');
    let pairs = pairs.map(|pair| pair.split_once('=').expect("env prints pairs"));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[track_caller]
fn assert_are(variables: &BTreeMap<String, String>, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        let found = variables.get(*name).map(String::as_str);
        assert_eq!(found, Some(*value), "{name} of {variables:#?}");
    }
}

#[test]
fn the_command_is_told_about_its_lock() {
    let place = Place::new();
    let vars = seen(&place, "run --ttl 20s orders/42");
    let token = &vars["LOCK_FENCING_TOKEN"];
    let expected = [
        ("LOCK_HELD", "1"),
        ("LOCK_KEY", "orders/42"),
        ("LOCK_KEYS", "orders/42"),
        ("LOCK_NAMESPACE", ""),
        ("LOCK_BACKEND", "sqlite"),
        ("LOCK_TTL_MS", "20000"),
        ("LOCK_DEPTH", "1"),
        ("USER", "deploy"),
        ("LOCK_FENCING_TOKENS", &format!("orders/42={token}")),
    ];
    assert_are(&vars, &expected);
    assert!(token.parse::<u64>().is_ok(), "the token is {token}");
    let owner = &vars["LOCK_OWNER"];
    let (host, pid) = owner.rsplit_once(':').expect("a host and a process");
    assert!(
        !host.is_empty() && pid.parse::<u32>().is_ok(),
        "the owner is {owner}"
    );
    let deadline = vars["LOCK_DEADLINE_UNIX_MS"].parse();
    let deadline = Duration::from_millis(deadline.expect("milliseconds"));
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("1970 is over");
    let soon = now + Duration::from_secs(5)..now + Duration::from_secs(20);
    assert!(
        soon.contains(&deadline),
        "the deadline is {deadline:?}, and it is {now:?}"
    );
    let next = &seen(&place, "run orders/42")["LOCK_FENCING_TOKEN"];
    assert!(
        token.parse::<u64>().ok() < next.parse().ok(),
        "the token is {token}, and the next one {next}"
    );
}

#[test]
fn several_keys_come_sorted_with_a_token_each() {
    let place = Place::new();
    let vars = seen(&place, "--namespace shop run b a=1 b");
    let expected = [
        ("LOCK_KEY", "a=1"),
        ("LOCK_KEYS", "a=1\nb"),
        ("LOCK_NAMESPACE", "shop"),
    ];
    assert_are(&vars, &expected);
    let tokens = vars["LOCK_FENCING_TOKENS"].lines();
    let keys: Vec<_> = tokens.filter_map(|line| line.rsplit_once('=')).collect();
    let [("a=1", first), ("b", _)] = keys[..] else {
        panic!("the tokens are {keys:?}");
    };
    assert_eq!(vars["LOCK_FENCING_TOKEN"], first);
}

/// Linux allows 128 KiB for one variable.
#[cfg(target_os = "linux")]
#[test]
fn more_keys_than_a_variable_holds_are_refused_before_any_is_locked() {
    let place = Place::new();
    let run = |count: usize| {
        let keys = (0..count).map(|number| format!("{number:0>200}"));
        let mut command = place.lockctl("run -n");
        command.args(keys).args(["--", "true"]);
        Process::start(command)
    };
    let _holder = place.holder(&"0".repeat(200));
    let ended = run(600).expect(64);
    ended.says(&["too many keys for one command: with 600 more, LOCK_HELD_KEYS would have "]);
    run(400).expect(75);
}

#[test]
fn an_inner_lock_replaces_the_variables_of_the_outer_one() {
    let place = Place::new();
    let line = format!("run --ttl 20s outer -- {LOCKCTL} run inner");
    let vars = seen(&place, &line);
    let expected = [
        ("LOCK_KEY", "inner"),
        ("LOCK_DEPTH", "2"),
        ("LOCK_TTL_MS", "30000"),
    ];
    assert_are(&vars, &expected);
    let held = &vars["LOCK_HELD_KEYS"];
    let keys: serde_json::Value = serde_json::from_str(held).expect("JSON");
    assert_eq!(keys[0]["key"], "outer", "{held}");
    assert_eq!(keys[1]["key"], "inner", "{held}");
}

#[test]
fn the_same_key_again_is_refused_instead_of_waited_for() {
    let place = Place::new();
    for inner in ["run k -- true", "acquire k"] {
        let outer = place.start(&format!("run j k -- {LOCKCTL} {inner}"));
        let pid = outer.child.id();
        let expected = format!("error: you already hold k (outer lockctl pid {pid})");
        outer.expect(64).says(&[&expected]);
    }
}

#[test]
fn the_same_key_of_a_lock_on_two_backends_is_refused_on_either() {
    let place = Place::new();
    place.write_migration("sqlite:old.db");
    let both = "--config lock.toml";
    for one in ["--backend sqlite:old.db", "--backend sqlite:new.db"] {
        for (outer, inner) in [(both, one), (one, both)] {
            let line = format!("{outer} run k -- {LOCKCTL} {inner} run -n k -- true");
            let ended = place.expect(64, &line);
            ended.says(&["error: you already hold k (outer lockctl pid "]);
        }
    }
    let line = format!("{both} run k -- {LOCKCTL} --backend sqlite:third.db run -n k -- true");
    place.expect(0, &line);
}

#[test]
fn the_same_key_elsewhere_is_another_lock() {
    let place = Place::new();
    for elsewhere in ["--namespace other", "--backend sqlite:other.db"] {
        let line = format!("run k -- {LOCKCTL} {elsewhere} run -n k -- true");
        place.expect(0, &line).says_only("");
    }
}

#[test]
fn a_process_that_outlived_its_lockctl_may_wait_for_the_lock() {
    let place = Place::new();
    // The daemon is started under the lock, survives it, and acquires it later.
    let daemon = format!(
        "setsid sh -c \"until test -e go; do sleep 0.05; done; {LOCKCTL} run k -- touch done\" \
         >/dev/null 2>&1 &"
    );
    place.expect(0, &["run", "k", "--", "sh", "-c", &daemon]);
    place.go();
    place.until_there("done");
}

#[test]
fn arguments_and_environment_need_not_be_utf8() {
    let place = Place::new();
    let odd = OsStr::from_bytes(b"\xff odd");
    let mut command = place.lockctl("run k -- sh -c 'printf %s \"$1$ODD\" | od -An -tx1' sh");
    command.arg(odd).env("ODD", odd);
    let ended = Process::start(command).expect(0);
    ended.prints_only(" ff 20 6f 64 64 ff 20 6f 64 64\n");
}

#[test]
fn the_shell_option_runs_a_line() {
    let place = Place::new();
    let line = "run k -c 'echo \"$0 $LOCK_KEY\"'";
    let ended = place.expect_with(0, line, &[("SHELL", "/bin/sh")]);
    ended.prints_only("/bin/sh k\n");
}
