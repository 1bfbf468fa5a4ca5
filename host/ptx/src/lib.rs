//! Reads, verifies, fences and prints PTX, NVIDIA's assembly language for kernels.
//!
//! [`read`] turns a text into a syntax tree ([`ast`]), and refuses what the table of instructions
//! ([`table`]) does not have. [`print()`] writes a tree as new text. Only what the tree holds is
//! printed: comments, debug sections, names of registers and formatting of the author's text are
//! gone, and `.version` is the lowest that the instructions allow.
//!
//! [`verify`](verify::verify) proves for one launch what a kernel can reach and what ends its
//! loops, or refuses it. [`fence`](fence::fence) adds run-time checks for what is not proved, so
//! that a kernel without a grant stays within its buffers and cannot damage the CUDA context.
//! `callbox-cuda` launches fenced kernels. [`survey_within`](verify::survey_within) reports on
//! kernels whose launch is not known.
//!
//! # Example
//!
//! ```
//! use callbox_ptx::fence::fence;
//! use callbox_ptx::verify::{self, Launch, Param, verify};
//! use callbox_ptx::{Limits, print, read};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = ".version 8.0
//!     .target sm_80
//!     .address_size 64
//!     .visible .entry first(.param .u64 x) {
//!         .reg .b64 %x;
//!         ld.param.u64 %x, [x];
//!         st.global.u32 [%x], 7;
//!         ret;
//!     }";
//! let module = read(text, "first.ptx", &Limits::default())?;
//! let launch = Launch {
//!     grid: [1, 1, 1],
//!     block: [32, 1, 1],
//!     shared_bytes: 0,
//!     params: vec![Param::Buffer {
//!         bytes: 4,
//!         writable: true,
//!         align: 16,
//!     }],
//!     has_clock: false,
//! };
//! let limits = verify::Limits::default();
//! let proof = verify(&module, "first", &launch, &limits);
//! let proof = proof.map_err(|refusals| refusals[0].to_string())?;
//! // The store is proved to be in range: the fence adds no check.
//! let fenced = fence(&module, &proof);
//! assert!(fenced.sites.is_empty());
//! assert!(print(&fenced.module).contains("st.global.u32"));
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! - The driver and its assembler are trusted: neither may remove a check. `cargo xtask ptx` looks
//!   for each check in the machine code of the repository's kernels.
//! - A proof holds only for the launch that it was made for, and rests on the analysis: an error in
//!   it lets an access through. [`verify::Verdict::Checked`] does not rest on it.
//! - Races between threads, side channels, and waits that hardware faults cause are not prevented.
//! - Generic addresses of shared memory, calls, `brx`, partial masks, named barriers, `mbarrier`,
//!   `wgmma`, bulk copies, clusters and tensor memory are refused.
//! - An index that is read from memory is always checked when the kernel runs.
//!
//! # Features
//!
//! None: the crate has no dependencies.
//!
//! # Where to go next
//!
//! - `callbox ptx FILE.ptx` prints what the verifier finds in a kernel, and why it is refused.
//! - [`verify`](mod@verify) has the launches and limits, and [`table`] the supported instructions.
//! - [`fence`](mod@fence) has the record in which a fenced kernel notes its faults.

pub mod ast;
mod error;
pub mod fence;
mod lexer;
mod print;
mod read;
pub mod special;
pub mod table;
pub mod types;
pub mod verify;
mod version;

pub use error::Error;
pub use print::{instruction_name, instruction_text, print};
pub use read::{Limits, read, read_one_of};
pub use version::needed_version;
