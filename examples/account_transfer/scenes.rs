//! What is played.

use std::sync::Arc;
use std::time::Duration;

use lock_core::fencing::StaleToken;
use lock_tower::{HeldLock, Locker, Reason, Rejection};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::bank::{ACCOUNTS, Bank, Made, NAMESPACE, NO_TOKENS, Transfer, tokens_of};
use crate::report::{Crossing, Late, Rush};
use crate::{Args, Result};

/// Random transfers; without branches nobody locks anything.
pub(crate) async fn rush(args: &Args, bank: &Bank, branches: Option<&Branches>) -> Result<Rush> {
    // Two transfers of an odd cent that share an account, and have both looked before one writes:
    // what the amounts of the others, all of them multiples of ten, cannot make good.
    let meeting = branches.is_none().then(|| Arc::new(Barrier::new(2)));
    let mut tasks = JoinSet::new();
    for (number, (from, to)) in [(0, 1), (2, 0)].into_iter().enumerate() {
        let (bank, teller) = (bank.clone(), branches.map(|all| all.teller(number)));
        let (transfer, meeting) = (Transfer { from, to, cents: 1 }, meeting.clone());
        tasks.spawn(async move {
            let meeting = meeting.as_deref();
            Ok(vec![bank.serve(transfer, teller, meeting).await?])
        });
    }
    let mut made = finish(&mut tasks).await?;
    for task in 0..args.tasks {
        let (bank, teller) = (bank.clone(), branches.map(|all| all.teller(task as usize)));
        let drawn = (0..args.transfers).map(|number| Transfer::random((args.seed, task, number)));
        let drawn: Vec<_> = drawn.collect();
        tasks.spawn(async move {
            let mut made = Vec::new();
            for transfer in drawn {
                made.push(bank.serve(transfer, teller.clone(), None).await?);
            }
            Ok(made)
        });
    }
    made.extend(finish(&mut tasks).await?);
    let balances = bank.balances().await?;
    Ok(Rush {
        made: made.iter().filter(|made| **made == Made::Done).count(),
        declined: made.iter().filter(|made| **made == Made::Declined).count(),
        sum: balances.iter().sum(),
        least: balances.iter().copied().min().unwrap_or(0),
    })
}

async fn finish<T: 'static>(tasks: &mut JoinSet<Result<Vec<T>>>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    while let Some(done) = tasks.join_next().await {
        all.extend(done??);
    }
    Ok(all)
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Order {
    FromFirst,
    Sorted,
}

/// Four pairs of transfers from A to B and from B to A, all at once.
pub(crate) async fn cross(bank: &Bank, branches: &Branches, order: Order) -> Result<Crossing> {
    let mut tasks = JoinSet::new();
    for a in (0..ACCOUNTS).step_by(2) {
        let meeting = Arc::new(Barrier::new(2));
        for (number, (from, to)) in [(a, a + 1), (a + 1, a)].into_iter().enumerate() {
            let (bank, locker) = (bank.clone(), branches.teller(number));
            let (transfer, meeting) = (
                Transfer {
                    from,
                    to,
                    cents: 10,
                },
                Arc::clone(&meeting),
            );
            tasks.spawn(async move {
                let done = match order {
                    Order::FromFirst => one_by_one(&bank, transfer, &locker, &meeting).await,
                    Order::Sorted => {
                        meeting.wait().await;
                        bank.serve(transfer, Some(locker), None).await.map(drop)
                    }
                };
                Ok(vec![is_in_time(done)?])
            });
        }
    }
    let in_time = finish(&mut tasks).await?;
    Ok(Crossing {
        done: in_time.iter().filter(|in_time| **in_time).count(),
        timed_out: in_time.iter().filter(|in_time| !**in_time).count(),
        sum: bank.balances().await?.iter().sum(),
    })
}

/// Do not do this: whoever has a lock and waits for another may be who the other one waits for.
async fn one_by_one(
    bank: &Bank,
    transfer: Transfer,
    locker: &Locker,
    meeting: &Barrier,
) -> Result<()> {
    let from = locker.lock(transfer.from.to_string()).await?;
    meeting.wait().await;
    let to = locker.lock(transfer.to.to_string()).await?;
    let fence = |held: &HeldLock| held.fencing_token().ok_or(NO_TOKENS);
    let fences = [fence(&from)?, fence(&to)?];
    if let Some(new) = bank.look(transfer).await? {
        bank.write(transfer, new, fences).await?;
    }
    to.release().await?;
    from.release().await?;
    Ok(())
}

/// Tells the end of a wait from other errors.
fn is_in_time(done: Result<()>) -> Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(error) => match error.downcast_ref::<Rejection>() {
            Some(rejection) if rejection.reason() == Reason::TimedOut => Ok(false),
            _ => Err(error),
        },
    }
}

/// A transfer from 0 to 1 is delayed on its way to the database, and its locks have been given
/// back. Before it arrives, another has used account 1, and only that.
pub(crate) async fn arrive_late(bank: &Bank, branches: &Branches) -> Result<Late> {
    let late = Transfer {
        from: 0,
        to: 1,
        cents: 100,
    };
    let locker = branches.teller(0);
    let held = locker.lock_all(late.accounts()).await?;
    let new = bank.look(late).await?.ok_or("account 0 is empty")?;
    let fences = tokens_of(&held, late)?;
    held.release().await?;

    let in_time = Transfer {
        from: 1,
        to: 2,
        cents: 500,
    };
    bank.serve(in_time, Some(branches.teller(1)), None).await?;

    let refused = match bank.write(late, new, fences).await {
        Ok(()) => None,
        Err(error) => Some(*error.downcast::<StaleToken>()?),
    };
    let balances = bank.balances().await?;
    Ok(Late { refused, balances })
}

/// The places where transfers are served; each is connected to the locks by itself.
pub(crate) struct Branches(Vec<Locker>);

impl Branches {
    pub(crate) async fn open(backend: &str, wait: Duration) -> Result<Self> {
        let mut lockers = Vec::new();
        for _ in 0..2 {
            let locks = polylock::connect(backend).await?;
            lockers.push(Locker::builder(locks, NAMESPACE).wait(wait).build()?);
        }
        Ok(Self(lockers))
    }

    fn teller(&self, number: usize) -> Locker {
        self.0[number % self.0.len()].clone()
    }
}
