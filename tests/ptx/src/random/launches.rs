//! Random launches, and random changes of launches.

use callbox_ptx::verify::{Launch, Param};

use super::{NUMBERS, Random, number};

/// A launch for a generated kernel.
pub fn launch(random: &mut Random) -> Launch {
    let blocks = [
        [1, 1, 1],
        [2, 1, 1],
        [7, 1, 1],
        [3, 2, 1],
        [32, 1, 1],
        [8, 4, 1],
        [32, 2, 1],
    ];
    let buffer = |random: &mut Random, writable| Param::Buffer {
        bytes: [0, 4, 8, 64, 128, 252, 256, 512, 1000, 1024][random.below(10)],
        writable,
        align: [4, 16, 256][random.below(3)],
    };
    Launch {
        grid: [[1, 1, 1], [1, 1, 1], [2, 1, 1], [1, 2, 1]][random.below(4)],
        block: blocks[random.below(blocks.len())],
        shared_bytes: [0, 16, 64, 256][random.below(4)],
        params: vec![
            buffer(random, false),
            buffer(random, true),
            buffer(random, true),
            Param::Value((NUMBERS[random.below(26)] as i32).to_le_bytes().to_vec()),
            Param::Value(NUMBERS[random.below(26)].to_le_bytes().to_vec()),
        ],
        has_clock: false,
    }
}

/// A smaller launch, whose buffers may be too short. Fewer threads find the same faults sooner.
pub fn changed_launch(mut launch: Launch, random: &mut Random) -> Launch {
    launch.block[0] = launch.block[0].min(64);
    let blocks = 1 + random.below(2) as u32;
    launch.grid = [launch.grid[0].min(blocks), launch.grid[1].min(1), 1];
    for param in &mut launch.params {
        if !random.chance(15) {
            continue;
        }
        match param {
            Param::Buffer { bytes, align, .. } => {
                *bytes = random.below(*bytes as usize + 1) as u64 & !3;
                *align = [4, 16, 256][random.below(3)];
            }
            Param::Value(bytes) => {
                let number = number(random).to_le_bytes();
                for (byte, new) in bytes.iter_mut().zip(number) {
                    *byte = new;
                }
            }
        }
    }
    launch
}
