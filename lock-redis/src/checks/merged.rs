//! The findings of several servers as those of one service.

use std::sync::Arc;

use lock_core::Finding;

/// Puts together what was found of each server: said once where all are alike, and else with the
/// names of those that it is true of.
pub(crate) fn merged(servers: Vec<(Arc<str>, Vec<Finding>)>) -> Vec<Finding> {
    let count = servers.len();
    let mut found: Vec<(Finding, Vec<Arc<str>>)> = Vec::new();
    for (server, findings) in servers {
        for finding in findings {
            match found.iter_mut().find(|(known, _)| *known == finding) {
                Some((_, of)) => of.push(Arc::clone(&server)),
                None => found.push((finding, vec![Arc::clone(&server)])),
            }
        }
    }
    let mut checks: Vec<&'static str> = Vec::new();
    for (finding, _) in &found {
        if !checks.contains(&finding.check) {
            checks.push(finding.check);
        }
    }
    // The findings of one check stand together, in the order in which the checks were made.
    found.sort_by_key(|(finding, _)| checks.iter().position(|check| *check == finding.check));
    let named = found.into_iter().map(|(mut finding, of)| {
        if of.len() < count {
            finding.what = format!("{}: {}", of.join(", "), finding.what).into();
        }
        finding
    });
    named.collect()
}

/// Replaces what a server says of itself by what was seen when it was tried, unless it is known to
/// be wrong already.
pub(crate) fn overlaid(mut found: Vec<Finding>, mut tried: Vec<Finding>) -> Vec<Finding> {
    let faults = found.iter().filter(|finding| finding.is_fault());
    let faults: Vec<&str> = faults.map(|finding| finding.check).collect();
    tried.retain(|finding| !faults.contains(&finding.check));
    found.retain(|known| !tried.iter().any(|finding| finding.check == known.check));
    found.extend(tried);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(check: &'static str, what: &'static str) -> Finding {
        Finding::warning(check, what, "loss_reason", "way out")
    }

    fn texts(found: &[Finding]) -> Vec<String> {
        let text = |finding: &Finding| format!("{} {}", finding.check, finding.what);
        found.iter().map(text).collect()
    }

    #[test]
    fn what_is_true_of_all_is_said_once() {
        let of = |name: &str, second: Finding| {
            (Arc::from(name), vec![Finding::good("a", "right"), second])
        };
        let servers = vec![
            of("x:1", Finding::good("b", "right")),
            of("y:2", bad("b", "wrong")),
            of("z:3", Finding::good("b", "right")),
        ];
        let expected = ["a right", "b x:1, z:3: right", "b y:2: wrong"];
        assert_eq!(texts(&merged(servers)), expected);
        let alone = vec![of("x:1", bad("b", "wrong"))];
        assert_eq!(texts(&merged(alone)), ["a right", "b wrong"]);
        assert_eq!(merged(Vec::new()), []);
    }

    #[test]
    fn what_was_tried_counts_for_more_than_what_was_said() {
        let found = vec![
            Finding::good("a", "said"),
            bad("b", "said"),
            Finding::unknown("c", "unsaid"),
        ];
        let tried = vec![
            bad("a", "tried"),
            bad("b", "tried"),
            bad("d", "tried"),
            bad("d", "again"),
        ];
        let expected = ["b said", "c unsaid", "a tried", "d tried", "d again"];
        assert_eq!(texts(&overlaid(found, tried)), expected);
    }
}
