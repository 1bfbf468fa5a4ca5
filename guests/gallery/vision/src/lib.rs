//! Kernels of images and detections. Images have the dimensions of PyTorch, `[n, c, h, w]`, where
//! nothing else is said. `docs/gallery.md` has the formulas.

mod boxes;
mod colour;
mod resize;
mod roi;
mod sample;
mod taps;
