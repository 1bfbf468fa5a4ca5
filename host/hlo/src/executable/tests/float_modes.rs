//! Programs compute the same bits whatever the floating-point mode of the calling thread is.

use super::*;
use callbox_core::float_mode::FloatMode;

/// Large enough for several threads.
const PROGRAM: &str = "HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[512,1024] parameter(0)
  third = f32[] constant(0.333333343)
  thirds = f32[512,1024] broadcast(third), dimensions={}
  y = f32[512,1024] multiply(x, thirds)
  z = f32[512,1024] subtract(y, thirds)
  zero = f32[] constant(0)
  rows = f32[512] reduce(y, zero), dimensions={1}, to_apply=add
  thin = f32[512,64] slice(y), slice={[0:512], [0:64]}
  square = f32[512,512] dot(thin, thin), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT all = (f32[512,1024], f32[512,1024], f32[512], f32[512,512]) tuple(y, z, rows, square)
}
";

#[test]
fn programs_compute_alike_in_every_mode() {
    let program = crate::hlo::parse(PROGRAM).unwrap();
    let executable = Executable::compile(&program, &Registry::new(), Platform::Host).unwrap();
    // Denormals, numbers that vanish when they are squared, and others.
    let elements = (0..512 * 1024).map(|i| match i % 3 {
        0 => f32::from_bits(i + 1),
        1 => 3e-20 * (i + 1) as f32,
        _ => (i as f32).sqrt(),
    });
    let x = Literal::array(&[512, 1024], &Vec::from_iter(elements)).unwrap();
    let run = |threads| {
        let options = ExecuteOptions {
            call: CallOptions {
                threads: Some(threads),
                ..CallOptions::default()
            },
            ..ExecuteOptions::default()
        };
        let result = executable.execute(0, std::slice::from_ref(&x), &options);
        let leaves = result.unwrap();
        Vec::from_iter(leaves.leaves().map(|(_, bytes)| bytes.to_vec()))
    };
    let expected = run(1);
    assert!(expected == run(3), "several threads");
    let other = FloatMode::FLUSHING.set();
    let (alone, shared) = (run(1), run(3));
    assert_eq!(FloatMode::current(), FloatMode::FLUSHING);
    drop(other);
    assert!(expected == alone, "one thread in another mode");
    assert!(expected == shared, "several threads in another mode");
}
