use std::sync::Arc;

use async_trait::async_trait;

use super::connector::Connectors;
use super::context::ConnectionContext;
use super::contract::{Call, Done, Topology};
use super::node::Node;
use crate::config::{Endpoint, RedisConfig};
use crate::error::Failure;

/// One server at a fixed address.
#[derive(Debug)]
pub(super) struct Standalone {
    node: Arc<Node>,
    shared: Arc<ConnectionContext>,
}

impl Standalone {
    pub(super) fn new(
        config: &RedisConfig,
        endpoint: &Endpoint,
        shared: Arc<ConnectionContext>,
    ) -> Result<Self, Failure> {
        let node = Node::new(Connectors::new(config)?.to(endpoint)?, Arc::clone(&shared));
        let node = Arc::new(node);
        Ok(Self { node, shared })
    }
}

#[async_trait]
impl Topology for Standalone {
    async fn open(&self) -> Result<(), Failure> {
        self.node.open().await
    }

    async fn call(&self, call: Call<'_>) -> Result<Done, Failure> {
        let deadline = self.shared.deadline();
        self.node.call(call, false, deadline).await
    }

    async fn channel(&self) -> Result<Option<Arc<str>>, Failure> {
        self.node.channel(self.shared.deadline()).await
    }

    fn subscribed(&self) -> Option<Arc<str>> {
        self.node.subscribed()
    }

    fn one_slot(&self) -> bool {
        true
    }

    async fn masters(&self) -> Result<Vec<Arc<Node>>, Failure> {
        Ok(vec![Arc::clone(&self.node)])
    }
}
