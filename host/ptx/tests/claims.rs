//! What an author claims of a kernel, and an assembler would believe, is no part of the fenced
//! text.
#![allow(clippy::unwrap_used, reason = "a test")]

use callbox_ptx::fence::fence;
use callbox_ptx::verify::{Launch, Limits, Param, verify};
use callbox_ptx::{print, read};

#[test]
fn claims_are_left_out() {
    let text = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 .ptr .shared .align 16 a) .noreturn
{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %d;
    ld.param.u64 %d, [a];
    ldu.global.u32 %r, [%d];
    mov.u32 %r, %tid.x;
    setp.eq.u32 %p, %r, 0;
    @%p bra.uni OUT;
    st.global.u32 [%d], %r;
OUT:
    ret.uni;
}
";
    let module = read(text, "claims.ptx", &callbox_ptx::Limits::default()).unwrap();
    let launch = Launch {
        grid: [1, 1, 1],
        block: [32, 1, 1],
        shared_bytes: 0,
        params: vec![Param::Buffer {
            bytes: 4,
            writable: true,
            align: 16,
        }],
        has_clock: false,
    };
    let proof = verify(&module, "k", &launch, &Limits::default()).unwrap();
    let fenced = print(&fence(&module, &proof).module);
    for claim in [".uni", ".ptr", ".noreturn", "ldu."] {
        assert!(print(&module).contains(claim), "{claim}");
        assert!(!fenced.contains(claim), "{claim}: {fenced}");
    }
    assert!(fenced.contains(" bra %l"), "{fenced}");
}
