use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polylock_core::ErrorKind;
use polylock_core::engine::LeaseId;
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::db_error;
use crate::error::SqlCause;

/// The files of an open connection, by device and inode.
///
/// SQLite continues with its open files when they are replaced. Clients that open the new files see none
/// of our locks, so each grant checks that the names still refer to the open files.
#[derive(Clone, Debug)]
pub(super) struct Files {
    /// The database, as the user named it: a link is followed at every look. Then the log and the shared
    /// memory, beside the file that a link leads to.
    paths: [PathBuf; 3],
    seen: [(u64, u64); 3],
}

impl Files {
    pub(super) fn of(path: &Path, target: &Path) -> io::Result<Self> {
        let [wal, shm] = beside(target);
        let paths = [path.to_owned(), wal, shm];
        let seen = look(&paths)?;
        Ok(Self { paths, seen })
    }

    /// Whether the names still refer to the open files.
    ///
    /// The inodes cannot have been reused: they exist as long as the files are open.
    pub(super) fn check(&self) -> Result<(), SqlCause> {
        match look(&self.paths) {
            Ok(seen) if seen == self.seen => Ok(()),
            _ => Err(self.replaced()),
        }
    }

    pub(super) fn replaced(&self) -> SqlCause {
        SqlCause::Replaced {
            path: self.paths[0].clone(),
        }
    }

    /// Whether this process has the log and the shared memory open; yes, if the system does not tell.
    pub(super) fn are_open(&self) -> bool {
        let mut beside = self.paths.iter().zip(self.seen).skip(1);
        beside.all(|(path, seen)| is_open(path, seen).unwrap_or(true))
    }

    /// Whether the names of both, which may differ, led to the same files.
    pub(super) fn are_same(&self, other: &Self) -> bool {
        self.seen == other.seen
    }

    /// Device and inode of the database file.
    pub(super) fn database(&self) -> (u64, u64) {
        self.seen[0]
    }
}

/// The log and the shared memory of a database, whose path has no symbolic link.
fn beside(target: &Path) -> [PathBuf; 2] {
    ["-wal", "-shm"].map(|suffix| {
        let mut name = target.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    })
}

/// The log or the shared memory of a database, if this user cannot read and write it.
pub(super) fn denied_beside(path: &Path) -> Option<PathBuf> {
    let [wal, shm] = beside(&path.canonicalize().ok()?);
    let is_denied = |file: &PathBuf| {
        let denied = access(file, Access::READ_OK | Access::WRITE_OK);
        denied.is_err_and(|errno| errno == Errno::ACCESS)
    };
    [wal, shm].into_iter().find(is_denied)
}

fn look([database, wal, shm]: &[PathBuf; 3]) -> io::Result<[(u64, u64); 3]> {
    Ok([inode(database)?, inode(wal)?, inode(shm)?])
}

/// Whether a descriptor of this process is for the file of this name, device and inode.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_open(path: &Path, seen: (u64, u64)) -> io::Result<bool> {
    let mut descriptors = fs::read_dir("/proc/thread-self/fd")?.filter_map(Result::ok);
    Ok(descriptors.any(|descriptor| {
        let descriptor = descriptor.path();
        // By name first: a file on another file system may not answer.
        fs::read_link(&descriptor).is_ok_and(|name| name.file_name() == path.file_name())
            && inode(&descriptor).is_ok_and(|found| found == seen)
    }))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_open(_path: &Path, _seen: (u64, u64)) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

pub(super) fn create_directory(path: &Path) -> Result<(), SqlCause> {
    let Some(directory) = path.parent() else {
        return Ok(());
    };
    // On a frozen file system not even an existing directory can be created again, and this runs beside
    // renewals.
    if directory.is_dir() {
        return Ok(());
    }
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    made.map_err(|e| {
        let says = format!("the directory of the database file {path:?} cannot be made");
        SqlCause::said(ErrorKind::Unavailable, says, Arc::new(e))
    })
}

/// The system also says of an existing directory that there is no such file, as of /proc.
fn has_directory(path: &Path) -> bool {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    directory.unwrap_or_else(|| Path::new(".")).is_dir()
}

/// Not a wrong configuration: the file system of the directory may be mounted later.
fn no_directory(path: &Path, error: io::Error) -> SqlCause {
    let says = format!(
        "the directory of the database file {path:?} does not exist: make it, or write create-dir=on"
    );
    SqlCause::said(ErrorKind::Unavailable, says, Arc::new(error))
}

/// Creates an empty database that only its owner can read, unless it exists.
///
/// The file gets its mode under a temporary name, so that it never has a weaker one under its own. It is
/// closed before it gets its own name: closing a file drops all locks of the process on it, including
/// those of SQLite.
pub(super) fn create(path: &Path, id: LeaseId) -> Result<(), SqlCause> {
    if path.exists() {
        return Ok(());
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", id.to_hex()));
    let draft = PathBuf::from(name);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft);
    let linked = made.and_then(|file| {
        drop(file);
        let linked = fs::hard_link(&draft, path);
        fs::remove_file(&draft)?;
        linked
    });
    match linked {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound && !has_directory(path) => {
            Err(no_directory(path, e))
        }
        linked => linked.map_err(|e| db_error::opening(path, Arc::new(e))),
    }
}

