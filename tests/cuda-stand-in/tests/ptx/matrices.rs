//! Matrices and asynchronous copies. The places of elements are written as in the PTX ISA.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::device_memory::{Device, Element, launch, numbers};
use callbox_cuda_stand_in::ptx::{FaultKind, Module};
use half::{bf16, f16};

/// Runs `mma` on registers: each lane loads those of A, B and C, and stores those of D, from rows
/// of 32-bit words.
fn multiply(name: &str, counts: [usize; 3], lanes: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let [in_a, in_b, in_c] = counts;
    let words = in_a + in_b + in_c;
    let list = |from: usize, count: usize| {
        let names: Vec<String> = (from..from + count)
            .map(|index| format!("%r{index}"))
            .collect();
        format!("{{{}}}", names.join(", "))
    };
    let loads: String = (0..words)
        .map(|index| format!("ld.global.b32 %r{index}, [%at+{}];\n", 4 * index))
        .collect();
    let stores: String = (0..in_c)
        .map(|index| format!("st.global.b32 [%at+{}], %r{};\n", 4 * index, words + index))
        .collect();
    let text = format!(
        ".version 8.0 .target sm_80 .address_size 64 .visible .entry k(.param .u64 values) {{
        .reg .b32 %r<{}>, %lane; .reg .b64 %at, %offset;
        ld.param.u64 %at, [values]; mov.u32 %lane, %tid.x;
        mul.wide.u32 %offset, %lane, {}; add.u64 %at, %at, %offset;
        {loads} {name} {}, {}, {}, {}; {stores} ret; }}",
        words + in_c,
        4 * words,
        list(words, in_c),
        list(0, in_a),
        list(in_a, in_b),
        list(in_a + in_b, in_c),
    );
    let module = Module::parse(&text).unwrap();
    let device = Device::default();
    let flat: Vec<u32> = lanes.iter().flatten().copied().collect();
    let buffer = device.buffer(&flat);
    launch(&module, &device, "k", (1, 32), &[buffer.to_bytes()]).unwrap();
    let found: Vec<u32> = device.read(buffer);
    found
        .chunks(words)
        .map(|lane| lane[..in_c].to_vec())
        .collect()
}

/// m16n8k16 with elements of 16 bits and sums in F32.
fn check_16_bits(kind: &str, bits: fn(f32) -> u16) {
    let value = |index: usize| ((index * 37 + 11) % 64) as f32 / 8.0 - 4.0;
    let a = |row: usize, column: usize| value(row * 16 + column);
    let b = |row: usize, column: usize| value(1000 + row * 8 + column);
    let c = |row: usize, column: usize| value(2000 + row * 8 + column);
    let pair = |low: f32, high: f32| u32::from(bits(low)) | (u32::from(bits(high)) << 16);
    let lane = |lane: usize| {
        let (group, member) = (lane >> 2, lane % 4);
        let in_a = |i: usize| {
            let row = if (0..2).contains(&i) || (4..6).contains(&i) {
                group
            } else {
                group + 8
            };
            let column = member * 2 + (i & 1) + if i < 4 { 0 } else { 8 };
            a(row, column)
        };
        let in_b = |i: usize| b(member * 2 + (i & 1) + if i < 2 { 0 } else { 8 }, group);
        let mut words: Vec<u32> = (0..4).map(|r| pair(in_a(2 * r), in_a(2 * r + 1))).collect();
        words.extend((0..2).map(|r| pair(in_b(2 * r), in_b(2 * r + 1))));
        words.extend((0..4).map(|i| {
            let row = if i < 2 { group } else { group + 8 };
            c(row, member * 2 + (i & 1)).to_bits()
        }));
        words
    };
    let lanes: Vec<Vec<u32>> = (0..32).map(lane).collect();
    let name = format!("mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32");
    for (lane, found) in multiply(&name, [4, 2, 4], &lanes).iter().enumerate() {
        for (i, found) in found.iter().enumerate() {
            let row = if i < 2 { lane >> 2 } else { (lane >> 2) + 8 };
            let column = lane % 4 * 2 + (i & 1);
            let products = (0..16).map(|inner| a(row, inner) * b(inner, column));
            let expected = c(row, column) + products.sum::<f32>();
            assert_eq!(
                f32::from_bits(*found),
                expected,
                "{kind} row {row}, column {column}"
            );
        }
    }
}

#[test]
fn products_of_16_bits() {
    check_16_bits("f16", |value| f16::from_f32(value).to_bits());
    check_16_bits("bf16", |value| bf16::from_f32(value).to_bits());
}

