//! A bystander: an executable of another module on the same engine, which must not notice anything.

use callbox::call::CallSite;
use callbox::wasm::{Engine, PreparedCall};
use callbox::{ArrayShape, Status};

/// Its call site, and the instance that is kept behind it.
#[derive(Debug)]
pub struct Bystander {
    call: PreparedCall,
    calls: std::cell::Cell<u32>,
}

impl Bystander {
    /// Takes its place on this engine.
    ///
    /// # Errors
    /// What the engine says.
    pub fn new(engine: &Engine) -> Result<Self, Status> {
        let wasm = wat::parse_str(include_str!("bystander.wat")).expect("expected a valid module");
        let word: ArrayShape = "s32[]".parse()?;
        let site = CallSite::new("intact", vec![word.clone().into()], word.into());
        let bystander = Self {
            call: engine.load(&wasm)?.prepare_call(site)?,
            calls: std::cell::Cell::new(0),
        };
        bystander.check().map(|()| bystander)
    }

    /// Looks whether its memory is as it was, and whether it works.
    ///
    /// # Errors
    /// What it fails with: DATA_LOSS if a byte is another.
    pub fn check(&self) -> Result<(), Status> {
        let operand = self.calls.get();
        self.calls.set(operand.wrapping_add(1));
        let mut result = [0; 4];
        self.call
            .call(&[&operand.to_le_bytes()], &mut [&mut result])?;
        match u32::from_le_bytes(result) == operand.wrapping_add(1) {
            true => Ok(()),
            false => Err(Status::internal("the bystander's result is wrong")),
        }
    }
}
