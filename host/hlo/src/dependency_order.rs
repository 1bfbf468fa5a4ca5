//! Orders of nodes in which the dependencies of each come first.

use callbox_core::text::shortened;

/// The most members of a cycle that a message names.
const MOST_NAMED: usize = 8;

/// The state of a node in the search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Done,
}

/// Orders nodes so that the dependencies of each come before it. Nodes that are in such an order
/// keep it. `dependencies` are numbers of nodes, for each node.
///
/// # Errors
/// A cycle: nodes of which each depends on the next, and the last on the first.
pub(crate) fn dependency_order(dependencies: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut states = vec![State::New; dependencies.len()];
    let mut ordered = Vec::with_capacity(dependencies.len());
    for first in 0..dependencies.len() {
        if states[first] == State::Done {
            continue;
        }
        states[first] = State::Open;
        // The open nodes, with the number of dependencies already searched. Chains may be longer
        // than the thread's stack allows for recursion.
        let mut open = vec![(first, 0)];
        while let Some((node, searched)) = open.last_mut() {
            let node = *node;
            let Some(&dependency) = dependencies[node].get(*searched) else {
                states[node] = State::Done;
                ordered.push(node);
                open.pop();
                continue;
            };
            *searched += 1;
            match states[dependency] {
                State::Done => {}
                State::New => {
                    states[dependency] = State::Open;
                    open.push((dependency, 0));
                }
                State::Open => {
                    let path = open.iter().map(|(node, _)| *node);
                    return Err(path.skip_while(|node| *node != dependency).collect());
                }
            }
        }
    }
    Ok(ordered)
}

/// A cycle for a message: `%a -> %b -> %a`.
pub(crate) fn describe_cycle<'a>(cycle: &[usize], name: impl Fn(usize) -> &'a str) -> String {
    let mut text = String::new();
    for node in cycle.iter().take(MOST_NAMED) {
        text += &format!("%{} -> ", shortened(name(*node)));
    }
    if cycle.len() > MOST_NAMED {
        text += &format!("... {} more -> ", cycle.len() - MOST_NAMED);
    }
    text + "%"
        + &cycle
            .first()
            .map_or("".into(), |first| shortened(name(*first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_first_and_the_rest_stays() {
        assert_eq!(
            dependency_order(&[vec![], vec![0], vec![0, 1], vec![]]),
            Ok(vec![0, 1, 2, 3])
        );
        assert_eq!(
            dependency_order(&[vec![2], vec![0], vec![]]),
            Ok(vec![2, 0, 1])
        );
        assert_eq!(dependency_order(&[]), Ok(vec![]));
    }

    #[test]
    fn cycles_are_named() {
        assert_eq!(
            dependency_order(&[vec![1], vec![2], vec![1]]),
            Err(vec![1, 2])
        );
        assert_eq!(dependency_order(&[vec![0]]), Err(vec![0]));
        let names = ["a", "b", "c"];
        assert_eq!(
            describe_cycle(&[1, 2], |node| names[node]),
            "%b -> %c -> %b"
        );
        let long: Vec<_> = (0..10).collect();
        assert_eq!(
            describe_cycle(&long, |_| "x"),
            "%x -> %x -> %x -> %x -> %x -> %x -> %x -> %x -> ... 2 more -> %x"
        );
    }

    #[test]
    fn long_chains_need_no_stack() {
        let chain: Vec<_> = (1..1_000_000)
            .map(|next| vec![next])
            .chain([vec![]])
            .collect();
        assert!(dependency_order(&chain).is_ok_and(|order| order[0] == 999_999));
    }
}
