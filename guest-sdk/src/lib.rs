//! callbox-guest
