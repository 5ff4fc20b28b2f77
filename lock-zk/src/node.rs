use std::sync::{Mutex, PoisonError};

use crate::recipe::names::Contender;

/// What is known of the node of a contender.
#[derive(Debug, Default)]
pub(crate) struct NodeState(Mutex<Known>);

#[derive(Clone, Debug, Default)]
pub(crate) enum Known {
    /// Nothing was sent that could have created one.
    #[default]
    Never,
    /// It may be there, under a name that begins with one of the stems.
    Unknown,
    /// It was there under this name.
    At(Node),
}

/// The node of a contender.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) contender: Contender,
    /// When it was created, in transactions.
    pub(crate) czxid: i64,
}

impl NodeState {
    pub(crate) fn set(&self, known: Known) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }

    pub(crate) fn get(&self) -> Known {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The node, if it was ever seen.
    pub(crate) fn at(&self) -> Option<Node> {
        match self.get() {
            Known::At(node) => Some(node),
            Known::Never | Known::Unknown => None,
        }
    }
}
