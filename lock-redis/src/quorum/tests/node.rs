use std::collections::HashSet;

use super::super::token::Raised;
use crate::script::BLOCK;

/// What `vote.lua`, `raise.lua` and `release.lua` do, without the clock below which a node gives no
/// token: the counters alone have to keep the order.
#[derive(Debug, Default)]
pub(super) struct Node {
    last: u64,
    owner: u64,
    holders: Vec<(u64, u64)>,
    gone: HashSet<u64>,
}

impl Node {
    pub(super) fn vote(&mut self, id: u64, shared: bool, now: u64, until: u64) -> Option<u64> {
        self.expire(now);
        let is_free = shared || self.holders.is_empty();
        if self.gone.contains(&id) || !is_free {
            return None;
        }
        self.holders.push((id, until));
        let token = self.last + 1;
        (self.last, self.owner) = (end(shared, token), id);
        Some(token)
    }

    pub(super) fn raise(&mut self, id: u64, token: u64, shared: bool, now: u64) -> Raised {
        self.expire(now);
        let top = end(shared, token);
        if !self.holders.iter().any(|(holder, _)| *holder == id) {
            Raised::NotHeld
        } else if self.last > top || self.last == top && self.owner != id {
            Raised::Overtaken(self.last)
        } else {
            (self.last, self.owner) = (top, id);
            Raised::Done
        }
    }

    pub(super) fn release(&mut self, id: u64) {
        self.gone.insert(id);
        self.holders.retain(|(holder, _)| *holder != id);
    }

    fn expire(&mut self, now: u64) {
        self.holders.retain(|(_, until)| *until > now);
    }
}

pub(super) fn end(shared: bool, token: u64) -> u64 {
    if shared { token } else { token + BLOCK - 1 }
}
