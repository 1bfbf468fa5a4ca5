//! Prints the random kernel of a seed, as its author would write it and with its fence:
//! `cargo run -p callbox-ptx-cases --example seed -- generated 22902`, or `counting`.
#![allow(
    clippy::print_stdout,
    reason = "a command-line program prints its results"
)]

use anyhow::{Context, Result, bail};
use callbox_ptx::fence::fence;
use callbox_ptx::verify::{Limits, verify};
use callbox_ptx_cases::hostile::ENTRY;
use callbox_ptx_cases::random::{self, Random};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, seed] = arguments.as_slice() else {
        bail!("expected `generated` or `counting`, and a seed");
    };
    let seed: u64 = seed.parse().context("expected a seed")?;
    let mut random = Random::new(seed);
    let (launch, text) = match &**kind {
        "generated" => (random::launch(&mut random), random::kernel(&mut random)),
        "counting" => (
            random::counting_launch(&mut random),
            random::counting(&mut random),
        ),
        other => bail!("expected `generated` or `counting`, found `{other}`"),
    };
    println!("// {launch:?}\n{text}");
    let mut limits = Limits::default();
    if seed.is_multiple_of(8) {
        // As if the grid were giant.
        limits.grid_instructions = 0;
    }
    let module = callbox_ptx::read(&text, "kernel", &callbox_ptx::Limits::default())
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    let proof = match verify(&module, ENTRY, &launch, &limits) {
        Ok(proof) => proof,
        Err(refusals) => bail!("refused: {:?}", refusals.first()),
    };
    println!("{}", callbox_ptx::print(&fence(&module, &proof).module));
    Ok(())
}
