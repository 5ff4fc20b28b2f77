//! Elections and jobs on servers.

use std::time::Duration;

use lock_testkit::proxy::{Command, Fate, Proxy, Then};
use lock_testkit::servers::{
    EtcdServer, PostgresServer, RedisOptions, RedisServer, ZooKeeperServer,
};
use rustix::process::Signal;

use crate::fixture::{Place, UNTIL_GO, is_alive, pid_of, side_by_side, until};
use crate::lead::assert_command_moves_when_its_host_dies;
use crate::loss::{moment, relied_on_until};
use crate::once::assert_runs_once;

const TTL: Duration = Duration::from_secs(8);

#[test]
fn the_command_moves_when_its_host_dies_on_every_kind_of_server() {
    let (redis, root) = (RedisServer::start(RedisOptions::new()), std::process::id());
    let zookeeper = ZooKeeperServer::shared().url();
    let urls = [
        redis.url(),
        format!("{zookeeper}/lockctl-lead-{root}?session-timeout=8s"),
        format!("{}?mode=row", PostgresServer::shared().database()),
    ];
    side_by_side(&urls, |url| {
        assert_command_moves_when_its_host_dies(url, TTL);
    });
}

#[test]
fn a_host_that_leads_and_one_that_waits_survive_an_outage_of_their_server() {
    let (server, place) = (RedisServer::start(RedisOptions::new()), Place::new());
    let options = format!("--backend {} --ttl 10s", server.url());
    let deaf = "trap '' TERM; while :; do date +%s%3N > beat.new; mv beat.new beat; done";
    let leader = place.host("a", &format!("{options} --events events"), deaf);
    place.until_there("beat");
    let mut hosts = [leader, place.waiting("b", &options)];
    let command = pid_of(&place.read("a"));
    server.kill();
    until("the command is dead", || !is_alive(command));
    // A busy machine may delay the kill by the safety margin, a tenth of the TTL: 1 s.
    let (lease, beat) = (relied_on_until(&place) + 1000, moment(&place, "beat"));
    assert!(
        beat < lease,
        "it lived until {beat}, its lease until {lease}"
    );
    place.remove(&["a"]);
    server.restart();
    until("one of them leads", || {
        place.file("a").exists() || place.file("b").exists()
    });
    place.assert_never_met();
    for host in &mut hosts {
        host.signal(Signal::TERM);
    }
    for host in hosts {
        host.expect(0);
    }
}

#[test]
fn a_command_runs_once_on_every_kind_of_server() {
    let (redis, root) = (RedisServer::start(RedisOptions::new()), std::process::id());
    let zookeeper = ZooKeeperServer::shared().url();
    let mut urls = vec![
        redis.url(),
        format!("{zookeeper}/lockctl-once-{root}"),
        format!("{}?mode=lease", PostgresServer::shared().database()),
    ];
    if cfg!(feature = "etcd") {
        let port = EtcdServer::shared()[0];
        urls.push(format!("etcd://127.0.0.1:{port}/lockctl-once-{root}"));
    }
    side_by_side(&urls, |url| assert_runs_once(url));
}

#[test]
fn a_signal_ends_the_recording_of_a_run() {
    let (server, place) = (RedisServer::start(RedisOptions::new()), Place::new());
    let options = format!(
        "--backend {} --once-per 1h --ttl 60s --events events k",
        server.url()
    );
    let process = place.hold(&options, UNTIL_GO);
    server.kill();
    place.go();
    place.event("child_exit");
    let ended = process.terminate(0);
    ended.says(&["k: the run may not be recorded, and others may repeat it: ended by TERM\n"]);
    assert_eq!(place.event("recorded")["outcome"], "unrecorded");
}

#[test]
fn a_loss_that_is_noticed_while_a_run_is_recorded_counts() {
    let (server, place) = (RedisServer::start(RedisOptions::new()), Place::new());
    let proxy = Proxy::start(server.port());
    let url = format!("{}?timeout=10s", proxy.url());
    let options = format!("--backend {url} --once-per 1h --ttl 1m --events events k");
    let process = place.hold(&options, UNTIL_GO);
    let is_record = |command: &Command| command.has("{lock:k}:record");
    let record = proxy.plan(is_record, Fate::LateReply(Duration::from_secs(30)));
    place.go();
    until("the run is being recorded", || record.struck() > 0);
    place.expect(0, &format!("--backend {} break --yes k", server.url()));
    let ended = process.expect(79);
    ended.says(&["error: lost the lock on k: it had ended before the command did"]);
    assert_eq!(place.event("recorded")["outcome"], "unrecorded");
}

#[test]
fn a_release_of_a_job_that_is_not_confirmed_is_a_warning() {
    let (server, place) = (RedisServer::start(RedisOptions::new()), Place::new());
    let (proxy, url) = (Proxy::start(server.port()), server.url());
    let options = "--once-per 1h --ttl 1m --events events k";
    let process = place.hold(&format!("--backend {} {options}", proxy.url()), UNTIL_GO);
    let is_release = |command: &Command| command.is("EVALSHA") && command.has("lock:k");
    let release = proxy.plan(is_release, Fate::LostReply(Then::Cut));
    place.go();
    let ended = process.expect(0);
    assert_eq!(release.struck(), 1, "{ended}");
    ended.says(&["warning: the release is not confirmed: "]);
    assert_eq!(place.event("recorded")["outcome"], "ran");
    place.expect(0, &format!("--backend {url} try k"));
}

#[test]
fn a_user_without_access_to_records_sees_the_rest() {
    let rules = "on >secret ~lock:k ~{lock:k}:waiters ~{lock:k}:notes ~{lock}:tokens &* +@all";
    let server = RedisServer::start(RedisOptions::new().with_user("ops", rules));
    let (place, url) = (Place::new(), server.url());
    let line =
        format!("--backend {url} lead --address here k -- sh -c 'touch begun; exec sleep 60'");
    let _leader = place.start(&line);
    place.until_there("begun");
    let url = url.replace("redis://", "redis://ops:secret@");
    let ended = place.expect(0, &format!("--backend {url} inspect k"));
    ended
        .prints(&["holder ", "lease "])
        .says(&["lockctl: its record cannot be read: "])
        .says_nothing_of(&["address"]);
}