#[test]
fn products_of_tf32() {
    // The lower 13 bits of an operand are not read.
    let value = |index: usize| ((index * 29 + 5) % 32) as f32 / 4.0 - 4.0;
    let a = |row: usize, column: usize| value(row * 8 + column);
    let b = |row: usize, column: usize| value(500 + row * 8 + column);
    let lanes: Vec<Vec<u32>> = (0..32)
        .map(|lane| {
            let (group, member) = (lane >> 2, lane % 4);
            let places = [(0, 0), (8, 0), (0, 4), (8, 4)];
            let mut words: Vec<u32> = places
                .map(|(down, across)| a(group + down, member + across).to_bits() | 0x1abc)
                .to_vec();
            words.extend([0, 4].map(|down| b(member + down, group).to_bits()));
            words.extend([0; 4]);
            words
        })
        .collect();
    let name = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32";
    for (lane, found) in multiply(name, [4, 2, 4], &lanes).iter().enumerate() {
        for (i, found) in found.iter().enumerate() {
            let (row, column) = ((lane >> 2) + 8 * (i / 2), lane % 4 * 2 + (i & 1));
            let expected: f32 = (0..8).map(|inner| a(row, inner) * b(inner, column)).sum();
            assert_eq!(
                f32::from_bits(*found),
                expected,
                "row {row}, column {column}"
            );
        }
    }
}

#[test]
fn products_of_bytes() {
    let value = |index: usize| ((index * 91 + 17) % 251) as u8;
    let a = |row: usize, column: usize| value(row * 32 + column).cast_signed();
    let b = |row: usize, column: usize| value(3000 + row * 8 + column);
    let word = |bytes: [u8; 4]| u32::from_le_bytes(bytes);
    let lanes: Vec<Vec<u32>> = (0..32)
        .map(|lane| {
            let (group, member) = (lane >> 2, lane % 4);
            let places = [(0, 0), (8, 0), (0, 16), (8, 16)];
            let mut words: Vec<u32> = places
                .map(|(down, across)| {
                    let at = |i| a(group + down, member * 4 + i + across).cast_unsigned();
                    word([at(0), at(1), at(2), at(3)])
                })
                .to_vec();
            words.extend([0, 16].map(|down| {
                let at = |i| b(member * 4 + i + down, group);
                word([at(0), at(1), at(2), at(3)])
            }));
            words.extend([i32::MAX.cast_unsigned(), 1, 2, 3]);
            words
        })
        .collect();
    for clamps in [false, true] {
        let name = format!(
            "mma.sync.aligned.m16n8k32.row.col{}.s32.s8.u8.s32",
            if clamps { ".satfinite" } else { "" }
        );
        for (lane, found) in multiply(&name, [4, 2, 4], &lanes).iter().enumerate() {
            for (i, found) in found.iter().enumerate() {
                let (row, column) = ((lane >> 2) + 8 * (i / 2), lane % 4 * 2 + (i & 1));
                let products = (0..32).map(|k| i64::from(a(row, k)) * i64::from(b(k, column)));
                let sum = products.sum::<i64>() + [i64::from(i32::MAX), 1, 2, 3][i];
                let limits = (i64::from(i32::MIN), i64::from(i32::MAX));
                let expected = if clamps {
                    sum.clamp(limits.0, limits.1)
                } else {
                    sum
                };
                assert_eq!(
                    found.cast_signed(),
                    expected as i32,
                    "row {row}, column {column}"
                );
            }
        }
    }
}

