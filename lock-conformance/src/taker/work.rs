use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use polylock_core::{AcquireRequest, DistributedLock, Error, ErrorKind, LockKey, Registry, Wait};
use tokio::time::Instant;

use crate::history::{Recorded, Recorder, What};

/// Acquires a lock as the arguments of the process say, and writes its history as JSON lines to the
/// standard output.
///
/// | option | meaning | default |
/// |---|---|---|
/// | `--url URL` | the store, with `namespace=` for the bare keys of a test | required |
/// | `--key KEY` | the lock | required |
/// | `--ttl D` | the lease, such as `1s` | 30 s |
/// | `--wait D` | how long to wait | 30 s |
/// | `--hold D` | how long each hold lasts | a day |
/// | `--rounds N` | how often the lock is taken | 1 |
/// | `--increment FILE` | adds one to the counter in a file during each hold | off |
///
/// While it holds the lock it looks every 10 ms whether it still does. It ends with 0 after its
/// rounds, with 1 if it loses the lock, and with 2 on any error.
pub fn main(registry: polylock_core::Result<Registry>) -> ExitCode {
    let options = TakerOptions::parse(std::env::args_os().skip(1));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match (registry, options, runtime) {
        (Ok(registry), Ok(options), Ok(runtime)) => runtime
            .block_on(take(&registry, &options))
            .map_err(|e| format!("{e:?}")),
        (Err(error), ..) => Err(format!("{error:?}")),
        (_, Err(usage), _) => Err(usage),
        (.., Err(error)) => Err(error.to_string()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            // An error cannot be reported if this fails too.
            drop(writeln!(io::stderr(), "lock-taker: {message}"));
            ExitCode::from(2)
        }
    }
}

/// True unless the lock was lost.
async fn take(registry: &Registry, options: &TakerOptions) -> polylock_core::Result<bool> {
    let locks = registry.connect(&options.url).await?;
    let recorder = Recorder::new().with_output(io::stdout());
    for _ in 0..options.rounds {
        let held = recorder.acquire(&locks, &options.request).await?;
        if let Some(file) = &options.increment {
            increment(&held, file, &recorder, options.request.key()).await?;
        }
        if !hold(&held, options.hold).await {
            held.lost().await;
            held.release().await?;
            return Ok(false);
        }
        held.release().await?;
    }
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(true)
}

/// Looks at the lock until the time is over; false once it is lost.
async fn hold(held: &Recorded, time: Duration) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if !held.look() {
            return false;
        }
        tokio::time::sleep((until - Instant::now()).min(Duration::from_millis(10))).await;
    }
    true
}

/// Reads the counter and the largest token, sleeps, and writes them, like a program that relies on its
/// lock. A token that is too small is refused.
async fn increment(
    held: &Recorded,
    file: &Path,
    recorder: &Recorder,
    key: &LockKey,
) -> polylock_core::Result<()> {
    let failed = |error: io::Error| {
        Error::new(ErrorKind::InvalidConfig, "the counter cannot be used").with_source(error)
    };
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text.map_err(failed)?,
    };
    let mut numbers = text.split_whitespace().map(|n| n.parse().unwrap_or(0));
    let (count, largest): (u64, u64) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    tokio::time::sleep(Duration::from_millis(2)).await;
    let token = held.fencing_token().map_or(largest, u64::from);
    let accepted = token >= largest;
    if held.fencing_token().is_some() {
        recorder.record(key, 0, What::Wrote { token, accepted });
    }
    if accepted {
        // Written beside and renamed: a process that is killed meanwhile leaves a whole counter.
        let beside = file.with_extension(std::process::id().to_string());
        std::fs::write(&beside, format!("{} {token}\n", count + 1)).map_err(failed)?;
        std::fs::rename(&beside, file).map_err(failed)?;
    }
    Ok(())
}

/// What a lock-taker is told to do.
#[derive(Debug)]
struct TakerOptions {
    url: String,
    request: AcquireRequest,
    hold: Duration,
    rounds: u32,
    increment: Option<PathBuf>,
}

/// How it is called.
const USAGE: &str = "lock-taker --url URL --key KEY [--ttl D] [--wait D] [--hold D] [--rounds N] \
                     [--increment FILE]";

impl TakerOptions {
    fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let (mut url, mut key, mut increment) = (None, None, None);
        // By default a lock-taker holds until it is killed.
        let (mut ttl, mut wait, mut hold, mut rounds) = (None, None, ONE_DAY, 1);
        let mut args = args.into_iter();
        while let Some(name) = args.next() {
            let value = args.next().ok_or(USAGE)?;
            let text = value.to_string_lossy();
            match &*name.to_string_lossy() {
                "--url" => url = Some(text.into_owned()),
                "--key" => key = Some(text.into_owned()),
                "--ttl" => ttl = Some(duration(&text)?),
                "--wait" => wait = Some(duration(&text)?),
                "--hold" => hold = duration(&text)?,
                "--rounds" => rounds = text.parse().map_err(|e| format!("{text}: {e}"))?,
                "--increment" => increment = Some(PathBuf::from(value)),
                _ => return Err(USAGE.to_owned()),
            }
        }
        let key = LockKey::new(key.ok_or(USAGE)?).map_err(|e| e.to_string())?;
        let mut request = AcquireRequest::new(key);
        if let Some(ttl) = ttl {
            request = request.with_ttl(ttl);
        }
        if let Some(wait) = wait {
            request = request.with_wait(Wait::AtMost(wait));
        }
        Ok(Self {
            url: url.ok_or(USAGE)?,
            request,
            hold,
            rounds,
            increment,
        })
    }
}

fn duration(value: &str) -> Result<Duration, String> {
    humantime::parse_duration(value).map_err(|e| format!("{value}: {e}"))
}

const ONE_DAY: Duration = Duration::from_secs(24 * 60 * 60);
