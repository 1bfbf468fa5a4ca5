//! The seccomp filter of a compiler, which is narrower than that of a worker that runs modules: no
//! new threads, no files in memory, and no memory that can be executed.

use super::{
    ADVICE, CLOCKS, COMMON, DEADLY, MAPPING, OWN_MEMORY, Rules, SeccompAction, any, apply,
    condition, equal, errno, masked, number, numbered, refuse_affinity_of_others, rule,
};
use callbox_core::values::Result;
use libc::c_long;
use seccompiler::{SeccompCmpOp, SeccompRule};

/// Admitted with any arguments.
const ALLOWED: &[c_long] = &[
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_membarrier,
    // The socket and standard error. Reading and sending are admitted below.
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_ppoll,
    libc::SYS_close,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Installs the filter for all threads of the process. This cannot be undone.
pub(in crate::worker) fn install(socket: i32) -> Result<()> {
    let deadly: Rules = any(DEADLY);
    apply(deadly, SeccompAction::Allow, SeccompAction::KillProcess)?;
    refuse_affinity_of_others()?;
    let mut allowed: Rules = any(ALLOWED);
    allowed.extend(any(COMMON));
    allowed.extend(conditional(socket)?);
    allowed.extend(DEADLY.iter().map(|&call| (number(call), vec![])));
    apply(allowed, errno(libc::EPERM), SeccompAction::Allow)
}

/// Calls that are admitted with some arguments only.
fn conditional(socket: i32) -> Result<Rules> {
    let socket = numbered(socket);
    let own = u64::from(std::process::id());
    let clocks = CLOCKS.map(numbered);
    let others = u64::from((!MAPPING | OWN_MEMORY).cast_unsigned());
    let not_executable = |argument| masked(argument, numbered(libc::PROT_EXEC), 0);
    Ok(Rules::from(
        [
            (
                libc::SYS_mmap,
                vec![rule(vec![
                    not_executable(2)?,
                    masked(3, others, numbered(OWN_MEMORY))?,
                ])?],
            ),
            (libc::SYS_mprotect, vec![rule(vec![not_executable(2)?])?]),
            (libc::SYS_madvise, equal(2, &ADVICE.map(numbered))?),
            (libc::SYS_read, equal(0, &[socket])?),
            (libc::SYS_recvfrom, vec![transfer(socket, 0)?]),
            (
                libc::SYS_sendto,
                vec![
                    transfer(socket, 0)?,
                    transfer(socket, numbered(libc::MSG_NOSIGNAL))?,
                ],
            ),
            (libc::SYS_clock_gettime, equal(0, &clocks)?),
            (libc::SYS_clock_nanosleep, equal(0, &clocks)?),
            // Signals to the process itself: `abort` sends one.
            (libc::SYS_tgkill, equal(0, &[own])?),
            // Names of threads and of memory.
            (
                libc::SYS_prctl,
                equal(
                    0,
                    &[numbered(libc::PR_SET_NAME), numbered(libc::PR_SET_VMA)],
                )?,
            ),
        ]
        .map(|(call, rules)| (number(call), rules)),
    ))
}

/// A transfer on the socket with these flags.
fn transfer(socket: u64, flags: u64) -> Result<SeccompRule> {
    rule(vec![
        condition(0, SeccompCmpOp::Eq, socket)?,
        condition(3, SeccompCmpOp::Eq, flags)?,
    ])
}
