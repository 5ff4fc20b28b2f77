use std::fs;
use std::path::{Path, PathBuf};

use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};

/// A server that reads what [`set_next_number`] writes.
pub(crate) fn patchable() -> ZooKeeperServer {
    // A digest of the tree would not fit any more, and follows the part that is patched.
    let options = ZooKeeperOptions::new()
        .with_config("maxSessionTimeout", "60000")
        .with_property("zookeeper.digest.enabled", "false");
    ZooKeeperServer::start(options)
}

/// Lets the server give this number to the next sequential node of a directory, which a client has
/// made and left.
///
/// It takes a snapshot when it starts, and reads it when it starts again.
pub(crate) fn set_next_number(server: &ZooKeeperServer, directory: &str, number: i32) {
    server.restart();
    server.kill();
    let file = latest(&server.dir().join("data/version-2"));
    let mut snapshot = fs::read(&file).expect("the snapshot can be read");
    patch(&mut snapshot, directory, number);
    fs::write(&file, snapshot).expect("the snapshot can be written");
    server.restart();
}

/// A file is named by its last transaction.
fn latest(directory: &Path) -> PathBuf {
    let files = fs::read_dir(directory).expect("the server has data");
    let transaction = |file: &PathBuf| {
        let name = file.file_name()?.to_str()?.strip_prefix("snapshot.")?;
        i64::from_str_radix(name, 16).ok()
    };
    let files = files.map(|entry| entry.expect("an entry").path());
    let files = files.filter(|file| transaction(file).is_some());
    let latest = files.max_by_key(transaction);
    latest.expect("the server takes a snapshot when it starts")
}

/// A node is its path, its data, the number of its access list, and its stat: four longs (created,
/// modified, and both times), two ints (version, version of the children), and what follows. The file
/// ends with its checksum as a long, and the path `/`.
fn patch(snapshot: &mut [u8], directory: &str, number: i32) {
    let mut name = length(directory.len()).to_vec();
    name.extend(directory.as_bytes());
    let found = snapshot.windows(name.len()).position(|part| part == name);
    let data = found.expect("the directory is there") + name.len();
    let bytes = snapshot[data..data + 4].try_into().expect("four bytes");
    let bytes = usize::try_from(i32::from_be_bytes(bytes)).unwrap_or(0);
    let version = data + 4 + bytes + 8 + 4 * 8 + 4;
    snapshot[version..version + 4].copy_from_slice(&number.to_be_bytes());
    let end = snapshot.len() - (8 + 4 + 1);
    assert_eq!(
        snapshot[end + 8..],
        *b"\0\0\0\x01/",
        "the end of a snapshot"
    );
    let sum = adler32(&snapshot[..end]);
    snapshot[end..end + 8].copy_from_slice(&u64::from(sum).to_be_bytes());
}

fn length(bytes: usize) -> [u8; 4] {
    let bytes = i32::try_from(bytes).expect("it is short");
    bytes.to_be_bytes()
}

fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let add = |(low, high): (u32, u32), byte: &u8| {
        let low = (low + u32::from(*byte)) % MODULUS;
        (low, (high + low) % MODULUS)
    };
    let (low, high) = bytes.iter().fold((1, 0), add);
    (high << 16) | low
}
