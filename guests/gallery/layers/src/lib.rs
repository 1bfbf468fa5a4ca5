//! Layers of neural networks and their gradients, in F32. `docs/gallery.md` has the formulas.

mod activations;
mod attention;
mod linear;
mod losses;
mod norms;
mod rotary;
