//! A bystander: an executable of another module on the same engine, which altered reads must not
//! affect.

use callbox::call::CallSite;
use callbox::wasm::{Engine, PreparedCall};
use callbox::{ArrayShape, Status};

/// The bystander's call site, with its pooled instance.
#[derive(Debug)]
pub struct Bystander {
    call: PreparedCall,
    calls: std::cell::Cell<u32>,
}

impl Bystander {
    /// Creates the bystander on this engine.
    ///
    /// # Errors
    /// A status of the engine.
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

    /// Checks that the bystander's memory is unchanged and that it still works.
    ///
    /// # Errors
    /// The status of its call: DATA_LOSS if a byte of its memory changed.
    pub fn check(&self) -> Result<(), Status> {
        let operand = self.calls.get();
        self.calls.set(operand.wrapping_add(1));
        let mut result = [0; 4];
        self.call
            .call(&[&operand.to_le_bytes()], &mut [&mut result])?;
        if u32::from_le_bytes(result) == operand.wrapping_add(1) {
            Ok(())
        } else {
            Err(Status::internal("the bystander's result is wrong"))
        }
    }
}
