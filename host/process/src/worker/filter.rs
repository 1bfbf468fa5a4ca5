//! The seccomp filter of a worker: the system calls that it can still make.
//!
//! The filter admits what compiling and running need: memory, time, random bytes, the socket and
//! the buffers. All threads are started before the filter, which admits no new ones. System calls
//! that only an intruder would make kill the process. All others fail with EPERM, so that a library
//! that merely probes for a call continues.

pub(super) mod compiler;

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter_all_threads,
};

use super::cannot;
use callbox_core::values::Result;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that every confined process needs: for the threads that it has, its signals and time.
const COMMON: &[c_long] = &[
    // Threads that exist. An earlier filter refuses questions about other processes.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals, by which traps are caught.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time and random bytes.
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
];

/// Admitted with any arguments.
const ALLOWED: &[c_long] = &[
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_membarrier,
    // The socket and the buffers. `conditional` admits reading and sending.
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_ppoll,
    libc::SYS_close,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Calls that kill the worker: other programs, other processes, the network, the kernel's
/// internals.
const DEADLY: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_capset,
];

/// `PAGEMAP_SCAN`: reports which pages of the process's own memory were written to.
const PAGEMAP_SCAN: u64 = 0xc060_6610;

/// The advice that the engine and the allocator give on memory: unused, and the size of pages.
const ADVICE: [i32; 4] = [
    libc::MADV_DONTNEED,
    libc::MADV_FREE,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
];

/// The clocks of the machine, of this process and of the calling thread. The numbers of other
/// processes' clocks are negative.
const CLOCKS: [i32; 8] = [
    libc::CLOCK_REALTIME,
    libc::CLOCK_MONOTONIC,
    libc::CLOCK_PROCESS_CPUTIME_ID,
    libc::CLOCK_THREAD_CPUTIME_ID,
    libc::CLOCK_MONOTONIC_RAW,
    libc::CLOCK_REALTIME_COARSE,
    libc::CLOCK_MONOTONIC_COARSE,
    libc::CLOCK_BOOTTIME,
];

/// The flags that every mapping has: private, and of no file.
const OWN_MEMORY: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// The flags that a mapping may have: its place, and hints. Stacks that grow and huge pages escape
/// the limit on memory.
const MAPPING: i32 = OWN_MEMORY
    | libc::MAP_FIXED
    | libc::MAP_FIXED_NOREPLACE
    | libc::MAP_NORESERVE
    | libc::MAP_STACK;

/// Installs the filter, and no-new-privileges with it, for all threads of the process. This cannot
/// be undone.
pub(super) fn install(readable: [i32; 2]) -> Result<()> {
    let deadly: Rules = any(DEADLY);
    apply(deadly, SeccompAction::Allow, SeccompAction::KillProcess)?;
    refuse_affinity_of_others()?;
    let mut allowed: Rules = any(ALLOWED);
    allowed.extend(any(COMMON));
    allowed.extend(conditional(readable)?);
    // Of several filters the strictest result counts, so that these calls stay deadly.
    allowed.extend(DEADLY.iter().map(|&call| (number(call), vec![])));
    apply(allowed, errno(libc::EPERM), SeccompAction::Allow)
}

/// glibc asks for the affinity of its own threads by their numbers, which are not known here. On
/// ENOSYS it goes on without.
fn refuse_affinity_of_others() -> Result<()> {
    let own = u64::from(std::process::id());
    let foreign = rule(vec![
        condition(0, SeccompCmpOp::Ne, 0)?,
        condition(0, SeccompCmpOp::Ne, own)?,
    ])?;
    let affinity = Rules::from([(number(libc::SYS_sched_getaffinity), vec![foreign])]);
    apply(affinity, SeccompAction::Allow, errno(libc::ENOSYS))
}

fn errno(number: i32) -> SeccompAction {
    SeccompAction::Errno(number.unsigned_abs())
}

