//! The repository against its own statements: contracts, documents, dependencies and sources. No
//! test here runs a guest.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod abi_layout;
mod c_header;
mod maths_layout;
mod prose;
mod security;
mod sources;
mod supply_chain;
mod tidy;
