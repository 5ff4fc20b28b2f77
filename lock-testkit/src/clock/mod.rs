//! A wall clock that is wrong, for programs that are not: servers and clients of a test.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

use crate::command::run;
use crate::servers::made_once;

/// A wall clock for programs that are started with it. It can be set ahead of the machine's clock or
/// behind it, and run fast or slow, also while the programs run.
///
/// The monotonic clock and the boot clock are unchanged, and so are waits that use them. A preloaded
/// library replaces the time functions of the C library, so it has no effect on programs that do not
/// call these, such as Go programs. The C compiler `cc` builds the library once for each user of a
/// machine.
///
/// A server gets one from `with_clock` of its options.
///
/// # Examples
///
/// ```
/// use std::process::Command;
///
/// use lock_testkit::clock::ShiftedClock;
///
/// let clock = ShiftedClock::new();
/// clock.set_offset(-86_400);
/// let mut date = Command::new("date");
/// let output = clock.apply(date.arg("+%s")).output()?;
/// let yesterday: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("seconds");
/// let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
/// assert!((86_400..86_410).contains(&(now - yesterday)));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ShiftedClock {
    dir: PathBuf,
    /// Goes with the last value; a program that has started does not need it any more.
    _own: Option<Arc<TempDir>>,
}

impl ShiftedClock {
    /// A clock that is right until it is told otherwise.
    #[must_use]
    pub fn new() -> Self {
        let made = tempfile::Builder::new()
            .prefix("polylock-clock-")
            .tempdir()
            .and_then(|dir| {
                let mut clock = Self::in_dir(dir.path())?;
                clock._own = Some(Arc::new(dir));
                Ok(clock)
            });
        made.unwrap_or_else(|error| panic!("no clock: {error}"))
    }

    /// The one of this directory, which is right if it is new, and else as it was.
    pub(crate) fn in_dir(dir: &Path) -> io::Result<Self> {
        let clock = Self {
            dir: dir.to_owned(),
            _own: None,
        };
        if !clock.file().exists() {
            // A server may run as another user, without access to this user's directory.
            fs::copy(library()?, clock.library())?;
            fs::write(clock.file(), [0; SIZE])?;
            for path in [clock.file(), clock.library()] {
                fs::set_permissions(path, Permissions::from_mode(0o644))?;
            }
        }
        Ok(clock)
    }

    /// Makes a program that is started see this clock.
    pub fn apply<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.envs(self.variables())
    }

    /// Words for `env`, which becomes the program.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let mut words = vec!["env".into()];
        for (name, value) in self.variables() {
            let mut word = OsString::from(format!("{name}="));
            word.push(value);
            words.push(word);
        }
        words
    }

    /// Sets it to this many seconds ahead of the machine's clock, or behind it if negative. It goes on
    /// from there at the rate of [`set_drift`](Self::set_drift).
    pub fn set_offset(&self, seconds: i64) {
        self.change(|shift| shift.offset = seconds.saturating_mul(SECOND));
    }

    /// Makes it fast by so many parts of a million, or slow, from here on: 50,000 is 5 %. It does not
    /// jump.
    pub fn set_drift(&self, parts_per_million: i64) {
        self.change(|shift| shift.drift = parts_per_million.saturating_mul(1_000));
    }

    fn change(&self, change: impl FnOnce(&mut Shift)) {
        let outcome = File::options()
            .read(true)
            .write(true)
            .open(self.file())
            .and_then(|file| {
                let (sequence, mut shift) = Shift::read(&file)?;
                shift.move_anchor(boot_time());
                change(&mut shift);
                shift.write(&file, sequence)
            });
        outcome.expect("the clock has its file");
    }

    fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [
            ("LD_PRELOAD", self.library()),
            ("POLYLOCK_CLOCK", self.file()),
        ]
    }

    fn file(&self) -> PathBuf {
        self.dir.join("clock")
    }

    fn library(&self) -> PathBuf {
        self.dir.join("clock.so")
    }
}

impl Default for ShiftedClock {
    fn default() -> Self {
        Self::new()
    }
}

/// By how much the clock is wrong, as `struct shift` of the library has it.
#[derive(Clone, Copy, Debug)]
struct Shift {
    /// In nanoseconds, at the anchor.
    offset: i64,
    /// In nanoseconds a second since the anchor.
    drift: i64,
    /// In nanoseconds of the boot clock.
    anchor: i64,
}

impl Shift {
    fn move_anchor(&mut self, now: i64) {
        let passed = i128::from(now) - i128::from(self.anchor);
        let drifted = passed * i128::from(self.drift) / i128::from(SECOND);
        let drifted = i64::try_from(drifted).unwrap_or_default();
        self.offset = self.offset.saturating_add(drifted);
        self.anchor = now;
    }

    fn read(file: &File) -> io::Result<(u64, Self)> {
        let mut words = [0; SIZE];
        file.read_exact_at(&mut words, 0)?;
        let (words, _) = words.as_chunks();
        let shift = Self {
            offset: i64::from_ne_bytes(words[1]),
            drift: i64::from_ne_bytes(words[2]),
            anchor: i64::from_ne_bytes(words[3]),
        };
        Ok((u64::from_ne_bytes(words[0]), shift))
    }

    /// Programs that run have the file in their memory and read it again while the sequence is odd.
    fn write(self, file: &File, sequence: u64) -> io::Result<()> {
        let words = [self.offset, self.drift, self.anchor].map(i64::to_ne_bytes);
        file.write_all_at(&(sequence + 1).to_ne_bytes(), 0)?;
        file.write_all_at(&words.concat(), 8)?;
        file.write_all_at(&(sequence + 2).to_ne_bytes(), 0)
    }
}

fn boot_time() -> i64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec * SECOND + time.tv_nsec
}

/// The library, compiled by the first test that needs it.
fn library() -> io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    SOURCE.hash(&mut hasher);
    made_once(&format!("clock-{:016x}.so", hasher.finish()), |library| {
        let source = tempfile::Builder::new().suffix(".c").tempfile()?;
        fs::write(&source, SOURCE)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O2", "-shared", "-fPIC", "-o"]);
        run(compiler.args([library, source.path()]).arg("-ldl"), "").map(drop)
    })
}

const SOURCE: &str = include_str!("shim.c");
/// The sequence and three words.
const SIZE: usize = 32;
const SECOND: i64 = 1_000_000_000;
