use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use lock_core::FencingToken;

/// What the locks protect: files that all instances have in common, a set of them for each key.
///
/// A visitor makes a file that must not be there yet, reads a number, lets others run, and writes
/// the next number. So it shows when two are in it at once, and when one undoes what another did.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    dir: PathBuf,
}

/// One request inside; gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Visit<'a> {
    ledger: &'a Ledger,
    key: &'a str,
    count: u64,
    inside: Option<PathBuf>,
}

/// What a request wrote.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Entry {
    pub(crate) request: String,
    pub(crate) token: u64,
}

impl Ledger {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.into() }
    }

    pub(crate) fn enter<'a>(&'a self, key: &'a str) -> Visit<'a> {
        let path = self.file(key, "inside");
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        let inside = match made {
            Ok(_) => Some(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.append(key, "overlaps", "two at once");
                None
            }
            Err(error) => panic!("{}: {error}", path.display()),
        };
        Visit {
            ledger: self,
            key,
            count: self.count(key),
            inside,
        }
    }

    /// How many writes the number says there were; less than there were if some were undone.
    pub(crate) fn count(&self, key: &str) -> u64 {
        let text = self.read(key, "count");
        text.parse().unwrap_or_default()
    }

    /// What was written, in this order.
    pub(crate) fn entries(&self, key: &str) -> Vec<Entry> {
        let text = self.read(key, "entries");
        let entry = |line: &str| {
            let (request, token) = line.split_once(' ').expect("two words");
            let token = token.parse().expect("a number");
            let request = request.to_owned();
            Entry { request, token }
        };
        text.lines().map(entry).collect()
    }

    pub(crate) fn overlaps(&self, key: &str) -> usize {
        self.read(key, "overlaps").lines().count()
    }

    fn file(&self, key: &str, what: &str) -> PathBuf {
        self.dir.join(format!("{key}.{what}"))
    }

    fn read(&self, key: &str, what: &str) -> String {
        match fs::read_to_string(self.file(key, what)) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => panic!("{what} of {key}: {error}"),
        }
    }

    fn set_count(&self, key: &str, count: u64) {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            // File systems write to the disk at once what was truncated.
            .truncate(false)
            .open(self.file(key, "count"));
        file.and_then(|mut file| file.write_all(format!("{count:020}").as_bytes()))
            .expect("the directory can be written to");
    }

    fn append(&self, key: &str, what: &str, line: &str) {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.file(key, what));
        // One write, so that lines of two processes do not mix.
        let line = format!("{line}\n");
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("the directory can be written to");
    }
}

impl Visit<'_> {
    /// Writes what follows from what was there when the visit began.
    pub(crate) fn write(&self, request: &str, token: Option<FencingToken>) {
        let token = token.map_or(0, FencingToken::value);
        self.ledger
            .append(self.key, "entries", &format!("{request} {token}"));
        self.ledger.set_count(self.key, self.count + 1);
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if let Some(path) = &self.inside {
            fs::remove_file(path).expect("nobody else removes it");
        }
    }
}
