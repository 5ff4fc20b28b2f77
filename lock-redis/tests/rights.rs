//! The documented list of rights has all rights that a user needs, and no more.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use lock_testkit::servers::RedisOptions;
use polylock_core::DistributedLock;

use crate::support::{
    Place, SOON, commands, granted, key, open, release, renewed, request, rights, take_long,
    waiting, within,
};

const NAME: &str = "lock:a";

/// Sends each command that is not part of a script; the conformance suite shows that these rights are
/// enough for all that locks do.
async fn plain_commands(place: &Place) {
    let config = || place.config().with_login("locks", "secret");
    let (locks, other) = (open(config()).await, open(config()).await);
    let guard = take_long(&locks, NAME).await;
    let next = waiting(&other, within(request(NAME), SOON));
    place.queued(NAME, 1).await;
    renewed(&guard).await;
    // The server does not know this script yet, and is sent its text.
    let admin = locks.admin().expect("it has an administration");
    assert_eq!(admin.list("lock:").await.expect("it is listed").len(), 1);
    admin.record(&key(NAME)).await.expect("it is read");
    release(guard).await;
    release(granted(next).await).await;
}

/// The commands that the scripts call, but for the one that only explains an error.
fn commands_of_scripts() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/scripts");
    let scripts = fs::read_dir(folder).expect("a directory");
    let scripts = scripts.map(|script| script.expect("a file").path());
    let scripts = scripts.filter(|path| !path.ends_with("types.lua"));
    let texts = scripts.map(|path| fs::read_to_string(path).expect("a text"));
    let calls = |text: String| -> Vec<String> {
        let calls = text.split("call('").skip(1);
        let names = calls.filter_map(|call| call.split('\'').next());
        names.map(str::to_ascii_lowercase).collect()
    };
    texts.flat_map(calls).collect()
}

#[tokio::test]
async fn the_list_of_rights_is_complete_and_has_no_more() {
    let rules = rights::user("secret", "lock:*");
    let place = Place::with(RedisOptions::new().with_user("locks", &rules));
    place.command(&["CONFIG", "RESETSTAT"]);
    place.command(&["ACL", "LOG", "RESET"]);
    plain_commands(&place).await;
    let mut used = commands_of_scripts();
    let run = commands(&place.server).into_iter();
    // A command that the server has denied has no calls.
    used.extend(run.filter(|(_, calls)| *calls > 0).map(|(name, _)| name));
    for of_test in [
        "acl|log",
        "auth",
        "config|resetstat",
        "exists",
        "type",
        "xlen",
    ] {
        used.remove(of_test);
    }
    let listed = rules.split(' ').filter_map(|rule| rule.strip_prefix('+'));
    let listed: BTreeSet<_> = listed.map(str::to_owned).collect();
    assert_eq!(used, listed);
    // The client works without the commands that it is denied.
    let log = place.command(&["ACL", "LOG"]);
    assert!(!log.is_error(), "{log:?}");
    for entry in log.items() {
        let mut fields = entry.items().chunks(2);
        let object = fields.find_map(|field| match field {
            [name, value] if name.text()? == "object" => value.text(),
            _ => None,
        });
        assert_eq!(object.as_deref(), Some("client|setinfo"), "{entry:?}");
    }
}
