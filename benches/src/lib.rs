//! callbox-benches
