//! Tests of the order and of who gives way.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::room::FEW;
use super::*;
use crate::exchange::Exchange;

const SECOND: Duration = Duration::from_secs(1);
const MB: u64 = 1 << 20;

/// A first attempt, with code that may take minutes.
const FIRST: Candidate = Candidate {
    file_bytes: 20_000_000,
    code_bytes: 20_000_000,
    before: Duration::ZERO,
    lost: Duration::ZERO,
    held: 0,
};

/// An attempt after others that used this much.
fn after(before: Duration) -> Candidate {
    Candidate { before, ..FIRST }
}

/// Begins a job, and returns its number.
fn begin(jobs: &mut Jobs, candidate: Candidate) -> u64 {
    let own = jobs.wait(candidate);
    jobs.begin(&own);
    let job = jobs.job(own.number).unwrap();
    job.set_closer(Exchange::new().unwrap().0.closer());
    own.number
}

fn sees(jobs: &mut Jobs, number: u64, used: Duration, resident: u64) {
    let busy = 0;
    jobs.job(number).unwrap().sees(Seen {
        used,
        busy,
        resident,
    });
}

/// Jobs without room for another one.
fn full() -> Jobs {
    let mut jobs = Jobs::default();
    for _ in 0..jobs.most {
        begin(&mut jobs, FIRST);
    }
    jobs
}

/// The jobs that have lost their places.
fn lost(jobs: &Jobs) -> Vec<u64> {
    let lost = jobs.running.iter().filter(|job| job.has_lost);
    lost.map(|job| job.number).collect()
}

#[test]
fn the_job_that_used_most_gives_way_after_its_quantum() {
    let mut jobs = full();
    let first = jobs.wait(FIRST);
    for number in 0..jobs.most as u64 {
        sees(&mut jobs, number, QUANTUM - QUANTUM / 8, MB);
    }
    jobs.make_room();
    assert!(lost(&jobs).is_empty());
    sees(&mut jobs, 2, SECOND, MB);
    sees(&mut jobs, 3, Duration::ZERO, MB);
    jobs.job(3).unwrap().before = 9 * SECOND;
    jobs.make_room();
    // One attempt takes one place, when it is free.
    jobs.make_room();
    assert_eq!(lost(&jobs), [3]);
    assert!(!jobs.may_begin(&first));
    jobs.end(3);
    assert!(jobs.may_begin(&first));
}

#[test]
fn an_attempt_after_others_takes_the_place_of_one_that_used_twice_as_much() {
    let mut jobs = full();
    sees(&mut jobs, 3, 18 * SECOND, MB);
    let too_early = jobs.wait(after(10 * SECOND));
    assert!(jobs.looks(&too_early));
    jobs.make_room();
    assert!(lost(&jobs).is_empty());
    // One that comes later does not wait for it.
    let own = Waiting {
        turn: too_early.turn + SECOND,
        ..jobs.wait(after(9 * SECOND))
    };
    jobs.waiting = BTreeSet::from([too_early, own]);
    jobs.make_room();
    assert_eq!(lost(&jobs), [3]);
    jobs.end(3);
    assert!(jobs.may_begin(&own));
    assert!(!jobs.may_begin(&too_early));
    // A place that is not taken is for the next one.
    jobs.leave(&own);
    assert!(jobs.may_begin(&too_early));
}

#[test]
fn jobs_that_use_more_than_others_of_their_size_give_way_first() {
    let mut jobs = full();
    sees(&mut jobs, 1, 59 * SECOND, 4 * MB);
    sees(&mut jobs, 2, SECOND, 2 * MB);
    sees(&mut jobs, 3, SECOND / 2, 3 * MB);
    for number in [2, 3] {
        jobs.job(number).unwrap().expected = SECOND / 4;
    }
    let _first = jobs.wait(FIRST);
    jobs.make_room();
    assert_eq!(lost(&jobs), [2]);
    jobs.job(2).unwrap().has_lost = false;
    jobs.most_bytes = MB;
    jobs.free_memory();
    assert_eq!(lost(&jobs), [3]);
    // The end of those that hold little would not free memory.
    for number in [2, 3] {
        jobs.job(number).unwrap().has_lost = false;
        sees(&mut jobs, number, SECOND, 0);
    }
    jobs.free_memory();
    assert_eq!(lost(&jobs), [1]);
}

