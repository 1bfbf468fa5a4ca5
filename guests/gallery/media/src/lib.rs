//! Decoders and transforms whose work crates of others do, compiled unchanged: `png`, `zune-jpeg`
//! and `rustfft`. `docs/gallery.md` has their licences.

mod images;
mod sound;
