#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use super::*;
use crate::message::decode;

/// A wait that does not end by time.
const LONG: Duration = Duration::from_secs(60);

/// A wait for something that should not come.
const SHORT: Duration = Duration::from_millis(20);

struct Fake {
    settings: Settings,
    memory_bytes: u64,
}

impl Kept for Fake {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}

/// Settings that differ by their limit.
fn settings(limit: u64) -> Settings {
    Settings {
        compiler: decode(&[0; 3]).unwrap(),
        memory_bytes: limit,
    }
}

fn fake(limit: u64) -> Fake {
    Fake {
        settings: settings(limit),
        memory_bytes: 0,
    }
}

fn lost() -> StartFailure {
    StartFailure::Lost(Status::internal("lost"))
}

/// The starts of children: each tells its limit, and has the outcome that is sent for it.
struct Starts {
    children: Arc<Children<Fake>>,
    begun: Receiver<u64>,
    outcomes: SyncSender<Result<(), StartFailure>>,
}

impl Starts {
    fn new() -> Self {
        let (sender, begun) = mpsc::channel();
        let (outcomes, received) = sync_channel(0);
        let received = Mutex::new(received);
        let children = Children::new(move |settings: &Settings| {
            sender.send(settings.memory_bytes).unwrap();
            // Fails when the test is over.
            let outcome = locked(&received).recv().unwrap_or_else(|_| Err(lost()));
            outcome.map(|()| fake(settings.memory_bytes))
        });
        Self {
            children: Arc::new(children),
            begun,
            outcomes,
        }
    }

    /// Has a job wait for a child. What it gets is sent.
    fn job(&self, limit: u64) -> Receiver<Option<Result<Fake, StartFailure>>> {
        let (sender, receiver) = mpsc::channel();
        let children = Arc::clone(&self.children);
        let before = self.waiting();
        thread::spawn(move || sender.send(children.take(&settings(limit), Instant::now() + LONG)));
        while self.waiting() == before {
            thread::yield_now();
        }
        receiver
    }

    fn waiting(&self) -> usize {
        self.children.0.locked().waiting.len()
    }

    fn next(&self) -> u64 {
        self.begun.recv_timeout(LONG).unwrap()
    }

    /// Waits until nothing starts any more.
    fn settle(&self) {
        while self.children.0.locked().threads > 0 {
            thread::yield_now();
        }
    }

    fn is_quiet(&self) -> bool {
        self.begun.recv_timeout(SHORT).is_err()
    }
}

fn has_child(job: &Receiver<Option<Result<Fake, StartFailure>>>) -> bool {
    matches!(job.recv_timeout(LONG).unwrap(), Some(Ok(_)))
}

#[test]
fn the_first_job_gets_the_first_child() {
    let starts = Starts::new();
    let (first, second) = (starts.job(1), starts.job(1));
    assert_eq!(starts.next(), 1);
    starts.children.give_back(fake(1));
    assert!(has_child(&first));
    // The start that was for the first one serves the second one.
    starts.outcomes.send(Ok(())).unwrap();
    assert!(has_child(&second));
}

#[test]
fn as_many_children_start_as_jobs_wait_and_as_there_are_processors() {
    let starts = Starts::new();
    let jobs = Vec::from_iter((0..=processors()).map(|_| starts.job(1)));
    for _ in 0..processors() {
        assert_eq!(starts.next(), 1);
    }
    assert!(starts.is_quiet());
    for _ in &jobs {
        starts.outcomes.send(Ok(())).unwrap();
    }
    assert!(jobs.iter().all(has_child));
    assert_eq!(starts.next(), 1);
    assert!(starts.is_quiet());
    starts.settle();
    assert!(starts.children.0.locked().starting.is_empty());
}