#[test]
fn a_few_jobs_after_others_keep_their_places_for_longer() {
    let mut jobs = full();
    for number in 0..=KEPT as u64 {
        jobs.end(number);
        let lost = QUANTUM;
        let number = begin(
            &mut jobs,
            Candidate {
                lost,
                ..after(lost)
            },
        );
        sees(&mut jobs, number, QUANTUM, MB);
    }
    let most = jobs.most as u64;
    let _first = jobs.wait(FIRST);
    jobs.make_room();
    assert_eq!(lost(&jobs), [most + KEPT as u64]);
    jobs.job(most + KEPT as u64).unwrap().has_lost = false;
    jobs.promised = None;
    sees(&mut jobs, most, 2 * QUANTUM, MB);
    jobs.make_room();
    assert_eq!(lost(&jobs), [most]);
    // What other loads used does not count, and little can be lost.
    let mut jobs = Jobs::default();
    for (lost, kept) in [(Duration::ZERO, Duration::ZERO), (60 * SECOND, MOST_KEPT)] {
        let before = 60 * SECOND;
        let number = begin(
            &mut jobs,
            Candidate {
                lost,
                ..after(before)
            },
        );
        assert_eq!(jobs.job(number).unwrap().kept, kept);
    }
}

#[test]
fn where_memory_is_short_the_job_that_holds_most_gives_way() {
    let mut jobs = Jobs {
        most_bytes: FEW as u64 * MB,
        ..Jobs::default()
    };
    for number in 0..FEW as u64 {
        begin(&mut jobs, FIRST);
        sees(&mut jobs, number, QUANTUM, MB);
    }
    sees(&mut jobs, 1, 9 * SECOND, MB);
    sees(&mut jobs, 2, QUANTUM, 6 * MB);
    let held = 4 * MB;
    let again = jobs.wait(Candidate {
        held,
        ..after(5 * SECOND)
    });
    jobs.make_room();
    assert!(lost(&jobs).is_empty());
    let first = jobs.wait(FIRST);
    jobs.make_room();
    assert_eq!(lost(&jobs), [2]);
    jobs.end(2);
    assert!(jobs.may_begin(&first) && !jobs.may_begin(&again));
    jobs.begin(&first);
    // The largest of all takes the place of one that used more, after a while.
    sees(&mut jobs, 1, 10 * SECOND, MB);
    jobs.make_room();
    assert!(lost(&jobs).is_empty());
    jobs.next_loss = None;
    jobs.make_room();
    assert_eq!(lost(&jobs), [1]);
}

/// Otherwise a stream of them would end all that hold much.
#[test]
fn where_memory_is_short_small_modules_take_no_place() {
    let mut jobs = Jobs {
        most_bytes: 4 * FEW as u64 * MB,
        ..Jobs::default()
    };
    for number in 0..FEW as u64 {
        begin(&mut jobs, FIRST);
        sees(&mut jobs, number, SECOND, 3 * MB);
    }
    let large = jobs.wait(FIRST);
    let small = jobs.wait(Candidate::default());
    assert!(!jobs.may_begin(&large) && jobs.may_begin(&small));
    assert!(jobs.has_room_for_some());
    jobs.begin(&small);
    assert!(!jobs.has_room_for_some());
    assert!(lost(&jobs).is_empty());
    // But where all hold too much.
    let small = jobs.wait(Candidate::default());
    sees(&mut jobs, 0, SECOND, 4 * FEW as u64 * MB);
    assert!(!jobs.may_begin(&small) && !jobs.has_room_for_some());
}

/// Their files say little of what they take.
#[test]
fn small_modules_that_take_much_come_in_order() {
    let mut jobs = Jobs {
        most_bytes: 100 * FEW as u64 * MB,
        ..Jobs::default()
    };
    let small = Candidate::default();
    for number in 0..FEW as u64 {
        begin(&mut jobs, small);
        sees(&mut jobs, number, SECOND, 20 * MB);
    }
    sees(&mut jobs, 0, SECOND, 60 * MB * FEW as u64);
    let first = jobs.wait(FIRST);
    let next = jobs.wait(small);
    assert!(!jobs.may_begin(&next) && !jobs.has_room_for_some());
    jobs.make_room();
    assert_eq!(lost(&jobs), [0]);
    jobs.end(0);
    assert!(jobs.may_begin(&first) && !jobs.may_begin(&next));
    // Nor does one that took much go first again.
    let mut jobs = full();
    jobs.end(0);
    let held = 1 << 30;
    jobs.wait(FIRST);
    let again = jobs.wait(Candidate { held, ..small });
    assert!(!jobs.may_begin(&again) && jobs.may_begin(&jobs.waiting.clone().pop_first().unwrap()));
}

