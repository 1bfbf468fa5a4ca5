//! Kernels of text and its generation: sampling, beams, edit distances and byte pairs.
//! `docs/gallery.md` has the definitions.

mod byte_pairs;
mod distance;
mod sampling;