#[test]
fn a_start_that_is_not_awaited_any_more_serves_a_later_job() {
    let starts = Starts::new();
    let first = starts.job(1);
    assert_eq!(starts.next(), 1);
    // Its time is over.
    starts.children.0.locked().waiting.clear();
    assert!(first.recv_timeout(LONG).unwrap().is_none());
    let other = starts.job(2);
    starts.outcomes.send(Ok(())).unwrap();
    starts.outcomes.send(Ok(())).unwrap();
    assert!(has_child(&other));
    assert_eq!(starts.next(), 2);
    let later = starts.children.take(&settings(1), Instant::now() + LONG);
    assert!(matches!(later, Some(Ok(_))));
    assert!(starts.is_quiet());
}

#[test]
fn one_idle_child_is_enough() {
    let starts = Starts::new();
    starts.children.refill(&settings(1));
    starts.children.refill(&settings(1));
    assert_eq!(starts.next(), 1);
    starts.outcomes.send(Ok(())).unwrap();
    starts.children.refill(&settings(1));
    assert!(starts.is_quiet());
    starts.children.refill(&settings(2));
    assert_eq!(starts.next(), 2);
    starts.outcomes.send(Err(lost())).unwrap();
    starts.settle();
    let job = starts.job(2);
    assert_eq!(starts.next(), 2);
    starts.outcomes.send(Ok(())).unwrap();
    assert!(has_child(&job));
}

#[test]
fn a_job_takes_what_was_to_be_idle() {
    let starts = Starts::new();
    // As many jobs as can start children keep the refill waiting.
    let others = Vec::from_iter((0..processors()).map(|_| starts.job(2)));
    for _ in &others {
        assert_eq!(starts.next(), 2);
    }
    starts.children.refill(&settings(1));
    let job = starts.job(1);
    for _ in &others {
        starts.outcomes.send(Ok(())).unwrap();
    }
    assert_eq!(starts.next(), 1);
    starts.outcomes.send(Ok(())).unwrap();
    assert!(has_child(&job));
    starts.settle();
    assert!(starts.is_quiet());
}

#[test]
fn each_failure_fails_one_job() {
    let starts = Starts::new();
    let (first, second) = (starts.job(1), starts.job(1));
    assert_eq!(starts.next(), 1);
    starts.outcomes.send(Err(lost())).unwrap();
    let failed = first.recv_timeout(LONG).unwrap();
    assert!(matches!(failed, Some(Err(StartFailure::Lost(_)))));
    assert_eq!(starts.next(), 1);
    starts.outcomes.send(Ok(())).unwrap();
    assert!(has_child(&second));
    // A job that got another child does not see that its own failed.
    let third = starts.job(1);
    assert_eq!(starts.next(), 1);
    starts.children.give_back(fake(1));
    starts.outcomes.send(Err(lost())).unwrap();
    assert!(has_child(&third));
}

#[test]
fn the_longest_idle_children_go_first() {
    let children = Children::new(|_: &Settings| Err(lost()));
    let idle = |children: &Children<Fake>| {
        let state = children.0.locked();
        Vec::from_iter(state.idle.iter().map(|child| child.settings.memory_bytes))
    };
    let most = MOST_IDLE as u64;
    for limit in 0..=most {
        children.give_back(fake(limit));
    }
    assert_eq!(idle(&children), Vec::from_iter(1..=most));
    children.give_back(Fake {
        memory_bytes: MEMORY_OF_IDLE - 1,
        ..fake(most + 1)
    });
    children.give_back(Fake {
        memory_bytes: 1,
        ..fake(most + 2)
    });
    assert_eq!(idle(&children).last(), Some(&(most + 2)));
    children.give_back(Fake {
        memory_bytes: 1,
        ..fake(most + 3)
    });
    assert_eq!(idle(&children), [most + 2, most + 3]);
}

#[test]
fn starts_end_with_their_compiler() {
    let starts = Starts::new();
    starts.children.refill(&settings(1));
    assert_eq!(starts.next(), 1);
    let shared = Arc::downgrade(&starts.children.0);
    let Starts {
        children,
        begun,
        outcomes,
    } = starts;
    drop(children);
    assert_eq!(shared.strong_count(), 0);
    outcomes.send(Ok(())).unwrap();
    // The thread has ended: nothing can start a child any more.
    assert!(begun.recv().is_err());
}
