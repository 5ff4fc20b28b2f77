//! The stock and the orders, in SQLite or PostgreSQL.

use std::time::Duration;

use lock_core::FencingToken;
use sqlx::any::{AnyPoolOptions, install_default_drivers};
use sqlx::{AnyPool, Executor as _};

use crate::Result;

/// The database, as one instance sees it. Each method is one statement or one transaction.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    pool: AnyPool,
}

/// What there was when somebody looked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) stock: i64,
    pub(crate) version: i64,
}

/// How an order changes the stock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Write {
    /// To this number, whatever it is.
    Blind { stock: i64 },
    /// To this number, unless a later holder of the lock has written.
    Fenced { stock: i64, token: FencingToken },
    /// By one, if there is one.
    TakeOne,
    /// To this number, unless anybody has written since.
    Versioned { stock: i64, version: i64 },
}

/// An order as it is in the table; `buyer` has one of each item.
#[derive(Clone, Debug)]
pub(crate) struct Order<'a> {
    pub(crate) id: String,
    pub(crate) item: &'a str,
    pub(crate) buyer: i64,
}

/// What has become of an order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Booked {
    /// The buyer has one already, and this is its id.
    Before(String),
    /// It is in the books.
    Done,
    /// The stock was not to be changed in this way, and nothing was.
    Refused,
}

/// What the tables say in the end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Books {
    pub(crate) left: i64,
    pub(crate) orders: i64,
}

impl Shop {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        install_default_drivers();
        let settings = match url.starts_with("sqlite:") {
            true => SQLITE_SETTINGS,
            false => POSTGRES_SETTINGS,
        };
        let options = AnyPoolOptions::new()
            // All of them are open before the doors are.
            .min_connections(4)
            .max_connections(4)
            .acquire_timeout(Duration::from_secs(30))
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    connection.execute(settings).await?;
                    Ok(())
                })
            });
        let pool = options.connect(url).await?;
        Ok(Self { pool })
    }

    pub(crate) async fn furnish(&self) -> Result<()> {
        for table in TABLES {
            self.pool.execute(table).await?;
        }
        Ok(())
    }

    pub(crate) async fn put_on_sale(&self, item: &str, pieces: i64) -> Result<()> {
        let query = sqlx::query("INSERT INTO items (name, stock) VALUES ($1, $2)");
        query.bind(item).bind(pieces).execute(&self.pool).await?;
        Ok(())
    }

    pub(crate) async fn look(&self, item: &str) -> Result<Seen> {
        let query = sqlx::query_as("SELECT stock, version FROM items WHERE name = $1");
        let (stock, version) = query.bind(item).fetch_one(&self.pool).await?;
        Ok(Seen { stock, version })
    }

    /// The id of the order that a buyer has.
    pub(crate) async fn order_of(&self, item: &str, buyer: i64) -> Result<Option<String>> {
        let query = sqlx::query_scalar("SELECT id FROM orders WHERE item = $1 AND buyer = $2");
        Ok(query
            .bind(item)
            .bind(buyer)
            .fetch_optional(&self.pool)
            .await?)
    }

    /// Changes the stock and makes the order, or neither.
    pub(crate) async fn book(&self, order: &Order<'_>, write: Write) -> Result<Booked> {
        let mut tx = self.pool.begin().await?;
        // The write comes first: a transaction of SQLite that begins by reading may come too late.
        let update = match write {
            Write::Blind { stock } => sqlx::query("UPDATE items SET stock = $2 WHERE name = $1")
                .bind(order.item)
                .bind(stock),
            Write::Fenced { stock, token } => sqlx::query(
                "UPDATE items SET stock = $2, fence = $3 WHERE name = $1 AND fence <= $3",
            )
            .bind(order.item)
            .bind(stock)
            .bind(i64::try_from(token.value())?),
            Write::TakeOne => {
                sqlx::query("UPDATE items SET stock = stock - 1 WHERE name = $1 AND stock > 0")
                    .bind(order.item)
            }
            Write::Versioned { stock, version } => sqlx::query(
                "UPDATE items SET stock = $2, version = version + 1 \
                 WHERE name = $1 AND version = $3",
            )
            .bind(order.item)
            .bind(stock)
            .bind(version),
        };
        if update.execute(&mut *tx).await?.rows_affected() == 0 {
            tx.rollback().await?;
            return Ok(Booked::Refused);
        }
        let insert = sqlx::query(
            "INSERT INTO orders (id, item, buyer) VALUES ($1, $2, $3) \
             ON CONFLICT (item, buyer) DO NOTHING",
        )
        .bind(&order.id)
        .bind(order.item)
        .bind(order.buyer);
        if insert.execute(&mut *tx).await?.rows_affected() == 0 {
            tx.rollback().await?;
            let first = self.order_of(order.item, order.buyer).await?;
            return Ok(Booked::Before(first.ok_or("the first order is gone")?));
        }
        tx.commit().await?;
        Ok(Booked::Done)
    }

    pub(crate) async fn books(&self, item: &str) -> Result<Books> {
        let query = sqlx::query_scalar("SELECT COUNT(*) FROM orders WHERE item = $1");
        let orders = query.bind(item).fetch_one(&self.pool).await?;
        let left = self.look(item).await?.stock;
        Ok(Books { left, orders })
    }

    pub(crate) async fn close(self) {
        self.pool.close().await;
    }
}

/// The sale is over when the program ends: nothing has to survive a power cut.
const SQLITE_SETTINGS: &str =
    "PRAGMA busy_timeout = 30000; PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF";
const POSTGRES_SETTINGS: &str = "SET synchronous_commit = off";

const TABLES: [&str; 2] = [
    "CREATE TABLE items (
        name TEXT PRIMARY KEY,
        stock BIGINT NOT NULL,
        version BIGINT NOT NULL DEFAULT 0,
        fence BIGINT NOT NULL DEFAULT 0)",
    "CREATE TABLE orders (
        id TEXT PRIMARY KEY,
        item TEXT NOT NULL,
        buyer BIGINT NOT NULL,
        UNIQUE (item, buyer))",
];
