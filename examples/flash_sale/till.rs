//! How an order is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use lock_core::FencingToken;
use lock_core::fencing::StaleToken;
use tokio::sync::Barrier;

use crate::Result;
use crate::mode::Mode;
use crate::shop::{Booked, Order, Shop, Write};

/// Where one instance serves its orders.
#[derive(Debug)]
pub(crate) struct Till {
    pub(crate) shop: Shop,
    pub(crate) mode: Mode,
    pub(crate) ids: OrderIds,
    pub(crate) thought: Arc<Thought>,
    /// How often an order began again.
    pub(crate) retries: AtomicU32,
}

/// What a buyer is told.
#[derive(Clone, Debug)]
pub(crate) enum Sold {
    /// The order that was made before: a second click is no second order.
    Again(String),
    New(String),
    Out,
}

impl Till {
    pub(crate) async fn sell(
        &self,
        item: &str,
        buyer: i64,
        token: Option<FencingToken>,
    ) -> Result<Sold> {
        if let Some(order) = self.shop.order_of(item, buyer).await? {
            return Ok(Sold::Again(order));
        }
        let id = self.ids.next();
        let order = Order { id, item, buyer };
        loop {
            let Some(write) = self.decide(item, token).await? else {
                return Ok(Sold::Out);
            };
            match (self.shop.book(&order, write).await?, write) {
                (Booked::Before(order), _) => return Ok(Sold::Again(order)),
                (Booked::Done, _) => return Ok(Sold::New(order.id)),
                (Booked::Refused, Write::Fenced { token, .. }) => {
                    return Err(StaleToken::new(item, token).into());
                }
                (Booked::Refused, Write::TakeOne) => return Ok(Sold::Out),
                (Booked::Refused, Write::Versioned { .. }) => {
                    self.retries.fetch_add(1, Ordering::Relaxed);
                }
                (Booked::Refused, Write::Blind { .. }) => return Err("no such item".into()),
            }
        }
    }

    /// Looks, thinks, and says what to write; `None` if there is nothing left.
    async fn decide(&self, item: &str, token: Option<FencingToken>) -> Result<Option<Write>> {
        let seen = self.shop.look(item).await?;
        if seen.stock <= 0 {
            return Ok(None);
        }
        self.thought.take().await;
        let stock = seen.stock - 1;
        Ok(Some(match self.mode {
            Mode::Conditional => Write::TakeOne,
            Mode::LockFencing => {
                let token = token.ok_or("the backend has no fencing tokens")?;
                Write::Fenced { stock, token }
            }
            Mode::Optimistic => {
                let version = seen.version;
                Write::Versioned { stock, version }
            }
            Mode::Lock | Mode::None => Write::Blind { stock },
        }))
    }
}

/// Ids that no other instance gives, without a word to anybody: the number of the instance and
/// that of the order in it.
///
/// The number of the instance is a fencing token that it drew when it started, so that it differs
/// after a restart of the service too: names of hosts and ids of processes come back, and counters
/// begin again. This assumes that the backend of the locks keeps its own counter: memory that
/// nobody is connected to, or a Redis that restarts without its data, gives the same tokens again.
/// Who cannot assume it puts a unique constraint on the id, or takes a random one.
#[derive(Debug)]
pub(crate) struct OrderIds {
    instance: FencingToken,
    orders: AtomicU64,
}

impl OrderIds {
    pub(crate) fn of(instance: FencingToken) -> Self {
        let orders = AtomicU64::new(0);
        Self { instance, orders }
    }

    fn next(&self) -> String {
        let order = self.orders.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{}-{order}", self.instance)
    }
}

/// The time between looking and writing.
#[derive(Debug)]
pub(crate) struct Thought {
    pause: Duration,
    /// Where nothing keeps others out, the first have all looked before one of them writes: what
    /// goes wrong does not depend on luck.
    first: Option<Barrier>,
    thoughts: AtomicU32,
}

impl Thought {
    pub(crate) fn new(pause: Duration, mode: Mode) -> Self {
        Self {
            pause,
            first: (!mode.locks()).then(|| Barrier::new(FIRST as usize)),
            thoughts: AtomicU32::new(0),
        }
    }

    async fn take(&self) {
        let number = self.thoughts.fetch_add(1, Ordering::Relaxed);
        if let Some(first) = self.first.as_ref().filter(|_| number < FIRST) {
            first.wait().await;
        }
        tokio::time::sleep(self.pause).await;
    }
}

/// Two of them may be the two clicks of one buyer, and buy once.
const FIRST: u32 = 3;
