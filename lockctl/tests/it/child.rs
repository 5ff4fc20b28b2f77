//! The command: its streams, its process group, its signals, its end.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::fixture::{
    LOCKCTL, Place, Process, UNTIL_GO, assert_dead, children, full_pipe, is_alive, pid_of, state,
    until,
};

/// A script goes on forever.
const FOREVER: &str = "while :; do sleep 0.05; done";

#[test]
fn standard_streams_are_those_of_lockctl() {
    let place = Place::new();
    let mut process = place.program(
        LOCKCTL,
        &["run", "k", "--", "sh", "-c", "cat; echo oops >&2"],
    );
    process.enter("in\n");
    process.child.stdin.take();
    process.expect(0).prints_only("in\n").says_only("oops\n");
}

#[test]
fn signals_reach_the_whole_group_of_the_command() {
    let signals = [
        ("INT", Signal::INT),
        ("TERM", Signal::TERM),
        ("HUP", Signal::HUP),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("WINCH", Signal::WINCH),
    ];
    let place = Place::new();
    for (name, signal) in signals {
        // The trap belongs to a grandchild, which a signal to the command alone would not reach.
        let script = format!(
            "trap : {name}
             sh -c 'trap \"echo {name} >> got; exit\" {name}; touch ready; {FOREVER}'
             exit 5"
        );
        let mut process = place.hold("k", &script);
        place.until_there("ready");
        process.signal(signal);
        process.expect(5);
        assert_eq!(
            place.read("got"),
            format!("{name}\n"),
            "the signals that came"
        );
        place.remove(&["got", "ready"]);
    }
}

#[test]
fn the_second_interrupt_kills() {
    let place = Place::new();
    let script = format!("trap 'echo x >> got' INT; touch ready; {FOREVER}");
    let mut process = place.hold("k", &script);
    place.until_there("ready");
    process.signal(Signal::INT);
    process.until("the first is passed on", |_| place.read("got") == "x\n");
    assert!(
        process.is_running(),
        "the first interrupt has ended lockctl"
    );
    process.signal(Signal::INT);
    process.expect(137);
    assert!(!place.is_held("k"), "the command is killed and k is held");
}

#[test]
fn the_command_dies_with_lockctl() {
    let place = Place::new();
    let mut process = place.hold("k", &format!("trap '' TERM HUP INT; {FOREVER}"));
    let command = place.pid();
    assert!(is_alive(command), "the command has ended by itself");
    process.signal(Signal::KILL);
    assert_eq!(process.code(), 137);
    until("the command is dead", || !is_alive(command));
}

/// A command that the kernel does not kill with `lockctl`.
pub(crate) const LIVES_ON: &str =
    "exec setpriv --pdeathsig clear sh -c 'touch cleared; exec sleep 60'";

/// A lease ends after its ttl, whatever the command does. This is a limit, and not a promise.
#[test]
fn a_command_that_outlives_lockctl_and_its_lease_meets_the_next_one() {
    let place = Place::new();
    let mut process = place.hold("--ttl 5s k", LIVES_ON);
    place.until_there("cleared");
    process.signal(Signal::KILL);
    assert_eq!(process.code(), 137);
    place.until_free("k");
    place.expect(0, "run -n k -- true");
    let command = place.pid();
    assert!(is_alive(command), "the command has ended by itself");
    kill_process(command, Signal::KILL).expect("it is there");
}

#[test]
fn the_command_leads_a_group_of_its_own_without_a_terminal() {
    let place = Place::new();
    for (option, is_leader) in [("", true), ("--pgid own", true), ("--pgid inherit", false)] {
        let script = "cut -d\" \" -f5 /proc/$$/stat; echo $$";
        let ended = place.expect(0, &format!("run k {option} -- sh -c '{script}'"));
        let numbers: Vec<_> = ended.stdout.split_whitespace().collect();
        assert_eq!(
            numbers[0] == numbers[1],
            is_leader,
            "group and process: {ended}"
        );
    }
}

#[test]
fn a_command_on_a_terminal_stays_in_the_foreground() {
    let place = Place::new();
    // A background group would be stopped as soon as it reads.
    let mut process = place.terminal(&format!("{LOCKCTL} run k -- sh -c 'read x; echo got $x'"));
    process.enter("word\n");
    process.expect(0).prints(&["got word"]);
}

