//! The resource that the locks protect: one register per key, in the process of the nemesis.
//!
//! Clients write over a socket, so that a client that is stopped in the middle of a write does not
//! block the others.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use lock_testkit::history::{FencedRegister, Recorder};
use polylock_core::{FencingToken, LockKey};

/// Serves writes at this socket for as long as the process lives.
pub(crate) fn serve(socket: &Path, keys: &[LockKey], recorder: &Recorder) -> io::Result<()> {
    let registers = keys.iter().map(|key| {
        let register = FencedRegister::new(recorder.clone(), key.clone());
        (key.as_str().to_owned(), register)
    });
    let registers: Arc<BTreeMap<_, _>> = Arc::new(registers.collect());
    let listener = UnixListener::bind(socket)?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let registers = Arc::clone(&registers);
            // A client that is killed breaks its own connection only.
            thread::spawn(move || drop(serve_client(client, &registers)));
        }
    });
    Ok(())
}

fn serve_client(
    mut client: UnixStream,
    registers: &BTreeMap<String, FencedRegister>,
) -> io::Result<()> {
    for line in BufReader::new(client.try_clone()?).lines() {
        let line = line?;
        if let Some((token, key)) = line.split_once(' ')
            && let (Ok(token), Some(register)) = (token.parse(), registers.get(key))
        {
            // The history has the outcome.
            register.write(FencingToken::new(token)).ok();
        }
        client.write_all(b"\n")?;
    }
    Ok(())
}

/// A client's connection to the registers.
#[derive(Debug)]
pub(crate) struct Registers(BufReader<UnixStream>);

impl Registers {
    pub(crate) fn connect(socket: &Path) -> io::Result<Self> {
        Ok(Self(BufReader::new(UnixStream::connect(socket)?)))
    }

    /// Writes, and waits until the register has answered.
    pub(crate) fn write(&mut self, key: &LockKey, token: FencingToken) -> io::Result<()> {
        self.ask(&format!("{} {}\n", token.value(), key.as_str()))
    }

    /// Fails once the nemesis has ended.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        self.ask("\n")
    }

    fn ask(&mut self, line: &str) -> io::Result<()> {
        self.0.get_mut().write_all(line.as_bytes())?;
        let mut answer = String::new();
        match self.0.read_line(&mut answer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
