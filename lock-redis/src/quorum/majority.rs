//! The size of a majority; pure functions.

/// The number of nodes that decide: any two majorities have a node in common.
pub(super) const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Whether the remaining nodes are fewer than a majority.
pub(crate) const fn is_too_few(nodes: usize, without: usize) -> bool {
    nodes - without < majority(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_ends_with_its_last_node() {
        for (nodes, least) in [(1, 1), (3, 2), (4, 2), (5, 3), (6, 3)] {
            let without = (0..=nodes).find(|without| is_too_few(nodes, *without));
            assert_eq!(without, Some(least), "of {nodes}");
        }
    }
}
