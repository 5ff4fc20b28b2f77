//! The health checks of several servers as those of one service.

use std::sync::Arc;

use polylock_core::HealthCheck;

/// Merges the health checks of all servers. Each is listed once if all servers agree, and otherwise with
/// the names of the servers that it applies to.
pub(crate) fn merged(servers: Vec<(Arc<str>, Vec<HealthCheck>)>) -> Vec<HealthCheck> {
    let count = servers.len();
    let mut found: Vec<(HealthCheck, Vec<Arc<str>>)> = Vec::new();
    for (server, health_checks) in servers {
        for health in health_checks {
            match found.iter_mut().find(|(known, _)| *known == health) {
                Some((_, of)) => of.push(Arc::clone(&server)),
                None => found.push((health, vec![Arc::clone(&server)])),
            }
        }
    }
    let mut checks: Vec<&'static str> = Vec::new();
    for (health, _) in &found {
        if !checks.contains(&health.id) {
            checks.push(health.id);
        }
    }
    // Groups the results of one check, in the order of the checks.
    found.sort_by_key(|(health, _)| checks.iter().position(|check| *check == health.id));
    let named = found.into_iter().map(|(mut health, of)| {
        if of.len() < count {
            health.summary = format!("{}: {}", of.join(", "), health.summary).into();
        }
        health
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(check: &'static str, what: &'static str) -> HealthCheck {
        HealthCheck::warning(check, what, "loss_reason", "way out")
    }

    fn texts(found: &[HealthCheck]) -> Vec<String> {
        let text = |health: &HealthCheck| format!("{} {}", health.id, health.summary);
        found.iter().map(text).collect()
    }

    #[test]
    fn what_is_true_of_all_is_said_once() {
        let of = |name: &str, second: HealthCheck| {
            (Arc::from(name), vec![HealthCheck::ok("a", "right"), second])
        };
        let servers = vec![
            of("x:1", HealthCheck::ok("b", "right")),
            of("y:2", bad("b", "wrong")),
            of("z:3", HealthCheck::ok("b", "right")),
        ];
        let expected = ["a right", "b x:1, z:3: right", "b y:2: wrong"];
        assert_eq!(texts(&merged(servers)), expected);
        let alone = vec![of("x:1", bad("b", "wrong"))];
        assert_eq!(texts(&merged(alone)), ["a right", "b wrong"]);
        assert_eq!(merged(Vec::new()), []);
    }
}
