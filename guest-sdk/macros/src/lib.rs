//! callbox-guest-macros