/// Runs a command by `lockctl run OPTIONS` on a terminal, and enters Ctrl-C twice.
#[track_caller]
fn assert_interrupts_come_once(options: &str, redirection: &str) {
    let place = Place::new();
    let script = format!("trap \"echo x >> got\" INT; touch ready; {UNTIL_GO}; exit 3");
    let line = format!("exec {LOCKCTL} run {options} -- sh -c '{script}' {redirection}");
    let mut process = place.terminal(&line);
    place.until_there("ready");
    for interrupts in ["x\n", "x\nx\n"] {
        process.enter("\x03");
        process.until("the interrupt reaches the command", |_| {
            place.read("got") == interrupts
        });
    }
    place.go();
    process.expect(3);
    assert_eq!(place.read("got"), "x\nx\n", "a line for each interrupt");
}

#[test]
fn an_interrupt_on_a_terminal_reaches_the_command_once() {
    assert_interrupts_come_once("k", "");
}

#[test]
fn an_interrupt_reaches_a_command_in_the_foreground_once_without_its_input() {
    assert_interrupts_come_once("k --pgid inherit", "</dev/null");
}

/// Has Ctrl-Z stop both. The command must not fork: the kernel may not call a shell stopped that
/// waits for a child that is stopped before it has become another program.
fn stop_both(process: &mut Process, command: Pid) {
    process.signal(Signal::TSTP);
    process.until("both are stopped", |process| {
        state(process.pid()) == Some('T') && state(command) == Some('T')
    });
}

#[test]
fn ctrl_z_stops_both_and_fg_lets_both_go_on() {
    let place = Place::new();
    let mut process = place.hold("k", "until test -e go; do :; done; exit 4");
    stop_both(&mut process, place.pid());
    place.go();
    process.signal(Signal::CONT);
    process.expect(4);
}

#[test]
fn a_command_that_slept_through_its_lease_does_not_go_on() {
    let place = Place::new();
    let script = "trap 'echo > went-on' CONT TERM; while :; do :; done";
    let mut process = place.hold("--ttl 3s k", script);
    let command = place.pid();
    stop_both(&mut process, command);
    place.until_free("k");
    process.signal(Signal::CONT);
    process.expect(79);
    assert_dead(command);
    assert!(
        !place.file("went-on").exists(),
        "the command went on without its lock"
    );
}

#[test]
fn a_command_that_ended_after_its_lease_is_not_a_success() {
    let place = Place::new();
    let mut process = place.hold("--ttl 1s k", UNTIL_GO);
    let command = place.pid();
    process.signal(Signal::STOP);
    place.until_free("k");
    place.go();
    until("the command has ended", || !is_alive(command));
    process.signal(Signal::CONT);
    process.expect(79).says(&["ended with exit status: 0"]);
}

/// It must do nothing more, not even at its signal: another client may hold the lock.
#[test]
fn a_command_whose_lease_has_ended_is_killed_at_once() {
    let place = Place::new();
    let script = "trap 'touch asked' TERM; touch ready; while :; do sleep 0.05; done";
    let mut process = place.hold("--ttl 3s k", script);
    place.until_there("ready");
    process.signal(Signal::STOP);
    place.until_free("k");
    process.signal(Signal::CONT);
    let ended = process
        .expect(79)
        .says(&["killing the command", "signal: 9"]);
    ended.says_nothing_of(&["TERM now", "in 0ms"]);
    assert!(!place.file("asked").exists(), "it got TERM first");
}

#[test]
fn a_command_that_runs_too_long_is_stopped() {
    let place = Place::new();
    let options = "--max-run 2s --kill-after 1s k";
    place.holder(options).expect(143);
    place
        .hold(options, &format!("trap '' TERM; {FOREVER}"))
        .expect(137);
    assert_dead(place.pid());
    assert!(!place.is_held("k"), "the command is killed and k is held");
}

#[test]
fn a_normal_end_leaves_other_processes_of_the_command_alone() {
    let place = Place::new();
    let script = "sleep 60 >/dev/null 2>&1 & echo $! > background";
    place.hold("k", script).expect(0);
    let background = pid_of(&place.read("background"));
    assert!(
        is_alive(background),
        "the process in the background is dead"
    );
    kill_process(background, Signal::KILL).expect("it is there");
}

