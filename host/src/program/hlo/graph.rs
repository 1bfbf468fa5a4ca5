//! Orders in which what is needed comes first.

/// How many members of a cycle a message names.
const NAMED: usize = 8;

/// Whether a node has been put in order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Done,
}

/// The numbers of the nodes, each behind those that it needs, and else as they are: nodes that are in order stay where they are. Or, if
/// that cannot be, nodes of which each needs the next, and the last the first.
pub(super) fn order(needs: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut states = vec![State::New; needs.len()];
    let mut ordered = Vec::with_capacity(needs.len());
    for first in 0..needs.len() {
        // Nodes under way, each with how many of its needs were seen to: a stack of our own, for chains may be long.
        let mut open = match states[first] {
            State::Done => continue,
            _ => vec![(first, 0)],
        };
        states[first] = State::Open;
        while let Some((node, seen)) = open.last_mut() {
            let node = *node;
            let Some(&need) = needs[node].get(*seen) else {
                states[node] = State::Done;
                ordered.push(node);
                open.pop();
                continue;
            };
            *seen += 1;
            match states[need] {
                State::Done => {}
                State::New => {
                    states[need] = State::Open;
                    open.push((need, 0));
                }
                State::Open => {
                    let path = open.iter().map(|(node, _)| *node);
                    return Err(path.skip_while(|node| *node != need).collect());
                }
            }
        }
    }
    Ok(ordered)
}

/// A cycle for a message: `%a -> %b -> %a`.
pub(super) fn describe_cycle<'a>(cycle: &[usize], name: impl Fn(usize) -> &'a str) -> String {
    let mut text = String::new();
    for node in cycle.iter().take(NAMED) {
        text += &format!("%{} -> ", super::source::shortened(name(*node)));
    }
    if cycle.len() > NAMED {
        text += &format!("... {} more -> ", cycle.len() - NAMED);
    }
    match cycle.first() {
        Some(first) => text + "%" + &super::source::shortened(name(*first)),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_come_first_and_the_rest_stays() {
        assert_eq!(
            order(&[vec![], vec![0], vec![0, 1], vec![]]),
            Ok(vec![0, 1, 2, 3])
        );
        assert_eq!(order(&[vec![2], vec![0], vec![]]), Ok(vec![2, 0, 1]));
        assert_eq!(order(&[]), Ok(vec![]));
    }

    #[test]
    fn cycles_are_named() {
        assert_eq!(order(&[vec![1], vec![2], vec![1]]), Err(vec![1, 2]));
        assert_eq!(order(&[vec![0]]), Err(vec![0]));
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
        assert!(order(&chain).is_ok_and(|order| order[0] == 999_999));
    }
}
