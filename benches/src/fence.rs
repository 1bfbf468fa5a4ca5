//! Making a stranger's kernel safe to launch: flash attention of Triton, verified, fenced and
//! printed, beside reading its text.

use callbox_ptx::fence::fence;
use callbox_ptx::verify::{self, Launch, Param, verify};
use callbox_ptx::{Limits, print, read};
use criterion::Criterion;

const TEXT: &str = include_str!("../../guests/triton/attention/causal_attention.ptx");

/// A call with two heads and 1,024 rows of 64 numbers.
fn launch() -> Launch {
    let buffer = |writable| Param::Buffer {
        bytes: 2 * 1024 * 64 * 2,
        writable,
        align: 16,
    };
    Launch {
        grid: [16, 2, 1],
        block: [128, 1, 1],
        shared_bytes: 16_384,
        params: vec![
            buffer(false),
            buffer(false),
            buffer(false),
            buffer(true),
            Param::Value(1024_u32.to_le_bytes().to_vec()),
            Param::Value(0.125_f32.to_le_bytes().to_vec()),
            Param::Value(vec![0; 8]),
            Param::Value(vec![0; 8]),
        ],
        has_clock: false,
    }
}

/// Measures the preparation of a kernel without a grant.
pub fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fence");
    let module = read(TEXT, "causal_attention.ptx", &Limits::default()).unwrap();
    group.bench_function("read", |bencher| {
        bencher.iter(|| read(TEXT, "causal_attention.ptx", &Limits::default()).unwrap());
    });
    let launch = launch();
    group.bench_function("verified", |bencher| {
        bencher.iter(|| {
            let limits = verify::Limits::default();
            let proof = verify(&module, "causal_attention", &launch, &limits).unwrap();
            print(&fence(&module, &proof).module)
        });
    });
    group.finish();
}