/// A shell dies from the signal at once, and the program that it waits for takes its time for an orderly end.
#[test]
fn a_lock_is_held_until_all_have_ended_that_were_asked_to() {
    let job = "trap 'sleep 1; touch done; exit' TERM; touch ready; while :; do sleep 0.05; done";
    // The second is in a group of its own, the third in that of lockctl.
    for (options, starter) in [("k", ""), ("k", "timeout 60 "), ("--pgid inherit k", "")] {
        let place = Place::new();
        let script = format!("{starter}sh -c \"{job}\"; true");
        let process = place.hold(options, &script);
        place.until_there("ready");
        process.terminate(143);
        let what = format!("{options} {starter}");
        assert!(place.file("done").exists(), "released before: {what}");
        assert!(!place.is_held("k"), "not released: {what}");
    }
}

/// As when systemd stops a unit: the command may be dead before lockctl has read its own signal.
#[test]
fn a_lock_is_held_until_all_have_ended_that_got_a_signal_together() {
    let place = Place::new();
    let job = "trap 'sleep 1; touch done; exit' TERM; touch ready; while :; do sleep 0.05; done";
    let mut process = place.hold("k", &format!("sh -c \"{job}\"; true"));
    place.until_there("ready");
    process.signal(Signal::STOP);
    kill_process_group(place.pid(), Signal::TERM).expect("it is there");
    until("the command is dead", || !is_alive(place.pid()));
    process.signal(Signal::TERM);
    process.signal(Signal::CONT);
    process.expect(143);
    assert!(
        place.file("done").exists(),
        "released before the job has ended"
    );
    assert!(!place.is_held("k"), "not released");
}

#[test]
fn what_a_command_that_was_asked_to_end_has_left_is_killed_after_a_time() {
    let place = Place::new();
    let script = "sh -c 'trap \"\" TERM; echo $$ >background; while :; do sleep 0.05; done' & \
                  until test -s background; do :; done; touch ready; wait";
    let process = place.hold("--kill-after 1s k", script);
    place.until_there("ready");
    let background = pid_of(&place.read("background"));
    let began = Instant::now();
    process.terminate(143);
    assert_dead(background);
    let took = began.elapsed();
    assert!(took > Duration::from_millis(900), "killed after {took:?}");
}

/// As timeout(1) and setsid(1) do.
#[test]
fn a_process_in_a_group_of_its_own_does_not_outlive_the_lock() {
    let place = Place::new();
    let script = "timeout 60 sh -c 'echo $$ >job.new; mv job.new job; exec sleep 60'; true";
    let process = place.hold("k", script);
    place.until_there("job");
    place.expect(0, "break k --yes");
    process.expect(79);
    assert_dead(pid_of(&place.read("job")));

    place.remove(&["job"]);
    let process = place.hold("--max-run 1s k", script);
    place.until_there("job");
    let job = pid_of(&place.read("job"));
    process.expect(143);
    assert_dead(job);
}

#[test]
fn orphans_of_a_command_leave_no_zombies() {
    let place = Place::new();
    let script = "for i in 1 2 3 4 5; do (sleep 0.01 &); done; touch ready; exec sleep 60";
    for options in ["k", "--pgid inherit k"] {
        let mut process = place.hold(options, script);
        place.until_there("ready");
        let (lockctl, command) = (process.pid(), place.pid());
        process.until("the orphans are gone", |_| children(lockctl) == [command]);
        process.terminate(143);
        place.remove(&["ready"]);
    }
}

#[test]
fn a_reader_that_does_not_read_holds_up_no_command() {
    let place = Place::new();
    // Standard error is a full pipe from the beginning, and the command leaves it alone.
    let (reader, full) = full_pipe();
    let mut command = place.lockctl("run k --max-run 200ms -- sh -c 'exec sleep 60 2>&-'");
    command.stderr(full);
    Process::start(command).expect(143);
    drop(reader);

    let (reader, full) = full_pipe();
    let mut command = place.lockctl("run k -- no-such-command");
    command.stderr(full);
    Process::start(command).expect(127);
    drop(reader);
}
