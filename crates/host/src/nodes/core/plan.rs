//! Which node should own which unit: a function of the nodes that live, so that all of them come to the same result.

use std::collections::BTreeMap;

/// The owner that each unit should have, by unit: one of `nodes`, each for its fair share at most.
///
/// Every unit ranks the nodes by a hash of both (rendezvous hashing), so that a node that comes or goes moves few units
/// of the others. A unit takes the first node in its ranking whose share is not full. `refusing`: the nodes that could not
/// take a unit; they count only if all are such.
pub(in crate::nodes) fn owners<'a>(
    units: u64,
    nodes: &[&'a str],
    refusing: impl Fn(u64) -> Vec<&'a str>,
) -> Vec<Option<&'a str>> {
    let share = units.div_ceil(nodes.len().max(1) as u64);
    let mut load: BTreeMap<&str, u64> = BTreeMap::new();
    let place = |unit: u64| {
        let ranked = ranked(unit, nodes, &refusing(unit));
        let has_room = |node: &&&str| load.get(**node).copied().unwrap_or_default() < share;
        // The shares of those that do not refuse it may be full.
        let owner = ranked.iter().find(has_room).or(ranked.first()).copied()?;
        *load.entry(owner).or_default() += 1;
        Some(owner)
    };
    (0..units).map(place).collect()
}

/// The owner that a unit should have which counts towards no share: the first of `nodes` in its ranking.
pub(in crate::nodes) fn owner<'a>(unit: u64, nodes: &[&'a str], refusing: &[&str]) -> Option<&'a str> {
    ranked(unit, nodes, refusing).first().copied()
}

/// The nodes that a unit may go to, the best first.
fn ranked<'a>(unit: u64, nodes: &[&'a str], refusing: &[&str]) -> Vec<&'a str> {
    let mut ranked: Vec<&str> = nodes.iter().copied().filter(|node| !refusing.contains(node)).collect();
    if ranked.is_empty() {
        ranked = nodes.to_vec();
    }
    ranked.sort_unstable_by_key(|node| (std::cmp::Reverse(rank(unit, node)), *node));
    ranked
}

fn rank(unit: u64, node: &str) -> u64 {
    // FNV-1a, and a last mixing: the same on every node and in every version.
    let bytes = unit.to_le_bytes().into_iter().chain(node.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners<'a>(units: u64, nodes: &[&'a str]) -> Vec<Option<&'a str>> {
        super::owners(units, nodes, |_| Vec::new())
    }

    #[test]
    fn a_unit_goes_to_a_node_that_does_not_refuse_it() {
        let nodes = ["a", "b", "c"];
        let before = owners(16, &nodes);
        let refusing = |unit: u64| if unit == 5 { vec![before[5].unwrap()] } else { Vec::new() };
        let after = super::owners(16, &nodes, refusing);
        assert!(after[5].is_some() && after[5] != before[5]);
        assert!(moved(&before, &after) <= 4, "{}", moved(&before, &after));
        assert_eq!(super::owners(16, &nodes, |_| nodes.to_vec()), before, "all of them refuse all");
        assert_eq!(super::owners(2, &["a"], |_| vec!["a"]), [Some("a"), Some("a")]);
    }

    fn moved(before: &[Option<&str>], after: &[Option<&str>]) -> usize {
        before.iter().zip(after).filter(|(before, after)| before != after).count()
    }

    #[test]
    fn everybody_has_a_fair_share() {
        for count in 1..=7 {
            let names: Vec<String> = (0..count).map(|n| format!("node-{n}")).collect();
            let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
            let owners = owners(16, &nodes);
            for node in &nodes {
                let share = owners.iter().filter(|owner| **owner == Some(node)).count() as u64;
                assert!(share <= 16_u64.div_ceil(count) && share + 3 >= 16 / count, "{share} of 16 for one of {count}");
            }
        }
        assert_eq!(owners(2, &[]), [None, None]);
    }

    #[test]
    fn the_order_of_the_nodes_does_not_count() {
        assert_eq!(owners(16, &["a", "b", "c"]), owners(16, &["c", "a", "b"]));
    }

    #[test]
    fn a_unit_apart_moves_only_if_its_owner_goes() {
        let all = ["a", "b", "c", "d"];
        let first = owner(16, &all, &[]).unwrap();
        for gone in all {
            let rest: Vec<&str> = all.into_iter().filter(|node| *node != gone).collect();
            let next = owner(16, &rest, &[]).unwrap();
            assert_eq!(next == first, gone != first, "{gone} goes, {first} before, {next} after");
        }
        assert_eq!(owner(16, &[], &[]), None);
    }

    #[test]
    fn a_node_that_comes_or_goes_moves_little_more_than_its_share() {
        let (three, two) = (owners(64, &["a", "b", "c"]), owners(64, &["a", "b"]));
        assert!(moved(&three, &two) <= 32, "{}", moved(&three, &two));
        let four = owners(64, &["a", "b", "c", "d"]);
        assert!(moved(&three, &four) <= 32, "{}", moved(&three, &four));
    }
}
