//! Judges what happened to locks: were two holders inside at once, did fencing tokens grow, was a
//! loss signaled in time, did a waiter get the lock when it was free?
//!
//! The crate knows no lock library. A test, a benchmark or a simulation writes down what its
//! clients saw, and asks one of two judges:
//!
//! - [`Checker`] judges a complete history of [`HistoryEvent`]s from any number of processes: requests,
//!   grants, renewals, losses, releases and writes to a fenced resource.
//! - [`Exclusion`] and [`TokenOrder`] judge [`Hold`]s one by one, during a run or after it. A hold is
//!   the time from a grant to the end of the work. They keep only what a later hold can violate, so
//!   that runs with millions of acquisitions can be judged.
//!
//! [`Checker`] uses the other two, so that each rule exists once.
//!
//! Times are nanoseconds of any clock that all clients share, such as `CLOCK_BOOTTIME` of one
//! machine. A client must note a grant after it was notified, and the end of its work before it releases.
//! Then a judge may miss a violation, but never reports one that did not happen.
//!
//! # Examples
//!
//! Two clients hold one lock at the same time, and the later one has the smaller token:
//!
//! ```
//! use polylock_history::{Checker, HistoryEvent, Violation, What};
//!
//! let request = |attempt| HistoryEvent::new(0, "invoice/7", attempt, What::exclusive());
//! let grant = |attempt, at, token| {
//!     let (token, until) = (Some(token), Some(at + 100));
//!     HistoryEvent::new(at, "invoice/7", attempt, What::Granted { token, until })
//! };
//! let events = [request(1), grant(1, 10, 8), request(2), grant(2, 60, 7)];
//! let verdict = Checker::new().check(&events);
//! let key = "invoice/7".to_owned();
//! assert_eq!(
//!     verdict.violations,
//!     [
//!         (key.clone(), Violation::Overlap { first: 1, second: 2 }),
//!         (key, Violation::TokenWentBack { later: 2, token: 7, largest: 8 }),
//!     ],
//! );
//! ```
//!
//! The same question for a benchmark, which has nothing but times:
//!
//! ```
//! use polylock_history::{Exclusion, Hold};
//!
//! let mut exclusion = Exclusion::new();
//! assert_eq!(exclusion.enter(Hold::new(1, 10, 20)), None);
//! assert_eq!(exclusion.enter(Hold::new(2, 20, 40)), None);
//! let other = exclusion.enter(Hold::new(3, 30, 50)).expect("2 is inside until 40");
//! assert_eq!((other.holder, other.until), (2, 40));
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod checker;
mod event;
mod hold;
mod span;
mod violation;

pub use self::checker::{Checker, Summary, Verdict};
pub use self::event::{Access, HistoryEvent, What};
pub use self::hold::{Exclusion, Hold, TokenOrder};
pub use self::violation::{Violation, check_holds};
