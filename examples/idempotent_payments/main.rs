//! Payments that are sent more than once: by double clicks, and by clients that give up waiting and
//! try again.
//!
//! ```console
//! $ cargo run -p polylock-examples --example idempotent_payments
//! $ cargo run -p polylock-examples --example idempotent_payments -- --backend redis://localhost
//! ```
//!
//! Three instances of a service take `POST /payments` and charge a card, which takes 100 ms and
//! cannot be undone. Each client has one payment with one `Idempotency-Key`, which all of them call
//! by the same name: keys are known within the scope of a customer. It sends it to two instances at
//! once, and again until it gets a receipt; every second client hangs up after 20 ms.
//!
//! | mode | what happens |
//! |---|---|
//! | none | each request charges the card |
//! | store | responses are stored and repeated; who comes before there is one charges the card |
//! | layer | `lock_tower::idempotency::IdempotencyLayer`: a lock for each key, and the same store |
//!
//! Exits with 0 if the layer charged each card once and gave all clients the receipt of that, and
//! the other modes charged cards twice.
//!
//! The layer cannot help against an instance that dies between charge and response. Where the
//! effect is in the database of the responses, `SqlResponses::put_in` makes them one.

mod clients;
mod customer;
mod report;
mod service;

use std::error::Error;
use std::io::{self, Write};
use std::sync::Arc;

use clap::Parser;
use lock_tower::idempotency::SqlResponses;

use crate::clients::{pay, refused};
use crate::report::{Report, Run};
use crate::service::{Cards, Instance, Mode};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

#[derive(Clone, Debug, Parser)]
struct Args {
    /// Where the locks are, a URL that all instances share (not `memory:`, which each has for
    /// itself, but `memory:NAME`).
    #[arg(long, default_value = "memory:idempotent-payments")]
    backend: String,
    /// How many servers take payments.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    instances: u8,
    /// How many clients pay.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    payments: u32,
}

#[tokio::main]
async fn main() -> Result<()> {
    let report = show(&Args::parse()).await?;
    write!(io::stdout().lock(), "{report}")?;
    match report.broken_claims().as_slice() {
        [] => Ok(()),
        broken => Err(broken.join("; ").into()),
    }
}

async fn show(args: &Args) -> Result<Report> {
    let directory = tempfile::tempdir()?;
    let mut runs = Vec::new();
    for mode in Mode::ALL {
        let file = directory.path().join(format!("{mode:?}.db"));
        runs.push(run(args, mode, &format!("sqlite:{}", file.display())).await?);
    }
    let payments = args.payments as usize;
    Ok(Report { payments, runs })
}

async fn run(args: &Args, mode: Mode, responses: &str) -> Result<Run> {
    let cards = Arc::new(Cards::default());
    let mut instances = Vec::new();
    for _ in 0..args.instances {
        let responses = SqlResponses::connect(responses).await?;
        let locks = polylock::connect(&args.backend).await?;
        instances.push(Instance::start(mode, locks, responses, Arc::clone(&cards)).await?);
    }
    let addresses: Vec<_> = instances.iter().map(Instance::address).collect();
    let answers = pay(&addresses, args.payments).await?;
    let refused = match mode {
        Mode::Layer => Some(refused(addresses[0]).await?),
        Mode::None | Mode::Store => None,
    };
    for instance in instances {
        instance.stop().await?;
    }
    Ok(Run {
        mode,
        answers,
        charges: cards.charges(),
        refused,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_card_is_charged_once_behind_the_layer_only() {
        let report = show(&Args::parse_from(["idempotent_payments"])).await;
        let report = report.unwrap();
        assert_eq!(report.broken_claims(), Vec::<String>::new(), "{report}");
        let [none, store, layer] = &report.runs[..] else {
            panic!("three modes, {report}");
        };
        for run in [none, store] {
            assert!(run.charges.values().any(|times| *times > 1), "{report}");
        }
        assert_eq!(layer.charges.len(), 20);
        assert!(layer.charges.values().all(|times| *times == 1), "{report}");
        // One of the two that came at once found the other, and who came again found a receipt.
        assert!(
            layer.answers.busy > 0 && layer.answers.replayed >= 20,
            "{report}"
        );
        assert_eq!(layer.refused, Some([400, 422]));
    }
}