/// These calls, with any arguments.
fn any(calls: &[c_long]) -> Rules {
    calls.iter().map(|&call| (number(call), vec![])).collect()
}

/// Calls that are admitted with some arguments only.
fn conditional(readable: [i32; 2]) -> Result<Rules> {
    let from = readable.map(numbered);
    let own = u64::from(std::process::id());
    let names = [numbered(libc::PR_SET_NAME), numbered(libc::PR_SET_VMA)];
    let advice = ADVICE.map(numbered);
    let clocks = CLOCKS.map(numbered);
    let others = u64::from((!MAPPING | OWN_MEMORY).cast_unsigned());
    Ok(Rules::from(
        [
            (
                libc::SYS_mmap,
                vec![rule(vec![masked(3, others, numbered(OWN_MEMORY))?])?],
            ),
            (libc::SYS_madvise, equal(2, &advice)?),
            (libc::SYS_read, equal(0, &from)?),
            (libc::SYS_pread64, equal(0, &from)?),
            (libc::SYS_recvfrom, plain_transfer(&from, &[0])?),
            (
                libc::SYS_sendto,
                plain_transfer(&from, &[0, numbered(libc::MSG_NOSIGNAL)])?,
            ),
            // Signals to the process itself: `abort` sends one.
            (libc::SYS_tgkill, equal(0, &[own])?),
            (libc::SYS_fcntl, equal(1, &[numbered(libc::F_GETFD)])?),
            (libc::SYS_clock_gettime, equal(0, &clocks)?),
            (libc::SYS_clock_getres, equal(0, &clocks)?),
            (libc::SYS_clock_nanosleep, equal(0, &clocks)?),
            (libc::SYS_ioctl, equal(1, &[PAGEMAP_SCAN])?),
            // Names of threads and of memory.
            (libc::SYS_prctl, equal(0, &names)?),
        ]
        .map(|(call, rules)| (number(call), rules)),
    ))
}

/// The number of a system call, in the filter's type.
#[allow(
    clippy::useless_conversion,
    reason = "the number's type is another one where pointers have 32 bits"
)]
fn number(call: c_long) -> i64 {
    call.into()
}

fn numbered(number: i32) -> u64 {
    number.unsigned_abs().into()
}

/// A transfer on one of these descriptors, with one of these flags and without an address.
fn plain_transfer(descriptors: &[u64], flags: &[u64]) -> Result<Vec<SeccompRule>> {
    let pairs = descriptors
        .iter()
        .flat_map(|descriptor| flags.iter().map(move |flag| (*descriptor, *flag)));
    pairs
        .map(|(descriptor, flag)| {
            rule(vec![
                condition(0, SeccompCmpOp::Eq, descriptor)?,
                condition(3, SeccompCmpOp::Eq, flag)?,
                no_address(4)?,
            ])
        })
        .collect()
}

/// The argument is one of these values.
fn equal(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>> {
    let rule = |&value: &u64| rule(vec![condition(argument, SeccompCmpOp::Eq, value)?]);
    values.iter().map(rule).collect()
}

/// The argument has these bits under the mask.
fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition> {
    condition(argument, SeccompCmpOp::MaskedEq(mask), value)
}

fn condition(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition> {
    // Descriptors, commands and flags are in the lower half of a register.
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value).map_err(cannot)
}

fn no_address(argument: u8) -> Result<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0).map_err(cannot)
}

/// A rule that holds if all conditions do.
fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule> {
    SeccompRule::new(conditions).map_err(cannot)
}

fn apply(rules: Rules, mismatch: SeccompAction, matched: SeccompAction) -> Result<()> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(cannot)?;
    let filter = SeccompFilter::new(rules, mismatch, matched, arch).map_err(cannot)?;
    let program: seccompiler::BpfProgram = filter.try_into().map_err(cannot)?;
    apply_filter_all_threads(&program).map_err(cannot)
}