/// Otherwise one that ran for long would keep all others from the memory of the rest.
#[test]
fn where_memory_is_short_a_loss_counts_little_if_it_was_large() {
    for (used, most) in [
        (SECOND, SECOND),
        (9 * SECOND, 2 * SECOND),
        (999 * SECOND, Duration::ZERO),
    ] {
        let mut jobs = Jobs {
            most_bytes: FEW as u64 * MB,
            ..Jobs::default()
        };
        for number in 0..FEW as u64 {
            begin(&mut jobs, FIRST);
            sees(&mut jobs, number, QUANTUM, MB);
        }
        sees(&mut jobs, 3, used, 6 * MB);
        jobs.wait(FIRST);
        let before = Instant::now();
        jobs.make_room();
        assert_eq!(lost(&jobs), [3]);
        let work = most * 2 / u32::try_from(processors()).unwrap();
        let next = jobs.next_loss.unwrap();
        assert!(
            next >= before + work && next <= Instant::now() + work,
            "{used:?}"
        );
    }
}

/// Otherwise the largest of many that hold about as much would never have a place again.
#[test]
fn where_memory_is_short_an_attempt_has_a_place_when_its_turn_comes() {
    let mut jobs = Jobs {
        most_bytes: FEW as u64 * MB,
        ..Jobs::default()
    };
    for number in 0..FEW as u64 {
        begin(&mut jobs, FIRST);
        sees(&mut jobs, number, SECOND, 3 * MB);
    }
    let again = jobs.wait(Candidate {
        held: 4 * MB,
        lost: SECOND,
        ..after(SECOND)
    });
    jobs.make_room();
    assert!(lost(&jobs).is_empty());
    let due = Waiting {
        turn: Instant::now(),
        ..again
    };
    jobs.waiting = BTreeSet::from([due]);
    sees(&mut jobs, 5, SECOND, 5 * MB);
    jobs.make_room();
    assert_eq!(lost(&jobs), [5]);
    jobs.end(5);
    jobs.begin(&due);
    // Nor does it lose that place, although it holds most.
    let number = begin(&mut jobs, FIRST);
    sees(&mut jobs, number, SECOND, 6 * MB);
    let (exchange, _) = Exchange::new().unwrap();
    let job = jobs.job(due.number).unwrap();
    job.set_closer(exchange.closer());
    sees(&mut jobs, due.number, SECOND, 9 * MB);
    jobs.free_memory();
    assert_eq!(lost(&jobs), [number]);
}

#[test]
fn every_second_place_is_for_a_first_attempt() {
    let mut jobs = full();
    let again = [jobs.wait(after(QUANTUM)), jobs.wait(after(QUANTUM))];
    // However long they wait.
    let first = Waiting {
        turn: again[1].turn + SECOND,
        ..jobs.wait(FIRST)
    };
    jobs.waiting = BTreeSet::from([again[0], again[1], first]);
    jobs.end(0);
    assert!(jobs.may_begin(&again[0]));
    jobs.begin(&again[0]);
    jobs.end(1);
    assert!(jobs.may_begin(&first));
    jobs.begin(&first);
    jobs.end(2);
    assert!(jobs.may_begin(&again[1]));
}

#[test]
fn attempts_after_others_come_later() {
    let mut jobs = full();
    let again = jobs.wait(after(QUANTUM));
    let first = jobs.wait(after(QUANTUM / 2));
    jobs.end(0);
    assert!(jobs.may_begin(&first));
    assert!(!jobs.may_begin(&again));
}

#[test]
fn memory_limits_all_but_a_few() {
    let few = FEW as u64;
    let mut jobs = Jobs {
        most_bytes: 4 * few * MB,
        ..Jobs::default()
    };
    for number in 0..few {
        begin(&mut jobs, FIRST);
        sees(&mut jobs, number, SECOND, 2 * MB);
    }
    let own = jobs.wait(FIRST);
    assert!(!jobs.may_begin(&own));
    sees(&mut jobs, 0, SECOND, MB);
    assert!(jobs.may_begin(&own));
    jobs.begin(&own);
    // They may grow, until all hold too much.
    sees(&mut jobs, 7, SECOND, (2 * few + 3) * MB);
    jobs.free_memory();
    assert!(lost(&jobs).is_empty());
    sees(&mut jobs, 0, SECOND, 2 * MB);
    jobs.free_memory();
    jobs.free_memory();
    assert_eq!(lost(&jobs), [7]);
    jobs.end(7);
    // Few may hold any amount.
    sees(&mut jobs, 0, SECOND, 9 * few * MB);
    jobs.free_memory();
    assert!(lost(&jobs).is_empty());
}

#[test]
fn a_job_that_is_done_with_its_process_does_not_give_way() {
    let mut jobs = full();
    sees(&mut jobs, 3, SECOND, MB);
    assert!(jobs.job(3).unwrap().release());
    let _first = jobs.wait(FIRST);
    jobs.make_room();
    assert!(lost(&jobs).is_empty());
    sees(&mut jobs, 4, SECOND, MB);
    jobs.make_room();
    assert_eq!(lost(&jobs), [4]);
    assert!(!jobs.job(4).unwrap().release());
}
