//! callbox-tests
