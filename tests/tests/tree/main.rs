//! The repository against its own statements: contracts, documents, dependencies and sources. No
//! test here runs a guest.

mod abi_layout;
mod c_header;
mod maths_layout;
mod prose;
mod security;
mod sources;
mod supply_chain;
mod tidy;