/// Refuses file systems that other machines write to: their locks do not exclude ours, and boot clocks
/// of two machines are not comparable.
pub(super) fn check_local(path: &Path) -> Result<(), SqlCause> {
    match FileSystem::of(path) {
        Some(FileSystem::Network) => Err(SqlCause::Config(format!(
            "{path:?} is on a network file system, where locks in SQLite do not exclude"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a database that clients can reach by several names: SQLite keeps the log and its locks beside
/// the name, so clients under different names do not exclude each other.
pub(super) fn check_name(path: &Path, target: &Path) -> Result<(), SqlCause> {
    let alias = Alias::of(target).map_err(|e| db_error::opening(path, Arc::new(e)))?;
    let says = match alias {
        None => return Ok(()),
        Some(Alias::HardLink) => "has hard links: remove its other names",
        Some(Alias::Mount) => "is mounted without its directory: mount the directory",
    };
    let impact = "clients under different names of the file do not see each other's locks";
    Err(SqlCause::Config(format!(
        "the database file {path:?} {says}; {impact}"
    )))
}

/// Why a database may have several names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Alias {
    HardLink,
    /// The file is a mount point, as one that a container gets without its directory.
    Mount,
}

impl Alias {
    /// That of a file, whose path has no symbolic link.
    fn of(file: &Path) -> io::Result<Option<Self>> {
        let metadata = fs::metadata(file)?;
        if !metadata.is_file() {
            return Ok(None);
        }
        if is_mount_point(file)? {
            return Ok(Some(Self::Mount));
        }
        if metadata.nlink() <= 1 {
            return Ok(None);
        }
        let drafts = drafts(file)?;
        // Counted after the drafts: one that is removed meanwhile is in neither number.
        let names = fs::metadata(file)?.nlink();
        Ok((names > 1 + drafts).then_some(Self::HardLink))
    }
}

/// Counts the names of a file from [`create`], which no client opens. One that is killed leaves its own.
fn drafts(file: &Path) -> io::Result<u64> {
    let (Some(directory), Some(name)) = (file.parent(), file.file_name()) else {
        return Ok(0);
    };
    let file = inode(file)?;
    let mut count = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let draft = entry.file_name();
        let suffix = draft.as_bytes().strip_prefix(name.as_bytes());
        let id = suffix.and_then(|suffix| std::str::from_utf8(suffix.strip_prefix(b".")?).ok());
        if id.and_then(LeaseId::from_hex).is_none() {
            continue;
        }
        // One that is removed meanwhile is no name.
        let metadata = entry.metadata();
        count += u64::from(metadata.is_ok_and(|found| (found.dev(), found.ino()) == file));
    }
    Ok(count)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_mount_point(path: &Path) -> io::Result<bool> {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

    if let Ok(found) = statx(CWD, path, AtFlags::empty(), StatxFlags::empty())
        && found
            .stx_attributes_mask
            .contains(StatxAttributes::MOUNT_ROOT)
    {
        return Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    // Linux before 5.8, and sandboxes.
    let mounts = fs::read("/proc/self/mountinfo")?;
    Ok(lists_mount_point(&mounts, path))
}

/// Other systems mount directories only.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_mount_point(_path: &Path) -> io::Result<bool> {
    Ok(false)
}

/// Whether the mount points of `/proc/self/mountinfo` include a path; see proc(5).
#[cfg(any(target_os = "linux", target_os = "android"))]
fn lists_mount_point(mounts: &[u8], path: &Path) -> bool {
    let escape = |byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
        byte => vec![*byte],
    };
    let path: Vec<u8> = path
        .as_os_str()
        .as_bytes()
        .iter()
        .flat_map(escape)
        .collect();
    let mut lines = mounts.split(|byte| *byte == b'\n');
    lines.any(|line| line.split(|byte| *byte == b' ').nth(4) == Some(path.as_slice()))
}

/// What a file system means for locks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FileSystem {
    Local,
    Memory,
    /// Other machines may write to it.
    Network,
}

impl FileSystem {
    /// That of a path; `None` if the system does not tell.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn of(path: &Path) -> Option<Self> {
        // The type of the field differs from platform to platform; the numbers have 32 bits.
        let found = rustix::fs::statfs(path).ok()?;
        Some(Self::by_number(found.f_type as u32))
    }

    /// That of a path; `None` if the system does not tell.
    #[cfg(target_os = "macos")]
    pub(crate) fn of(path: &Path) -> Option<Self> {
        /// See statfs(2).
        const MNT_LOCAL: u32 = 0x1000;

        let found = rustix::fs::statfs(path).ok()?;
        let name = found.f_fstypename.iter().take_while(|byte| **byte != 0);
        let name: String = name.map(|byte| char::from(*byte as u8)).collect();
        Some(Self::by_name(&name, found.f_flags & MNT_LOCAL != 0))
    }

    #[cfg(not(any(target_os = "android", target_os = "linux", target_os = "macos")))]
    pub(crate) fn of(_path: &Path) -> Option<Self> {
        None
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn by_number(number: u32) -> Self {
        match number {
            TMPFS | RAMFS => Self::Memory,
            number if NETWORK.contains(&number) => Self::Network,
            _ => Self::Local,
        }
    }

    /// By what macOS says. FUSE and the shares of a virtual machine may call themselves local.
    #[cfg(any(target_os = "macos", test))]
    fn by_name(name: &str, is_local: bool) -> Self {
        let name = name.to_ascii_lowercase();
        match is_local && !SHARED.iter().any(|part| name.contains(part)) {
            true if name == "tmpfs" => Self::Memory,
            true => Self::Local,
            false => Self::Network,
        }
    }
}

/// Parts of the names of file systems on macOS behind which anything may be: FUSE, Parallels,
/// VirtualBox, what Virtualization.framework shares, VMware.
#[cfg(any(target_os = "macos", test))]
const SHARED: [&str; 5] = ["fuse", "prl_fs", "vboxvfs", "virtiofs", "vmhgfs"];

/// See statfs(2).
#[cfg(any(target_os = "linux", target_os = "android"))]
const TMPFS: u32 = 0x0102_1994;
#[cfg(any(target_os = "linux", target_os = "android"))]
const RAMFS: u32 = 0x8584_58F6;

/// NFS, SMB, CIFS, SMB2, Ceph, AFS, the AFS of the kernel, Coda, GFS2, OCFS2, Lustre, NCP, OrangeFS,
/// PanFS, IBRIX, StorNext, ACFS; then what virtual machines share with their host and FUSE, behind which
/// anything may be: 9p, FUSE, VirtualBox, VMware, Parallels, GPFS, BeeGFS. See statfs(2), and for those
/// that are not part of Linux `stat -f` of coreutils.
#[cfg(any(target_os = "linux", target_os = "android"))]
const NETWORK: [u32; 24] = [
    0x6969,
    0x517B,
    0xFF53_4D42,
    0xFE53_4D42,
    0x00C3_6400,
    0x5346_414F,
    0x6B41_4653,
    0x7375_7245,
    0x0116_1970,
    0x7461_636F,
    0x0BD0_0BD0,
    0x564C,
    0x2003_0528,
    0xAAD7_AAEA,
    0x0131_11A8,
    0xBEEF_DEAD,
    0x6163_6673,
    0x0102_1997,
    0x6573_5546,
    0x786F_4256,
    0xBACB_ACBC,
    0x7C7C_6673,
    0x4750_4653,
    0x1983_0326,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn the_numbers_of_linux_tell_the_file_system() {
        for (number, expected) in [
            (0x6969, FileSystem::Network),
            (0x6573_5546, FileSystem::Network),
            // AFS of the kernel, Parallels, NCP, OrangeFS.
            (0x6B41_4653, FileSystem::Network),
            (0x7C7C_6673, FileSystem::Network),
            (0x564C, FileSystem::Network),
            (0x2003_0528, FileSystem::Network),
            // PanFS, IBRIX, StorNext, ACFS.
            (0xAAD7_AAEA, FileSystem::Network),
            (0x0131_11A8, FileSystem::Network),
            (0xBEEF_DEAD, FileSystem::Network),
            (0x6163_6673, FileSystem::Network),
            (TMPFS, FileSystem::Memory),
            (RAMFS, FileSystem::Memory),
            (0xEF53, FileSystem::Local),
        ] {
            assert_eq!(FileSystem::by_number(number), expected, "{number:x}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_mount_point_is_found_in_the_list_of_linux() {
        let mounts = b"63 43 254:0 /srv/a /data/a rw,relatime - ext4 /dev/vda rw\n\
                       64 43 254:0 /srv/b /data/with\\040space rw,relatime - ext4 /dev/vda rw\n";
        for (path, expected) in [
            ("/data/a", true),
            ("/data/with space", true),
            ("/data", false),
            ("/srv/a", false),
            ("/data/with\\040space", false),
        ] {
            let found = lists_mount_point(mounts, Path::new(path));
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn the_names_and_flags_of_macos_tell_the_file_system() {
        for (name, is_local, expected) in [
            ("apfs", true, FileSystem::Local),
            ("hfs", true, FileSystem::Local),
            ("tmpfs", true, FileSystem::Memory),
            ("smbfs", false, FileSystem::Network),
            ("nfs", false, FileSystem::Network),
            ("macfuse", true, FileSystem::Network),
            ("AppleVirtIOFS", true, FileSystem::Network),
        ] {
            assert_eq!(FileSystem::by_name(name, is_local), expected, "{name}");
        }
    }
}
