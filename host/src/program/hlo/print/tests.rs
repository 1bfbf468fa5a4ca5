//! What is printed reads back.
