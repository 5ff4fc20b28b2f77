use std::ops::Deref;
use std::thread;

use super::{RedisOptions, RedisServer};

/// Several servers that know nothing of each other.
#[derive(Debug)]
pub struct RedisNodes(Vec<RedisServer>);

impl RedisNodes {
    /// Starts so many, all with the same options.
    #[must_use]
    pub fn start(count: usize, options: &RedisOptions) -> Self {
        let servers = at_once(0..count, |_| RedisServer::start(options.clone()));
        Self(servers)
    }
}

impl Deref for RedisNodes {
    type Target = [RedisServer];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Starts several at the same time.
pub(super) fn at_once<I: Send, T: Send>(
    which: impl IntoIterator<Item = I>,
    start: impl Fn(I) -> T + Sync,
) -> Vec<T> {
    let start = &start;
    thread::scope(|scope| {
        let starting: Vec<_> = which
            .into_iter()
            .map(|which| scope.spawn(move || start(which)))
            .collect();
        starting
            .into_iter()
            .map(|server| server.join().expect("it starts"))
            .collect()
    })
}
