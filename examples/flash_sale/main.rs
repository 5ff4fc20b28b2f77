//! A flash sale: more buyers than pieces, three instances of a service, and five ways to sell.
//!
//! ```console
//! $ cargo run -p polylock-examples --example flash_sale
//! $ cargo run -p polylock-examples --example flash_sale -- \
//!     --backend redis://localhost --database postgres://me:secret@localhost/sale
//! ```
//!
//! Each instance has its own pool of database connections and its own connection to the locks; the
//! buyers send `POST /items/{item}/orders` over HTTP, and some of them click twice. Whatever the
//! mode, an order is made of the same steps: look at the stock, think for a moment, write.
//!
//! | mode | what keeps two orders from taking the same piece |
//! |---|---|
//! | none | nothing |
//! | lock | `lock_tower::KeyLockLayer` on the route; the handler is the same |
//! | lock-fencing | the layer, and a column that refuses the write of an earlier holder |
//! | conditional | `UPDATE .. SET stock = stock - 1 WHERE stock > 0` |
//! | optimistic | a version column; whoever finds another version begins again |
//!
//! Exits with 0 if the first mode sold more than there is, the others sold each piece once, nobody
//! got two orders, and the fence refused a late write that the lock alone let through.
//!
//! Where one statement can say it, as here, the conditional update is the better choice, and the
//! table says so. A lock is for what one statement cannot say: several tables, another service.

mod buyers;
mod instance;
mod late;
mod mode;
mod report;
mod shop;
#[cfg(test)]
mod tests;
mod till;

use std::error::Error;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use lock_tower::Locker;
use tempfile::TempDir;

use crate::instance::Instance;
use crate::mode::Mode;
use crate::report::{Report, Run};
use crate::shop::Shop;
use crate::till::Thought;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Sells more or less what there is.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Where the locks are, a URL that all instances share (not `memory:`, which each has for
    /// itself, but `memory:NAME`) [default: a SQLite file in a temporary directory].
    #[arg(long)]
    backend: Option<String>,
    /// Where the stock is, the URL of an empty database, `sqlite:` or `postgres:` [default: a
    /// SQLite file in the same directory].
    #[arg(long)]
    database: Option<String>,
    /// How many servers sell.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    instances: u8,
    /// How many want one piece; every tenth asks twice at once.
    #[arg(long, default_value_t = 300)]
    buyers: u32,
    /// How many pieces there are.
    #[arg(long, default_value_t = 100)]
    pieces: u32,
    /// How many requests are under way at a time.
    #[arg(long, default_value_t = 32)]
    clients: u16,
}

#[tokio::main]
async fn main() -> Result<()> {
    let report = sale(&Args::parse()).await?;
    write!(io::stdout().lock(), "{report}")?;
    match report.broken_claims().as_slice() {
        [] => Ok(()),
        broken => Err(broken.join("; ").into()),
    }
}

async fn sale(args: &Args) -> Result<Report> {
    if args.buyers < 2 * args.pieces || args.pieces < 2 || args.clients < 4 {
        return Err("a flash sale has a piece for every second buyer at most, and a crowd".into());
    }
    let place = Place::of(args)?;
    let shop = Shop::open(&place.database).await?;
    shop.furnish().await?;
    // Stays connected throughout: a store in memory is gone when nobody is.
    let locks = polylock::connect(&place.backend).await?;
    let mut runs = Vec::new();
    for mode in Mode::ALL {
        runs.push(run(args, &place, &shop, mode).await?);
    }
    let locker = Locker::builder(locks, instance::NAMESPACE).build()?;
    let late = [
        late::late_write(&shop, &locker, Mode::Lock).await?,
        late::late_write(&shop, &locker, Mode::LockFencing).await?,
    ];
    shop.close().await;
    Ok(Report {
        pieces: args.pieces.into(),
        runs,
        late,
    })
}

/// Opens the doors once, in one mode, for an item of its own.
async fn run(args: &Args, place: &Place, shop: &Shop, mode: Mode) -> Result<Run> {
    let item = mode.name();
    shop.put_on_sale(item, args.pieces.into()).await?;
    let thought = Arc::new(Thought::new(THINKING, mode));
    let mut instances = Vec::new();
    for _ in 0..args.instances {
        let thought = Arc::clone(&thought);
        instances.push(Instance::start(&place.backend, &place.database, mode, thought).await?);
    }
    let addresses: Vec<_> = instances.iter().map(Instance::address).collect();
    let answers = buyers::buy(&addresses, item, args.buyers, args.clients.into()).await?;
    let mut retries = 0;
    for instance in instances {
        retries += instance.stop().await?;
    }
    let books = shop.books(item).await?;
    Ok(Run {
        mode,
        answers,
        books,
        retries,
    })
}

/// The time between looking at the stock and writing: prices, vouchers, a call to somebody else.
const THINKING: Duration = Duration::from_millis(2);

/// Where stock and locks are.
struct Place {
    backend: String,
    database: String,
    _directory: TempDir,
}

impl Place {
    fn of(args: &Args) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let file = |name: &str| directory.path().join(name).display().to_string();
        let backend = || format!("sqlite:{}", file("locks.db"));
        let database = || format!("sqlite:{}?mode=rwc", file("sale.db"));
        Ok(Self {
            backend: args.backend.clone().unwrap_or_else(backend),
            database: args.database.clone().unwrap_or_else(database),
            _directory: directory,
        })
    }
}
