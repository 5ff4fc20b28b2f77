//! Processes on one file whose kernel tells them different things about its boot and its clock.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Place, program};
use lock_testkit::history::What;
use lock_testkit::taker::{Take, Taker, TakerProcess};
use polylock_core::prelude::*;

const TTL: Duration = Duration::from_secs(3);
/// Additional time for a busy machine.
const SLACK: Duration = Duration::from_secs(4);

/// What a process sees.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum World {
    /// What the machine has.
    NetworkHost,
    /// A boot id of its own, as in LXC, Incus and systemd-nspawn.
    BootId,
    /// A boot clock that is a day ahead.
    Ahead,
    /// The same without a way to learn that.
    AheadUnknown,
    /// Both.
    BootIdAhead,
}

/// A lock-taker in that world, which lives as long as the process that starts it.
fn take(place: &Place, world: World) -> Take {
    let mut unshare = Vec::new();
    let mut mounts = String::new();
    if Command::new("id").arg("-u").output().unwrap().stdout != b"0\n" {
        unshare.push("--user --map-root-user");
    }
    let mut cover = |name: &str, content: &str, path: &str| {
        let file = place.file(name);
        fs::write(&file, content).unwrap();
        mounts += &format!("mount --bind '{}' {path} && ", file.display());
    };
    if matches!(world, World::BootId | World::BootIdAhead) {
        let id = "01234567-89ab-4cde-8f01-23456789abcd\n";
        cover("boot_id", id, "/proc/sys/kernel/random/boot_id");
    }
    if matches!(world, World::AheadUnknown) {
        // Of a process that is no more; the lock-taker replaces the shell.
        cover("timens_offsets", "", "/proc/$$/timens_offsets");
    }
    if !mounts.is_empty() {
        unshare.push("--mount");
    }
    if matches!(
        world,
        World::Ahead | World::AheadUnknown | World::BootIdAhead
    ) {
        unshare.push("--time --boottime 86400");
    }
    let unshare = match unshare.is_empty() {
        true => String::new(),
        false => format!("unshare {} --fork --kill-child", unshare.join(" ")),
    };
    let script = place.file(&format!("{world:?}"));
    let text = format!(
        "#!/bin/sh\nexec {unshare} sh -c '{}exec \"$0\" \"$@\"' '{}' \"$@\"\n",
        mounts.replace('\'', "'\\''"),
        program("lock-taker").display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let url = format!("sqlite:{}?namespace=", place.database().display());
    let key = LockKey::new("k").unwrap();
    Taker::new(script, url).take(&key).with_ttl(TTL)
}

fn acquired(what: &What) -> bool {
    matches!(what, What::Granted { .. })
}

async fn hold(place: &Place, world: World) -> TakerProcess {
    let holder = take(place, world).spawn().unwrap();
    holder.told(Duration::from_secs(20), acquired).await;
    holder
}

/// Waits for longer than an observation takes, and holds the lock for a moment.
fn wait_for(place: &Place, world: World) -> TakerProcess {
    let take = take(place, world).with_wait(2 * TTL + SLACK / 4);
    take.with_hold(Duration::ZERO).spawn().unwrap()
}

/// A holder that lives keeps the lock from a waiter in another world; dead, it does so for one ttl,
/// and for another one if that has to be observed.
async fn holder_excludes_waiter(holder_in: World, waiter_in: World, observed: bool) {
    let place = Place::new();
    let mut holder = hold(&place, holder_in).await;
    let mut early = wait_for(&place, waiter_in);
    let refused = tokio::task::spawn_blocking(move || (early.wait().unwrap(), early.events()));
    let (_, events) = refused.await.unwrap();
    assert!(
        !events.iter().any(|event| acquired(&event.what)),
        "{waiter_in:?} got the lock of {holder_in:?}: {events:?} beside {:?}",
        holder.events()
    );
    let lost = |what: &What| matches!(what, What::Lost { .. });
    assert!(
        !holder.events().iter().any(|event| lost(&event.what)),
        "{:?}",
        holder.events()
    );
    let waiter = take(&place, waiter_in).spawn().unwrap();
    holder.kill().unwrap();
    let killed = Instant::now();
    let most = if observed { 2 * TTL } else { TTL } + SLACK;
    waiter.told(most + SLACK, acquired).await;
    let took = killed.elapsed();
    assert!(took < most, "granted {took:?} after the holder died");
}

macro_rules! excludes {
    ($(fn $name:ident($holder:ident, $waiter:ident, $observed:literal);)*) => {$(
        #[tokio::test]
        async fn $name() {
            holder_excludes_waiter(World::$holder, World::$waiter, $observed).await;
        }
    )*};
}

excludes! {
    fn a_container_with_a_boot_id_of_its_own_waits_for_the_host(NetworkHost, BootId, false);
    fn the_host_waits_for_a_container_with_a_boot_id_of_its_own(BootId, NetworkHost, false);
    fn a_time_namespace_waits_for_the_host(NetworkHost, Ahead, false);
    fn the_host_waits_for_a_time_namespace(Ahead, NetworkHost, false);
    fn a_boot_clock_that_cannot_be_compared_is_observed(NetworkHost, AheadUnknown, true);
    fn a_holder_whose_boot_clock_cannot_be_compared_is_observed(AheadUnknown, NetworkHost, true);
    fn a_container_with_a_clock_and_a_boot_id_of_its_own_waits(NetworkHost, BootIdAhead, false);
}

/// Its directory is another one there, and SQLite keeps the log and its locks in that.
#[tokio::test]
async fn a_file_that_is_mounted_without_its_directory_is_refused() {
    let place = Place::new();
    let locks = place.open().await;
    let guard = locks.lock("k").await.unwrap();
    let mounted = place.file("container/locks.db");
    fs::create_dir(mounted.parent().unwrap()).unwrap();
    fs::write(&mounted, "").unwrap();
    let script = r#"mount --bind "$1" "$2" && exec "$0" --url "sqlite:$2" --key k --hold 0s"#;
    let mut container = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        container.args(["--user", "--map-root-user"]);
    }
    container.args(["--mount", "sh", "-c", script]);
    container.args([program("lock-taker"), place.database(), mounted]);
    let output = container.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let says = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told, "", "{says}");
    assert!(says.contains("InvalidConfig"), "{says}");
    assert!(says.contains("mounted without its directory"), "{says}");
    assert!(guard.is_held());
}

