//! The fuzz targets, one per module.

pub mod arrays;
pub mod attributes;
pub mod bundle;
pub mod cost;
pub mod frame;
pub mod hlo_text;
pub mod manifest;
pub mod metadata;
pub mod module;
pub mod policy;
pub mod program;
