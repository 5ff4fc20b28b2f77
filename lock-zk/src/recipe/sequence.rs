//! The order of contenders: by their numbers, and beyond the last of 2^31 numbers by creation.

use std::collections::HashMap;

use futures_util::future::try_join_all;
use zookeeper_client::{Client, Error as ClientError};

use super::directory::Directory;
use super::names::ZkContender;

/// The number that the server appends to the name of a contender.
///
/// It is a counter of 32 bits with a sign, and runs from 2147483647 on to -2147483648.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Sequence(pub(crate) i64);

impl Sequence {
    /// The server writes at least ten characters.
    pub(crate) fn parse(number: &str) -> Option<Self> {
        let digits = number.strip_prefix('-').unwrap_or(number);
        let is_number = number.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| number.parse().ok().map(Self))?
    }

    /// Whether the counter is near its end or beyond it, so that numbers do not give the order: once
    /// the directory has stored the last number, the server gives it again and again.
    pub(crate) fn is_used_up(self) -> bool {
        i32::try_from(self.0).is_ok_and(|number| !(0..LAST).contains(&number))
    }
}

/// More creations than that are not under way at once.
const LAST: i32 = i32::MAX - (1 << 20);

/// The contenders among the children of a directory, in the order of their numbers. Those whose numbers are
/// used up are not in order before [`order_by_creation`].
pub(crate) fn contenders_in_order<'a>(
    names: impl IntoIterator<Item = &'a str>,
) -> Vec<ZkContender> {
    let mut line: Vec<_> = names.into_iter().filter_map(ZkContender::parse).collect();
    line.sort_by_key(|contender| contender.sequence.0);
    line
}

/// When the contenders whose numbers are used up were created; those whose node is gone are left out.
pub(crate) async fn created(
    line: &[ZkContender],
    client: &Client,
    directory: &Directory,
) -> Result<HashMap<String, i64>, ClientError> {
    let used_up = line.iter().filter(|own| own.sequence.is_used_up());
    let stats = used_up.map(|own| {
        let stat = client.check_stat(&directory.child(&own.name));
        async move { Ok::<_, ClientError>((own.name.clone(), stat.await?)) }
    });
    let created = try_join_all(stats).await?.into_iter();
    Ok(created
        .filter_map(|(name, stat)| Some((name, stat?.czxid)))
        .collect())
}

/// Orders contenders whose numbers are used up by their creation.
///
/// They come after contenders with usable numbers, and those whose node is gone are removed. Usable numbers
/// keep their order: a downgrade gives a contender a new node with its old number, so its creation says
/// nothing.
pub(crate) fn order_by_creation(line: &mut Vec<ZkContender>, created: &HashMap<String, i64>) {
    line.retain(|own| !own.sequence.is_used_up() || created.contains_key(&own.name));
    line.sort_by_key(|own| match own.sequence.is_used_up() {
        true => (true, created.get(&own.name).copied()),
        false => (false, Some(own.sequence.0)),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(line: &[ZkContender]) -> String {
        line.iter().map(|own| &own.name[..1]).collect()
    }

    #[test]
    fn the_numbers_count_and_not_the_letters_before_them() {
        let names = [
            "z-lock-0000000001",
            "a-lock-0000000002",
            "m__lock__0000000000",
            "junk",
        ];
        assert_eq!(order(&contenders_in_order(names)), "mza");
    }

    #[test]
    fn numbers_are_used_up_before_the_counter_wraps() {
        for number in [i32::MAX, i32::MIN, -1] {
            assert!(
                Sequence(number.into()).is_used_up(),
                "sequence number {number}"
            );
        }
        for number in [0, 1 << 30, 1 << 40] {
            assert!(!Sequence(number).is_used_up(), "sequence number {number}");
        }
    }

    #[test]
    fn creation_orders_numbers_that_are_used_up_and_no_others() {
        let last = i32::MAX - (1 << 20);
        let names = |numbers: &[i32]| -> Vec<String> {
            let names = ('p'..).zip(numbers);
            names
                .map(|(own, number)| format!("{own}-lock-{number:010}"))
                .collect()
        };
        // The numbers of p, q, and so on; those whose node is there, by their creation; the order.
        let cases: [(&[i32], &str, &str); 3] = [
            // Equal numbers, and a node that is gone.
            (&[i32::MAX, i32::MAX, i32::MAX - 1], "qp", "qp"),
            // The counter has wrapped.
            (&[i32::MAX, i32::MIN, -1], "pqr", "pqr"),
            // One whose number is not used up keeps it, whenever its node was created.
            (&[last - 1, last, last + 1, 7], "rqp", "sprq"),
        ];
        for (numbers, nodes, expected) in cases {
            let names = names(numbers);
            let mut line = contenders_in_order(names.iter().map(String::as_str));
            let node = |own: char| names.iter().find(|name| name.starts_with(own)).cloned();
            let created = nodes.chars().zip(1..);
            let created = created.filter_map(|(own, at)| Some((node(own)?, at)));
            order_by_creation(&mut line, &created.collect());
            assert_eq!(order(&line), expected, "{names:?}");
        }
    }
}
