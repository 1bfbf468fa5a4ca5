//! Spaces, branches and lanes, in hand-written PTX.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::device_memory::single::{B32, one, run};
use crate::device_memory::{Device, Element, launch};
use callbox_cuda_stand_in::ptx::Module;

#[test]
fn generic_addresses_find_their_space() {
    // Addresses in shared, local and global memory, through the same load.
    let instructions = "
        .shared .align 4 .b8 line[8]; .local .align 8 .b8 depot[16];
        mov.u64 %x0, line; cvta.shared.u64 %x1, %x0; mov.u64 %x2, depot; cvta.local.u64 %x3, %x2; cvta.global.u64 %x4, %from;
        st.shared.u32 [line+4], %a; st.local.u32 [%x2+8], %b;
        ld.u32 %r0, [%x1+4]; ld.u32 %r1, [%x3+8]; ld.u32 %r2, [%x4+16];
        add.u32 %d, %r0, %r1; add.u32 %d, %d, %r2;
        isspacep.shared %p, %x1; @!%p trap; isspacep.local %p, %x3; @!%p trap; isspacep.global %p, %x4; @!%p trap;
        isspacep.global %p, %x1; @%p trap; cvta.to.shared.u64 %x1, %x1; setp.ne.u64 %p, %x0, %x1; @%p trap;";
    assert_eq!(one(B32, instructions, [1000, 200, 30]), 1230);
    // Fresh shared and local memory and registers contain poison.
    let fresh = ".shared .align 4 .b8 line[8]; .local .align 8 .b8 depot[16]; ld.shared.u32 %r0, [line]; ld.local.u32 %r1, [depot+12];
        xor.b32 %r2, %r0, %r1; add.u32 %r0, %r0, %r2; xor.b32 %r0, %r0, %r5; xor.b32 %d, %r0, 0xcdcdcdcd;";
    assert_eq!(one(B32, fresh, [0, 0, 0]), 0xcdcd_cdcd);
}

#[test]
fn tables_branch_and_scopes_nest() {
    let instructions = "
        table: .branchtargets $one, $two, $three;
        brx.idx %a, table;
        $one: mov.u32 %d, 11; bra.uni $end;
        $two: { .reg .b32 %d2; mov.u32 %d2, 22; { $end: mov.u32 %d, %d2; } bra $end; }
        $three: mov.u32 %d, 33;
        $end:";
    let found: Vec<u64> = run(B32, instructions, &[[0, 0, 0], [1, 0, 0], [2, 0, 0]]);
    assert_eq!(found, [11, 22, 33]);
}

#[test]
fn lanes_reduce() {
    let text = ".version 9.0\n.target sm_80\n.address_size 64
        .visible .entry k(.param .u64 values) { .reg .b64 %v, %at; .reg .b32 %r<12>; .reg .pred %p, %q;
        ld.param.u64 %v, [values]; mov.u32 %r0, %tid.x; mul.wide.u32 %at, %r0, 32; add.u64 %at, %v, %at; ld.global.u32 %r1, [%at];
        redux.sync.add.s32 %r2, %r1, 0xffffffff; redux.sync.min.s32 %r3, %r1, 0xffffffff; redux.sync.max.u32 %r4, %r1, 0xffffffff;
        redux.sync.xor.b32 %r5, %r1, 0xffffffff; match.all.sync.b32 %r6|%p, %r0, 0xffffffff; match.all.sync.b32 %r7|%q, 5, 0xffffffff;
        shfl.sync.down.b32 %r8|%p, %r1, 2, 0x1c03, 0xffffffff; selp.u32 %r9, 1, 0, %p; mov.u32 %r10, %lanemask_lt; selp.u32 %r11, 1, 0, %q;
        st.global.v4.u32 [%at], {%r2, %r3, %r4, %r5}; st.global.v4.u32 [%at+16], {%r6, %r8, %r9, %r10}; 
        @!%q trap; setp.eq.u32 %p, %r7, 0x3f; @!%p trap; ret; }";
    let module = Module::parse(text).unwrap();
    let device = Device::default();
    let values = [5_i32, -3, 100, 7, 0, 12];
    let mut flat = vec![0_i32; 48];
    for (lane, value) in values.iter().enumerate() {
        flat[lane * 8] = *value;
    }
    let buffer = device.buffer(&flat);
    // Six lanes: the other lanes in the mask are not waited for.
    launch(&module, &device, "k", (1, 6), &[buffer.to_bytes()]).unwrap();
    for (lane, r) in device.read::<i32>(buffer).chunks(8).enumerate() {
        let is_inside = lane % 4 < 2;
        let source = if is_inside { lane + 2 } else { lane };
        let shuffled = values
            .get(source)
            .copied()
            .unwrap_or(0xcdcd_cdcd_u32 as i32);
        let xor = values.iter().fold(0, |a, b| a ^ b);
        assert_eq!(
            r,
            [
                121,
                -3,
                -3,
                xor,
                0,
                shuffled,
                i32::from(is_inside),
                (1 << lane) - 1
            ],
            "lane {lane}"
        );
    }
}