/// Loads four matrices from shared memory, and stores them as they were.
#[test]
fn rows_of_matrices() {
    let elements: Vec<i16> = numbers(256, 7)
        .iter()
        .map(|&number| number as i16)
        .collect();
    for transposed in ["", ".trans"] {
        let text = format!(
            ".version 8.0 .target sm_90 .address_size 64 .visible .entry k(.param .u64 values, .param .u64 out) {{
            .shared .align 16 .b8 rows[1024]; .reg .b32 %r<4>, %lane, %row; .reg .b64 %at, %out, %offset; .reg .b32 %w<8>;
            ld.param.u64 %at, [values]; ld.param.u64 %out, [out]; mov.u32 %lane, %tid.x;
            mul.wide.u32 %offset, %lane, 16; add.u64 %at, %at, %offset; add.u64 %out, %out, %offset;
            mov.u32 %row, rows; shl.b32 %w0, %lane, 4; add.u32 %row, %row, %w0;
            cp.async.cg.shared.global [%row], [%at], 16; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
            ldmatrix.sync.aligned.m8n8.x4{transposed}.shared.b16 {{%r0, %r1, %r2, %r3}}, [%row];
            st.global.v4.b32 [%out], {{%r0, %r1, %r2, %r3}};
            stmatrix.sync.aligned.m8n8.x4{transposed}.shared.b16 [%row+512], {{%r0, %r1, %r2, %r3}};
            bar.sync 0; ld.shared.v4.b32 {{%w0, %w1, %w2, %w3}}, [%row+512]; st.global.v4.b32 [%out+512], {{%w0, %w1, %w2, %w3}};
            ret; }}"
        );
        let module = Module::parse(&text).unwrap();
        let device = Device::default();
        let values = device.buffer(&elements);
        let out = device.buffer(&vec![0_i16; 512]);
        launch(
            &module,
            &device,
            "k",
            (1, 32),
            &[values.to_bytes(), out.to_bytes()],
        )
        .unwrap();
        let found: Vec<i16> = device.read(out);
        for (lane, registers) in found[..256].chunks(8).enumerate() {
            for (matrix, pair) in registers.chunks(2).enumerate() {
                for (i, found) in pair.iter().enumerate() {
                    let (row, column) = (lane / 4, lane % 4 * 2 + i);
                    let (row, column) = if transposed.is_empty() {
                        (row, column)
                    } else {
                        (column, row)
                    };
                    assert_eq!(*found, elements[matrix * 64 + row * 8 + column]);
                }
            }
        }
        assert_eq!(found[256..], elements[..], "stored{transposed}");
    }
}

/// Copies 16 bytes, of which as many are read as the fourth operand says.
fn copy(source: &str) -> Result<Vec<u8>, FaultKind> {
    let text = format!(
        ".version 8.3 .target sm_80 .address_size 64 .visible .entry k(.param .u64 values, .param .u64 out) {{
        .shared .align 16 .b8 rows[16]; .reg .b32 %r<4>, %size; .reg .b64 %at, %out; .reg .pred %p;
        ld.param.u64 %at, [values]; ld.param.u64 %out, [out]; mov.u32 %size, 5; setp.eq.u32 %p, %size, 5;
        cp.async.ca.shared.global [rows], {source}; cp.async.wait_all;
        ld.shared.v4.b32 {{%r0, %r1, %r2, %r3}}, [rows]; st.global.v4.b32 [%out], {{%r0, %r1, %r2, %r3}};
        ret; }}"
    );
    let module = Module::parse(&text).unwrap();
    let device = Device::default();
    let values: Vec<u8> = (1..=20).collect();
    let values = device.bytes(&values);
    let out = device.bytes(&[0xff; 16]);
    launch(
        &module,
        &device,
        "k",
        (1, 1),
        &[values.to_bytes(), out.to_bytes()],
    )
    .map_err(|fault| fault.kind)?;
    Ok(device.read(out))
}

#[test]
fn asynchronous_copies_fill_with_zeros() {
    let first = |count: u8| {
        (1..=16)
            .map(|at| if at <= count { at } else { 0 })
            .collect::<Vec<u8>>()
    };
    assert_eq!(copy("[%at], 16").unwrap(), first(16));
    assert_eq!(copy("[%at], 16, %size").unwrap(), first(5));
    assert_eq!(copy("[%at], 16, %p").unwrap(), first(0));
    // Nothing is read from an address that has nothing.
    assert_eq!(copy("[%at+1048576], 16, 0").unwrap(), first(0));
    assert_eq!(
        copy("[%at+1048576], 16").unwrap_err(),
        FaultKind::IllegalAddress
    );
    assert_eq!(
        copy("[%at+4], 16").unwrap_err(),
        FaultKind::MisalignedAddress
    );
    assert_eq!(
        copy("[%at], 16, 17").unwrap_err(),
        FaultKind::IllegalInstruction
    );
}

/// Lanes that do not come to an instruction of the whole warp are waited for.
#[test]
fn a_divergent_product_is_a_deadlock() {
    let text = ".version 8.0 .target sm_80 .address_size 64 .visible .entry k() {
        .reg .b32 %r<4>, %lane; .reg .pred %p; mov.u32 %lane, %tid.x; setp.eq.u32 %p, %lane, 3;
        @%p bar.sync 0;
        mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r0, %r1}, {%r0, %r1}, {%r2}, {%r0, %r1};
        @!%p bar.sync 0; ret; }";
    let module = Module::parse(text).unwrap();
    let fault = launch(&module, &Device::default(), "k", (1, 32), &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout, "{fault}");
}
