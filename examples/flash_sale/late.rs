//! A write that comes after its lock has gone to somebody else.

use lock_core::fencing::StaleToken;
use lock_tower::{HeldLock, Locker};

use crate::Result;
use crate::mode::Mode;
use crate::shop::{Booked, Books, Order, Shop, Write};

/// What became of it.
#[derive(Clone, Debug)]
pub(crate) struct LateWrite {
    pub(crate) mode: Mode,
    pub(crate) refused: Option<StaleToken>,
    pub(crate) books: Books,
}

/// How many of the item there are.
pub(crate) const PIECES: i64 = 10;

/// The client of an order hangs up: its handler is dropped and its lock given back, but the update
/// is on its way through the network. It arrives after the next order has been served.
///
/// A holder that was paused for longer than its lease looks the same to the database.
pub(crate) async fn late_write(shop: &Shop, locker: &Locker, mode: Mode) -> Result<LateWrite> {
    let item = format!("late-{}", mode.name());
    shop.put_on_sale(&item, PIECES).await?;
    let order = |buyer| Order {
        id: format!("{item}-{buyer}"),
        item: &item,
        buyer,
    };

    let held = locker.lock(item.as_str()).await?;
    let late = decide(shop, mode, &item, &held).await?;
    held.release().await?;

    let held = locker.lock(item.as_str()).await?;
    let in_time = decide(shop, mode, &item, &held).await?;
    let booked = shop.book(&order(2), in_time).await?;
    held.release().await?;
    if booked != Booked::Done {
        return Err(format!("the order in time was {booked:?}").into());
    }

    let refused = match (shop.book(&order(1), late).await?, late, in_time) {
        (Booked::Refused, Write::Fenced { token, .. }, Write::Fenced { token: newest, .. }) => {
            Some(StaleToken::new(&item, token).with_newest(newest))
        }
        _ => None,
    };
    let books = shop.books(&item).await?;
    Ok(LateWrite {
        mode,
        refused,
        books,
    })
}

/// What a till in this mode would write.
async fn decide(shop: &Shop, mode: Mode, item: &str, held: &HeldLock) -> Result<Write> {
    let stock = shop.look(item).await?.stock - 1;
    if mode != Mode::LockFencing {
        return Ok(Write::Blind { stock });
    }
    let token = held.fencing_token();
    let token = token.ok_or("the backend has no fencing tokens")?;
    Ok(Write::Fenced { stock, token })
}
