use std::ops::Deref;

use super::{RedisOptions, RedisServer};

/// Several servers that know nothing of each other.
#[derive(Debug)]
pub struct RedisNodes(Vec<RedisServer>);

impl RedisNodes {
    /// Starts so many, all with the same options.
    ///
    /// # Panics
    ///
    /// As [`RedisServer::start`].
    #[must_use]
    pub fn start(count: usize, options: &RedisOptions) -> Self {
        Self(start_all(vec![options.clone(); count]))
    }
}

impl Deref for RedisNodes {
    type Target = [RedisServer];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Starts one for each of the options, all at the same time.
pub(super) fn start_all(options: Vec<RedisOptions>) -> Vec<RedisServer> {
    std::thread::scope(|scope| {
        let starting: Vec<_> = options
            .into_iter()
            .map(|options| scope.spawn(|| RedisServer::start(options)))
            .collect();
        starting
            .into_iter()
            .map(|server| server.join().expect("it starts"))
            .collect()
    })
}
