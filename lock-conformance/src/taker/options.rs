use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use lock_core::{AcquireRequest, LockKey, Wait};

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
        let (mut ttl, mut wait, mut hold, mut rounds) = (None, None, None, 1);
        let mut args = args.into_iter();
        while let Some(name) = args.next() {
            let name = name.to_string_lossy().into_owned();
            let value = args
                .next()
                .ok_or_else(|| format!("{name} needs a value: {USAGE}"))?;
            if name == "--increment" {
                increment = Some(PathBuf::from(value));
                continue;
            }
            let value = value
                .into_string()
                .map_err(|_| format!("{name} is not UTF-8"))?;
            match name.as_str() {
                "--url" => url = Some(value),
                "--key" => key = Some(value),
                "--ttl" => ttl = Some(duration(&name, &value)?),
                "--wait" => wait = Some(duration(&name, &value)?),
                "--hold" => hold = Some(duration(&name, &value)?),
                "--rounds" => rounds = value.parse().map_err(|e| format!("{name}: {e}"))?,
                _ => return Err(format!("{name} is unknown: {USAGE}")),
            }
        }
        let key = key.ok_or(USAGE)?;
        let mut request = AcquireRequest::new(LockKey::new(key).map_err(|e| e.to_string())?);
        if let Some(ttl) = ttl {
            request = request.with_ttl(ttl);
        }
        if let Some(wait) = wait {
            request = request.with_wait(Wait::AtMost(wait));
        }
        let for_ever = Duration::from_secs(24 * 60 * 60);
        let hold = hold.unwrap_or(for_ever);
        Ok(Self {
            url: url.ok_or(USAGE)?,
            request,
            hold,
            rounds,
            increment,
        })
    }
}

fn duration(name: &str, value: &str) -> Result<Duration, String> {
    humantime::parse_duration(value).map_err(|e| format!("{name}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        Options::parse(args.iter().map(OsString::from))
    }

    #[test]
    fn takes_what_the_command_gives() {
        let args = [
            "--url",
            "memory:",
            "--key",
            "a b",
            "--ttl",
            "1500000000ns",
            "--rounds",
            "3",
        ];
        let options = parse(&args).unwrap();
        assert_eq!(options.request.key().as_str(), "a b");
        assert_eq!(options.request.ttl(), Duration::from_millis(1_500));
        assert_eq!((options.rounds, options.increment), (3, None));
    }

    #[test]
    fn names_what_is_wrong() {
        for (args, wrong) in [
            (&["--key", "k"][..], "--url URL"),
            (&["--url", "memory:"], "--key KEY"),
            (&["--url", "memory:", "--key", ""], "empty"),
            (
                &["--url", "memory:", "--key", "k", "--ttl"],
                "--ttl needs a value",
            ),
            (&["--url", "memory:", "--key", "k", "--ttl", "x"], "--ttl"),
            (&["--color", "red"], "--color is unknown"),
        ] {
            assert!(parse(args).unwrap_err().contains(wrong), "{args:?}");
        }
    }
}
