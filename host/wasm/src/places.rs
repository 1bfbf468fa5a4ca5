//! The places for the instances of an engine.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use callbox_core::locks::locked;

/// The places for the instances of an engine. One that becomes free is for the call that has waited
/// longest: others, which may take places again and again, do not come before it.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    taken: usize,
    /// What the calls that wait are given, the first one first. While any waits, no place is free.
    waiting: VecDeque<Arc<Given>>,
    /// The places that were given to calls which have yet to take them.
    given: usize,
}

/// The place that a call was given while it waited.
type Given = Mutex<Option<Place>>;

impl Places {
    /// Takes one of `most` places.
    ///
    /// # Errors
    /// A turn to have a place that becomes free, if none is.
    pub(crate) fn take(self: &Arc<Self>, most: usize) -> Result<Place, Turn> {
        let mut state = locked(&self.0);
        if state.taken < most {
            state.taken += 1;
            return Ok(Place(Arc::clone(self)));
        }
        let given = Arc::default();
        state.waiting.push_back(Arc::clone(&given));
        let places = Arc::clone(self);
        Err(Turn { places, given })
    }

    /// Whether a call was given a place that it has yet to take: its instance may soon be idle.
    pub(crate) fn is_one_given(&self) -> bool {
        locked(&self.0).given > 0
    }
}

/// A place that is taken, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = locked(&self.0.0);
        match state.waiting.pop_front() {
            Some(first) => {
                state.given += 1;
                *locked(&first) = Some(Self(Arc::clone(&self.0)));
            }
            None => state.taken -= 1,
        }
    }
}

/// A call's turn among those that wait for a place.
#[derive(Debug)]
pub(crate) struct Turn {
    places: Arc<Places>,
    given: Arc<Given>,
}

impl Turn {
    /// The turn of a call that has a place.
    pub(crate) fn with(place: Place) -> Self {
        let places = Arc::clone(&place.0);
        locked(&places.0).given += 1;
        let given = Arc::new(Mutex::new(Some(place)));
        Self { places, given }
    }

    /// Whether the call was given a place.
    pub(crate) fn has_place(&self) -> bool {
        locked(&self.given).is_some()
    }

    /// Takes the place that was given to the call.
    ///
    /// # Errors
    /// The turn itself, if there is none yet.
    pub(crate) fn take(self) -> Result<Place, Self> {
        let given = locked(&self.given).take();
        let place = given.ok_or(self)?;
        locked(&place.0.0).given -= 1;
        Ok(place)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = locked(&self.places.0);
        state
            .waiting
            .retain(|given| !Arc::ptr_eq(given, &self.given));
        if locked(&self.given).is_some() {
            state.given -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn taken(places: &Places) -> usize {
        locked(&places.0).taken
    }

    #[test]
    fn a_place_is_for_the_call_that_has_waited_longest() {
        let places = Arc::new(Places::default());
        let [one, two] = [(); 2].map(|()| places.take(2).unwrap());
        let [first, gone, second, third] = [(); 4].map(|()| places.take(2).unwrap_err());
        drop(gone);
        let first = first.take().unwrap_err();
        drop(one);
        // It is given to the first, so that none that comes now has it.
        let fourth = places.take(2).unwrap_err();
        let second = second.take().unwrap_err();
        assert!(places.is_one_given());
        let one = first.take().unwrap();
        assert!(!places.is_one_given());
        drop(two);
        // A call that gives up leaves its place to the next.
        drop(second);
        let two = third.take().unwrap();
        drop(Turn::with(one));
        let one = fourth.take().unwrap();
        assert_eq!(taken(&places), 2);
        assert!(!places.is_one_given());
        drop((one, two));
        assert_eq!(taken(&places), 0);
        assert!(locked(&places.0).waiting.is_empty());
    }
}
