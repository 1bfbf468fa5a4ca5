//! Runs single instructions between a load and a store.

use callbox_cuda_stand_in::ptx::Module;

use super::{Device, Element, launch};

/// Runs instructions that read `%a`, `%b`, `%c` and write `%d`, of these types, for each of
/// `inputs`. `%p` and `%q` are predicates; `%s0` to `%s9` have 16, `%r0` to `%r9` 32 and `%x0` to
/// `%x9` 64 bits.
pub(crate) fn run(types: &str, instructions: &str, inputs: &[[u64; 3]]) -> Vec<u64> {
    let types: Vec<&str> = types.split(' ').collect();
    let [a, b, c, d] = types[..] else {
        panic!("four types are needed")
    };
    let register = |kind: &str| {
        kind.replace("u8", "b16")
            .replace("s8", "b16")
            .replace("pred", "b32")
    };
    let text = format!(
        ".version 9.0\n.target sm_75\n.address_size 64
        .visible .entry k(.param .u64 from, .param .u64 to) {{
        .reg .b64 %from, %to, %at, %x<10>; .reg .b32 %r<10>; .reg .b16 %s<10>; .reg .pred %p, %q;
        .reg .{} %a; .reg .{} %b; .reg .{} %c; .reg .{} %d;
        ld.param.u64 %from, [from]; ld.param.u64 %to, [to];
        mov.u32 %r9, %ctaid.x; mul.wide.u32 %at, %r9, 24; add.u64 %from, %from, %at;
        mul.wide.u32 %at, %r9, 8; add.u64 %to, %to, %at;
        ld.global.{a} %a, [%from]; ld.global.{b} %b, [%from+8]; ld.global.{c} %c, [%from+16];
        {instructions}
        st.global.{d} [%to], %d; ret; }}",
        register(a),
        register(b),
        register(c),
        register(d),
    );
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let device = Device::default();
    let flat: Vec<u64> = inputs.iter().flatten().copied().collect();
    let (from, to) = (
        device.buffer(&flat),
        device.buffer(&vec![0_u64; inputs.len()]),
    );
    launch(
        &module,
        &device,
        "k",
        (inputs.len() as u32, 1),
        &[from.to_bytes(), to.to_bytes()],
    )
    .unwrap();
    device.read(to)
}

pub(crate) fn one(types: &str, instructions: &str, inputs: [u64; 3]) -> u64 {
    run(types, instructions, &[inputs])[0]
}

pub(crate) const B32: &str = "b32 b32 b32 b32";
pub(crate) const B64: &str = "b64 b64 b64 b64";
pub(crate) const F32: &str = "f32 f32 f32 f32";

/// Runs an instruction on three 32-bit operands and returns its 32-bit result.
pub(crate) fn word(instruction: &str, a: u32, b: u32, c: u32) -> u32 {
    one(B32, instruction, [a.into(), b.into(), c.into()]) as u32
}

pub(crate) fn random(count: usize, mut state: u64) -> Vec<[u64; 3]> {
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..count).map(|_| [next(), next(), next()]).collect()
}

pub(crate) fn single(instruction: &str, a: f32, b: f32, c: f32) -> f32 {
    f32::from_bits(one(F32, instruction, [a, b, c].map(|x| u64::from(x.to_bits()))) as u32)
}
