//! Which instructions run in one pass.

use super::{compile, registry};
use crate::instruction::ComputationId;

/// The numbers of members and results of each pass of the first computation.
fn passes(text: &str) -> Vec<[usize; 2]> {
    let (registry, _) = registry(&[]);
    let executable = compile(text, &registry).unwrap();
    let plan = executable.inner.core.plan.computation(ComputationId(0));
    let passes = plan.steps.iter().filter_map(|step| step.pass.as_ref());
    passes
        .map(|pass| [pass.members.len(), pass.results().count()])
        .collect()
}

fn chain(size: usize) -> String {
    let text = r#"HloModule m
ENTRY main {
  x = f32[SIZE] parameter(0)
  a = f32[SIZE] add(x, x)
  two = f32[] constant(2)
  twos = f32[SIZE] broadcast(two), dimensions={}
  b = f32[SIZE] multiply(a, twos)
  r = f32[SIZE] reverse(b), dimensions={0}
  c = f32[SIZE] negate(r)
  d = f32[SIZE] abs(c)
  ROOT t = (f32[SIZE], f32[SIZE], f32[SIZE]) tuple(d, a, twos)
}"#;
    text.replace("SIZE", &size.to_string())
}

#[test]
fn elementwise_instructions_on_large_arrays_run_in_passes() {
    // `a`, `twos` and `b`, which are all read later, and then `c` and `d`.
    assert_eq!(passes(&chain(8192)), [[3, 3], [2, 1]]);
    assert_eq!(passes(&chain(8191)), [[0; 2]; 0]);
}

#[test]
fn a_broadcast_alone_is_no_pass() {
    let text = "HloModule m
ENTRY main {
  x = f32[] parameter(0)
  ROOT y = f32[100000] broadcast(x), dimensions={}
}";
    assert_eq!(passes(text), [[0; 2]; 0]);
}

#[test]
fn passes_read_a_bounded_number_of_scalars() {
    let mut text = "HloModule m\nENTRY main {\n  x0 = f32[8192] parameter(0)\n".to_owned();
    for i in 0..200 {
        text += &format!("  c{i} = f32[] constant({i})\n");
        text += &format!("  b{i} = f32[8192] broadcast(c{i}), dimensions={{}}\n");
        text += &format!("  x{} = f32[8192] add(x{i}, b{i})\n", i + 1);
    }
    text += "  ROOT r = f32[8192] copy(x200)\n}";
    // 128 broadcasts with their sums and the sums of eight more, and then the others.
    assert_eq!(passes(&text), [[264, 1], [129, 1]]);
}