/// Kills a holder, changes its row as if it came from elsewhere, and waits for the lock.
async fn time_to_get(change: &'static str) -> Duration {
    let place = Place::new();
    let mut holder = hold(&place, World::NetworkHost).await;
    holder.kill().unwrap();
    let changed = sqlx::query(change).execute(&mut place.sql().await).await;
    assert_eq!(changed.unwrap().rows_affected(), 1);
    let begin = Instant::now();
    let waiter = wait_for(&place, World::NetworkHost);
    waiter.told(3 * TTL + SLACK, acquired).await;
    begin.elapsed()
}

// Ten days, in the units of the boot clock and of the wall clock.

#[tokio::test]
async fn a_reboot_frees_a_lease_at_once_when_all_clocks_show_it() {
    let took = time_to_get(
        "UPDATE polylock_locks SET boot_id = CAST(randomblob(16) || substr(boot_id, 17) AS BLOB), \
         expires_boot = expires_boot + 864000000000000, changed_at = changed_at - 864000000000 \
         WHERE key = CAST('k' AS BLOB)",
    )
    .await;
    assert!(took < TTL, "granted after {took:?}, without a holder");
}

#[tokio::test]
async fn a_lease_from_the_future_of_a_boot_id_that_repeats_blocks_for_one_ttl() {
    let took = time_to_get(
        "UPDATE polylock_locks SET expires_boot = expires_boot + 864000000000000 \
         WHERE key = CAST('k' AS BLOB)",
    )
    .await;
    assert!(
        (TTL..2 * TTL + SLACK).contains(&took),
        "granted after {took:?}, and a lease lasts for {TTL:?}"
    );
}

#[tokio::test]
async fn a_lease_of_a_version_that_stored_a_boot_id_alone_ends_in_time() {
    let took = time_to_get(
        "UPDATE polylock_locks SET boot_id = substr(boot_id, 1, 16) WHERE key = CAST('k' AS BLOB)",
    )
    .await;
    assert!(
        took < TTL + SLACK,
        "granted after {took:?}, with a lease of {TTL:?}"
    );
}
