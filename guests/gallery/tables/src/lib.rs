//! Kernels of tables, places and prices. `docs/gallery.md` has the formulas.

mod bloom;
mod counts;
mod geohash;
mod ode;
mod options;
mod places;
mod segments;
