//! Calls for each element of a batch, in the memory of another framework.
#![allow(unsafe_code, reason = "borrowing is a promise, which these tests keep")]

use std::ops::Range;
use std::sync::Arc;

use callbox::call::{CallOptions, CallSite, DeviceBuffer, DeviceQueue, Mapping};
use callbox::cuda::{CudaDevice, CudaModule, CudaPreparedCall, CudaQueue, CudaTarget};
use callbox::{Attribute, Blame, Dictionary, Result, Shape, Status, StatusCode};
use callbox_cuda_stand_in::Leaks;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};

use super::rig::{self, MODES};

/// The stream and arrays of another framework, and callbox's queue on the stream.
struct Rig {
    queue: CudaQueue,
    device: Arc<CudaDevice>,
    stream: Arc<CudaStream>,
}

impl Rig {
    fn new() -> Self {
        let context = CudaContext::new(0).unwrap();
        // SAFETY: the test uses one stream only.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().unwrap();
        let device = CudaDevice::open(0).unwrap();
        // SAFETY: the stream is dropped after the queue.
        let queue = unsafe { device.queue_on(stream.cu_stream()) }.unwrap();
        Self {
            queue,
            device,
            stream,
        }
    }

    /// An array of this many numbers, in memory with room for one more.
    fn borrow(&self, slice: &CudaSlice<f32>) -> DeviceBuffer {
        let (address, _) = slice.device_ptr(&self.stream);
        let size = (slice.len() - 1) * size_of::<f32>();
        // SAFETY: the slice outlives the buffer.
        unsafe { self.device.borrow_memory(address, size) }.unwrap()
    }

    /// The results of a call with these operands, and the elements that failed. Results begin as
    /// zeros.
    fn call(
        &mut self,
        call: &CudaPreparedCall,
        operands: &[&[f32]],
        size: usize,
    ) -> Result<(Vec<f32>, Vec<usize>)> {
        let operands = operands.iter().map(|operand| {
            let with_more = [operand, &[f32::NAN][..]].concat();
            self.stream.clone_htod(&with_more).unwrap()
        });
        let operands: Vec<_> = operands.collect();
        let result = self.stream.alloc_zeros::<f32>(size + 1).unwrap();
        let from: Vec<_> = operands.iter().map(|slice| self.borrow(slice)).collect();
        let to = [self.borrow(&result)];
        let mut elements = Vec::new();
        let options = CallOptions::default();
        let mut failed =
            |_: &mut dyn DeviceQueue, failed: Range<usize>, status: Status| match status.code() {
                StatusCode::DataLoss => {
                    elements.extend(failed);
                    Ok(())
                }
                _ => Err(status),
            };
        call.enqueue_each(&options, &mut self.queue, &from, &to, &mut failed)?;
        let mut found = self.stream.clone_dtoh(&result).unwrap();
        assert_eq!(found.pop(), Some(0.0), "what is behind the result");
        Ok((found, elements))
    }
}

fn mapped(
    module: &Arc<CudaModule>,
    target: &str,
    (operands, result): (&[&str], &str),
    batch: usize,
) -> Result<CudaPreparedCall> {
    let shape = |text: &str| text.parse::<Shape>().unwrap();
    let operands = operands.iter().map(|text| shape(text)).collect();
    let mut attributes = Dictionary::new();
    if target == "add_n" {
        attributes.insert("n".to_owned(), Attribute::scalar(4.0_f32));
    }
    let site = CallSite::new(target, operands, shape(result)).with_attributes(attributes);
    let mapping = Mapping {
        batch_dimensions: batch,
        piece_bytes: None,
    };
    module.prepare_mapped(site, &mapping)
}

