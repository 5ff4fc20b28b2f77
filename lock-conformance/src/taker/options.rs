use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use polylock_core::{AcquireRequest, LockKey, Wait};

/// What a lock-taker is told to do.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) url: String,
    pub(super) request: AcquireRequest,
    pub(super) hold: Duration,
    pub(super) rounds: u32,
    pub(super) increment: Option<PathBuf>,
}

/// How it is called.
const USAGE: &str = "lock-taker --url URL --key KEY [--ttl D] [--wait D] [--hold D] [--rounds N] \
                     [--increment FILE]";

impl Options {
    pub(super) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
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
