//! The seccomp filter of a worker: which system calls it still has.
//!
//! It has what compiling and running takes: memory, threads, time, random bytes, its socket and its buffers. What no worker ever asks for and an
//! intruder would ends the process. Everything else fails with EPERM, so that a library which only tries something lives on.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter_all_threads,
};

use super::cannot;
use crate::values::Result;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// What a worker does, whatever the arguments.
const ALLOWED: &[c_long] = &[
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_membarrier,
    // What a module's memory begins with is kept in memory that instances map.
    libc::SYS_memfd_create,
    // Its socket and its buffers. Reading and sending are below.
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_ppoll,
    libc::SYS_close,
    // Threads.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // See `clone3` below.
    libc::SYS_clone3,
    // Signals, by which traps are caught.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time and random bytes.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// What only an intruder asks for: other programs, other processes, the network, the kernel's insides.
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

/// `PAGEMAP_SCAN`: asks which pages of this process's own memory were written to.
const PAGEMAP_SCAN: u64 = 0xc060_6610;

/// What the engine and the allocator tell the kernel of memory: that it is needed no longer, and how large its pages may be.
const ADVICE: [i32; 4] = [
    libc::MADV_DONTNEED,
    libc::MADV_FREE,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
];

/// What `pthread_create` asks for: a thread that shares all that a thread can.
const THREAD: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID;

/// The same as glibc has it, and as musl has it, with a flag that has no effect.
const THREADS: [i32; 2] = [THREAD, THREAD | libc::CLONE_DETACHED];

/// Installs the filter for all threads of the process, and no-new-privileges with it. It can't be taken back.
pub(super) fn install(readable: [i32; 2]) -> Result<()> {
    let errno = |number: i32| SeccompAction::Errno(number.unsigned_abs());
    let any = |calls: &[c_long]| calls.iter().map(|&call| (number(call), vec![])).collect();
    let deadly: Rules = any(DEADLY);
    apply(deadly, SeccompAction::Allow, SeccompAction::KillProcess)?;
    // What it clones lies in memory, where no filter sees it. Whoever is told that there is no such call takes `clone`.
    let clone3: Rules = any(&[libc::SYS_clone3]);
    apply(clone3, SeccompAction::Allow, errno(libc::ENOSYS))?;
    let mut allowed: Rules = any(ALLOWED);
    allowed.extend(conditional(readable)?);
    // What is deadly is not on the list: of several filters the strictest counts.
    allowed.extend(DEADLY.iter().map(|&call| (number(call), vec![])));
    apply(allowed, errno(libc::EPERM), SeccompAction::Allow)
}

/// What a worker does with some arguments only.
fn conditional(readable: [i32; 2]) -> Result<Rules> {
    let from = readable.map(numbered);
    let own = u64::from(std::process::id());
    let seals = [numbered(libc::F_ADD_SEALS), numbered(libc::F_GETFD)];
    let names = [numbered(libc::PR_SET_NAME), numbered(libc::PR_SET_VMA)];
    let advice = ADVICE.map(numbered);
    Ok(Rules::from(
        [
            // Memory that is shared is counted by no limit.
            (
                libc::SYS_mmap,
                vec![rule(vec![masked(3, numbered(libc::MAP_SHARED), 0)?])?],
            ),
            (libc::SYS_madvise, equal(2, &advice)?),
            (libc::SYS_read, equal(0, &from)?),
            (libc::SYS_pread64, equal(0, &from)?),
            (libc::SYS_recvfrom, plain_transfer(&from, &[0])?),
            (
                libc::SYS_sendto,
                plain_transfer(&from, &[0, numbered(libc::MSG_NOSIGNAL)])?,
            ),
            // Threads, and no processes.
            (libc::SYS_clone, equal(0, &THREADS.map(numbered))?),
            // Only to itself: how a process aborts.
            (libc::SYS_tgkill, equal(0, &[own])?),
            (libc::SYS_fcntl, equal(1, &seals)?),
            (libc::SYS_ioctl, equal(1, &[PAGEMAP_SCAN])?),
            // Names of threads and of memory.
            (libc::SYS_prctl, equal(0, &names)?),
        ]
        .map(|(call, rules)| (number(call), rules)),
    ))
}

/// A call's number as the filter has it. It has fewer bits on other machines.
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

/// From or to these descriptors with one of these flags, and to no address.
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

/// One of these values.
fn equal(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>> {
    let rule = |&value: &u64| rule(vec![condition(argument, SeccompCmpOp::Eq, value)?]);
    values.iter().map(rule).collect()
}

/// A value of which these bits are so.
fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition> {
    condition(argument, SeccompCmpOp::MaskedEq(mask), value)
}

fn condition(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition> {
    // The kernel takes descriptors, commands and flags from the lower half of a register.
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value).map_err(cannot)
}

fn no_address(argument: u8) -> Result<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0).map_err(cannot)
}

/// All of these.
fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule> {
    SeccompRule::new(conditions).map_err(cannot)
}

fn apply(rules: Rules, mismatch: SeccompAction, matched: SeccompAction) -> Result<()> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(cannot)?;
    let filter = SeccompFilter::new(rules, mismatch, matched, arch).map_err(cannot)?;
    let program: seccompiler::BpfProgram = filter.try_into().map_err(cannot)?;
    apply_filter_all_threads(&program).map_err(cannot)
}