#[test]
fn each_element_is_a_call_and_what_is_the_same_for_all_stays_where_it_is() {
    let (_guard, stand_in) = rig::alone();
    let (add_n, add) = (rig::kernels("add_n"), rig::kernels("broadcast_add"));
    for mode in MODES {
        stand_in.set_mode(mode);
        let mut rig = Rig::new();
        let x: Vec<f32> = (0..12).map(|k| k as f32).collect();
        let plus_4 = |x: &[f32]| x.iter().map(|x| x + 4.0).collect::<Vec<_>>();
        for (shapes, batch, operand, expected) in [
            ((["f32[2,3,2]"], "f32[2,3,2]"), 2, &x[..], plus_4(&x)),
            ((["f32[2,3,2]"], "f32[2,3,2]"), 0, &x, plus_4(&x)),
            ((["f32[12]"], "f32[12]"), 1, &x, plus_4(&x)),
            (
                (["f32[2,1,2]"], "f32[2,3,2]"),
                2,
                &x[..4],
                [[4.0, 5.0].repeat(3), [6.0, 7.0].repeat(3)].concat(),
            ),
            (
                (["f32[1,3,2]"], "f32[2,3,2]"),
                2,
                &x[..6],
                plus_4(&x[..6]).repeat(2),
            ),
            ((["f32[0,2]"], "f32[0,2]"), 1, &[], Vec::new()),
        ] {
            let call = mapped(&add_n, "add_n", (&shapes.0, shapes.1), batch).unwrap();
            let found = rig.call(&call, &[operand], expected.len()).unwrap();
            assert_eq!(found, (expected, Vec::new()), "{shapes:?} {batch}");
        }
        let shapes = (&["f32[1,2]", "f32[3,4]"][..], "f32[3,4]");
        let call = mapped(&add, "broadcast_add", shapes, 1).unwrap();
        let found = rig.call(&call, &[&[10.0, 20.0], &x], 12).unwrap().0;
        let expected = x.iter().zip([10.0, 20.0].into_iter().cycle());
        assert_eq!(found, expected.map(|(x, b)| x + b).collect::<Vec<_>>());
        drop((rig, call));
        assert_eq!(stand_in.leaks(), Leaks::NONE, "{mode:?}");
    }
}

#[test]
fn an_element_that_fails_is_told_and_the_others_go_on() {
    let (_guard, _) = rig::alone();
    let count = std::sync::atomic::AtomicUsize::new(0);
    let picky = CudaTarget::new("picky", move |call| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (from, to) = (call.operands()[0], call.results()[0]);
        let (from, to) = (Arc::clone(from.memory()), Arc::clone(to.memory()));
        match number {
            1 => Err(Status::new(StatusCode::DataLoss, Blame::Guest, "picky")),
            5 => Err(Status::new(StatusCode::Aborted, Blame::Guest, "picky")),
            _ => callbox::call::DeviceQueue::copy(call.queue(), &from, &to),
        }
    });
    let module = CudaModule::from_targets([picky]).unwrap();
    let call = mapped(&module, "picky", (&["f32[3,1,2]"], "f32[3,1,2]"), 2).unwrap();
    let mut rig = Rig::new();
    let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let found = rig.call(&call, &[&x], 6).unwrap();
    assert_eq!(found, (vec![1.0, 2.0, 0.0, 0.0, 5.0, 6.0], vec![1]));
    let status = rig.call(&call, &[&x], 6).unwrap_err();
    assert_eq!(status.code(), StatusCode::Aborted);
    assert_eq!(status.message(), "batch element (2, 0): picky");
}

#[test]
fn shapes_and_arrays_that_do_not_fit_are_refused() {
    let (_guard, _) = rig::alone();
    let add = rig::kernels("broadcast_add");
    for (operands, result, batch, says) in [
        (
            ["f32[2]", "f32[3,4]"],
            "f32[3,4]",
            2,
            "operand 0: expected a batch of 2 dimensions before its own",
        ),
        (
            ["f32[2,2]", "f32[3,4]"],
            "f32[3,4]",
            1,
            "operand 0: expected a batch dimension 0 of size 3 or 1, found f32[2,2]",
        ),
        (
            ["f32[1,2]", "f32[3,4]"],
            "f32[1,4]",
            1,
            "operand 1: expected a batch dimension 0 of size 1 or 1, found f32[3,4]",
        ),
        (
            ["f32[3,2]", "f32[3,4]"],
            "f32[3,4]{0,1}",
            1,
            "result 0: expected a row-major layout for a call that is mapped, found f32[3,4]{0,1}",
        ),
        (["f32[3,2]", "f32[3,4]"], "f32[3,5]", 1, "got [5]"),
    ] {
        let status = mapped(&add, "broadcast_add", (&operands, result), batch).unwrap_err();
        assert_eq!(status.code(), StatusCode::InvalidArgument, "{status}");
        assert!(status.message().contains(says), "{status}");
    }
    let shapes = (&["f32[1,2]", "f32[3,4]"][..], "f32[3,4]");
    let call = mapped(&add, "broadcast_add", shapes, 1).unwrap();
    let mut rig = Rig::new();
    for (operands, says) in [
        (
            &[&[1.0, 2.0][..]][..],
            "expected 2 operand buffers, found 1",
        ),
        (
            &[&[1.0, 2.0][..], &[0.0; 8]],
            "operand 1: expected 48 bytes, found 32",
        ),
    ] {
        let status = rig.call(&call, operands, 12).unwrap_err();
        assert!(status.message().contains(says), "{status}");
    }
    let status = rig.call(&call, &[&[1.0, 2.0], &[0.0; 12]], 8).unwrap_err();
    assert!(
        status
            .message()
            .contains("result 0: expected 48 bytes, found 32"),
        "{status}"
    );
}
