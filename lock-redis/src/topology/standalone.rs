use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::Cmd;

use super::connector::Connectors;
use super::context::ConnectionContext;
use super::contract::{Call, Done, NodeReply, Take, Taken, Topology};
use super::node::Node;
use super::scan::scan;
use crate::config::{Endpoint, RedisConfig};
use crate::error::Failure;

/// One server at a fixed address.
#[derive(Debug)]
pub(super) struct Standalone {
    node: Node,
    shared: Arc<ConnectionContext>,
}

impl Standalone {
    pub(super) fn new(
        config: &RedisConfig,
        endpoint: &Endpoint,
        shared: Arc<ConnectionContext>,
    ) -> Result<Self, Failure> {
        let node = Node::new(Connectors::new(config)?.to(endpoint)?, Arc::clone(&shared));
        Ok(Self { node, shared })
    }

    pub(super) async fn open(&self) -> Result<(), Failure> {
        self.node.open().await
    }
}

#[async_trait]
impl Topology for Standalone {
    async fn call_with(
        &self,
        call: Call<'_>,
        wait: Option<(u32, Duration)>,
    ) -> Result<Done, Failure> {
        self.node
            .call_with(call, wait, self.shared.deadline())
            .await
    }

    async fn take(
        &self,
        take: Take<'_>,
        wait: Option<(u32, Duration)>,
    ) -> Result<(Taken, Done), Failure> {
        self.node.take(take, wait, self.shared.deadline()).await
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

    async fn broadcast(&self, command: &Cmd) -> Result<Vec<NodeReply>, Failure> {
        Ok(vec![self.node.ask(command).await?])
    }

    async fn scan(&self, pattern: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        scan(&[&self.node], pattern).await
    }
}
