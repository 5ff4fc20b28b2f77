use std::collections::HashSet;
use std::sync::Arc;

use redis::{Value, cmd, from_redis_value};

use super::node::Node;
use crate::error::{Cause, Failure};

/// All keys of some servers that match a pattern, each once.
pub(super) async fn scan(nodes: &[&Node], pattern: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let mut keys = HashSet::new();
    for node in nodes {
        let mut cursor = 0;
        loop {
            let mut request = cmd("SCAN");
            request.arg(cursor).arg("MATCH").arg(pattern);
            request.arg("COUNT").arg(KEYS_AT_ONCE);
            let (next, found) = page(node, node.run(&request).await?)?;
            keys.extend(found);
            if next == 0 {
                break;
            }
            cursor = next;
        }
    }
    Ok(keys.into_iter().collect())
}

/// Keys that a server looks at in one go, for about 100 microseconds.
const KEYS_AT_ONCE: usize = 1000;

fn page(node: &Node, answer: Value) -> Result<(u64, Vec<Vec<u8>>), Failure> {
    from_redis_value(answer).map_err(|error| {
        let (server, what) = (Arc::clone(node.server()), format!("SCAN: {error}"));
        Cause::Malformed { server, what }.into()
    })
}
