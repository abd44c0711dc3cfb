//! Lanes as fibers: the records that the compiled text shares with the emulator, stacks, and the switch between them.

use crate::error::EmulatorError;
use crate::memory::Pages;
use std::ffi::c_void;

/// Lanes of a simdgroup on every chip that we know.
pub(crate) const SIMDGROUP: u32 = 32;

/// What lanes meet for, in the order of the header's `Kind`.
pub(crate) const OPERATIONS: [&str; 26] = [
    "the end of the kernel",
    "threadgroup_barrier",
    "simdgroup_barrier",
    "simd_sum",
    "simd_product",
    "simd_max",
    "simd_min",
    "simd_and",
    "simd_or",
    "simd_xor",
    "simd_all",
    "simd_any",
    "simd_ballot",
    "simd_shuffle",
    "simd_shuffle_xor",
    "simd_shuffle_down",
    "simd_shuffle_up",
    "simd_shuffle_rotate_down",
    "simd_shuffle_rotate_up",
    "simd_broadcast",
    "simd_broadcast_first",
    "simd_prefix_exclusive_sum",
    "simd_prefix_inclusive_sum",
    "simdgroup_load",
    "simdgroup_store",
    "simdgroup_multiply_accumulate",
];
pub(crate) const FINISH: u32 = 0;
pub(crate) const THREADGROUP_BARRIER: u32 = 1;
pub(crate) const SIMDGROUP_BARRIER: u32 = 2;

pub(crate) fn operation(kind: u32) -> &'static str {
    OPERATIONS.get(kind as usize).copied().unwrap_or("an unknown operation")
}

/// `lithos::Grid`.
#[repr(C)]
pub(crate) struct Grid {
    pub(crate) run: *mut c_void,
    pub(crate) buffers: [*mut u8; 32],
    pub(crate) threadgroup_arguments: [u32; 32],
    pub(crate) threadgroups: [u32; 3],
    pub(crate) threads: [u32; 3],
}

/// `lithos::Group`.
#[repr(C)]
pub(crate) struct Group {
    pub(crate) grid: *const Grid,
    pub(crate) memory: *mut u8,
    pub(crate) position: [u32; 3],
    pub(crate) simdgroups: u32,
}

/// `lithos::Lane`.
#[repr(C)]
pub(crate) struct Lane {
    pub(crate) stack: *mut u8,
    pub(crate) simdgroup: *mut Simdgroup,
    pub(crate) next: *mut Lane,
    pub(crate) index: u32,
    pub(crate) parity: u32,
    pub(crate) thread_index: u32,
    pub(crate) simdgroup_index: u32,
}

/// `lithos::Exchange`.
#[repr(C, align(32))]
pub(crate) struct Exchange {
    pub(crate) arrived: u32,
    pub(crate) kind: u32,
    pub(crate) line: u32,
    pub(crate) ready: u32,
    padding: [u32; 4],
    slots: [[u8; 32]; 32],
    result: [u8; 256],
}

/// `lithos::Simdgroup`, and after it what only the scheduler knows.
#[repr(C, align(32))]
pub(crate) struct Simdgroup {
    pub(crate) exchange: [Exchange; 2],
    pub(crate) group: *mut Group,
    pub(crate) width: u32,
    pub(crate) index: u32,
    /// The lane that goes on when the simdgroup does.
    pub(crate) current: *mut Lane,
    /// Index of the slot of its threadgroup.
    pub(crate) slot: usize,
    /// Index of its threadgroup in the grid.
    pub(crate) threadgroup: u32,
    pub(crate) state: State,
    /// Where it is in the list of its state.
    pub(crate) position: usize,
    /// What it waits for, while it spins: address and line.
    pub(crate) waits: (usize, u32),
}

/// What a simdgroup is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Can go on.
    Active,
    /// Can go on, but has just looked at an atomic variable and may have to look again.
    Spinning,
    /// Waits for the other simdgroups of its threadgroup at this line.
    AtBarrier(u32),
    /// Has returned.
    Finished,
}

/// `lithos::Runtime`.
#[repr(C)]
pub(crate) struct Runtime {
    pub(crate) switch_stack: unsafe extern "C" fn(*mut *mut u8, *mut u8),
    pub(crate) complete: unsafe extern "C" fn(*mut Lane, u32, u32),
    pub(crate) barrier: unsafe extern "C" fn(*mut Lane, u32, u32),
    pub(crate) finish: unsafe extern "C" fn(*mut Lane),
    pub(crate) divergent: unsafe extern "C" fn(*mut Lane, u32, u32),
    pub(crate) absent_lane: unsafe extern "C" fn(*mut Lane, u32, u32),
    pub(crate) atomic: unsafe extern "C" fn(*mut Lane, usize, u32, u32, u32, u32),
    pub(crate) changed: unsafe extern "C" fn(*mut Lane),
    pub(crate) fence: unsafe extern "C" fn(*mut Lane, u32, u32, u32),
    pub(crate) access: unsafe extern "C" fn(*mut Lane, usize, usize, u32, usize),
}

/// `lithos::Variable`.
#[repr(C)]
pub(crate) struct VariableRecord {
    pub(crate) kernel: u32,
    pub(crate) variable: u32,
    pub(crate) size: u64,
    pub(crate) alignment: u64,
    pub(crate) offset: *mut u64,
}

impl Default for Exchange {
    fn default() -> Self {
        Self {
            arrived: 0,
            kind: 0,
            line: 0,
            ready: 0,
            padding: [0; 4],
            slots: [[0; 32]; 32],
            result: [0; 256],
        }
    }
}

/// Stacks for lanes, each above a page that cannot be touched.
pub(crate) struct Stacks {
    pages: Pages,
    count: usize,
}

const STACK: usize = 128 << 10;
const STACK_GUARD: usize = 4 << 10;

impl Stacks {
    pub(crate) fn new(count: usize) -> Result<Self, EmulatorError> {
        let purpose = "the stacks of the lanes";
        let pages = Pages::reserve(count.max(1) * (STACK + STACK_GUARD), purpose)?;
        for i in 0..count {
            let at = i * (STACK + STACK_GUARD);
            pages.protect(at, STACK_GUARD, libc::PROT_NONE, purpose)?;
        }
        Ok(Self { pages, count })
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        let start = self.pages.start() as usize;
        start..start + self.pages.mapped()
    }

    /// Prepares stack `index` so that a switch to the result calls `entry(lane)`, which must not return.
    ///
    /// # Safety
    ///
    /// No fiber that is to go on may use the stack.
    pub(crate) unsafe fn prepare(
        &self,
        index: usize,
        entry: *const u8,
        lane: *mut Lane,
    ) -> *mut u8 {
        assert!(index < self.count);
        // Lanes start at different places of a page, or all their first lines would fall on the same lines of the
        // processor's cache.
        let stagger = index % 32 * 448 % 4096;
        let top = (index + 1) * (STACK + STACK_GUARD) - 64 - stagger;
        // SAFETY: the words lie within stack `index`.
        unsafe {
            let top = self.pages.start().add(top / 64 * 64).cast::<usize>();
            let frame = top.sub(INITIAL_WORDS);
            for i in 0..INITIAL_WORDS {
                frame.add(i).write(0);
            }
            frame.add(ENTRY_WORD).write(entry as usize);
            frame.add(LANE_WORD).write(lane as usize);
            frame.add(RETURN_WORD).write(begin as *const () as usize);
            frame.cast()
        }
    }
}

#[cfg(target_arch = "x86_64")]
const INITIAL_WORDS: usize = 8;
#[cfg(target_arch = "x86_64")]
const ENTRY_WORD: usize = 0;
#[cfg(target_arch = "x86_64")]
const LANE_WORD: usize = 1;
#[cfg(target_arch = "x86_64")]
const RETURN_WORD: usize = 6;

/// Keeps the running fiber's place in `*save` and goes on at `to`.
///
/// # Safety
///
/// `to` must come from [`Stacks::prepare`] or from an earlier switch that was not resumed yet.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch_stack(save: *mut *mut u8, to: *mut u8) {
    // The jump instead of a return spares the processor a wrong guess: it predicts returns by its calls.
    core::arch::naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "pop rcx",
        "jmp rcx",
    )
}

/// The first code of a fiber: calls the entry with the lane.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn begin() {
    core::arch::naked_asm!("and rsp, -16", "mov rdi, r14", "call r15", "ud2")
}

#[cfg(target_arch = "aarch64")]
const INITIAL_WORDS: usize = 20;
#[cfg(target_arch = "aarch64")]
const ENTRY_WORD: usize = 0;
#[cfg(target_arch = "aarch64")]
const LANE_WORD: usize = 1;
#[cfg(target_arch = "aarch64")]
const RETURN_WORD: usize = 11;

/// Keeps the running fiber's place in `*save` and goes on at `to`.
///
/// # Safety
///
/// `to` must come from [`Stacks::prepare`] or from an earlier switch that was not resumed yet.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch_stack(save: *mut *mut u8, to: *mut u8) {
    core::arch::naked_asm!(
        "sub sp, sp, 160",
        "stp x19, x20, [sp, 0]",
        "stp x21, x22, [sp, 16]",
        "stp x23, x24, [sp, 32]",
        "stp x25, x26, [sp, 48]",
        "stp x27, x28, [sp, 64]",
        "stp x29, x30, [sp, 80]",
        "stp d8, d9, [sp, 96]",
        "stp d10, d11, [sp, 112]",
        "stp d12, d13, [sp, 128]",
        "stp d14, d15, [sp, 144]",
        "mov x9, sp",
        "str x9, [x0]",
        "mov sp, x1",
        "ldp x19, x20, [sp, 0]",
        "ldp x21, x22, [sp, 16]",
        "ldp x23, x24, [sp, 32]",
        "ldp x25, x26, [sp, 48]",
        "ldp x27, x28, [sp, 64]",
        "ldp x29, x30, [sp, 80]",
        "ldp d8, d9, [sp, 96]",
        "ldp d10, d11, [sp, 112]",
        "ldp d12, d13, [sp, 128]",
        "ldp d14, d15, [sp, 144]",
        "add sp, sp, 160",
        "br x30",
    )
}

/// The first code of a fiber: calls the entry with the lane.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn begin() {
    core::arch::naked_asm!("mov x0, x20", "blr x19", "brk 1")
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Mutex;
    use std::sync::atomic::{AtomicPtr, Ordering};

    static HOME: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
    static STEPS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

    unsafe extern "C" fn body(lane: *mut Lane) {
        for _ in 0..3 {
            // SAFETY: the lane outlives its fiber, and `HOME` was set by the switch that came here.
            unsafe {
                STEPS.lock().unwrap().push((*lane).index);
                switch_stack(&raw mut (*lane).stack, HOME.load(Ordering::Relaxed));
            }
        }
    }

    #[test]
    fn fibers_take_turns() {
        let stacks = Stacks::new(2).unwrap();
        let mut lanes: Vec<Lane> = (0..2)
            .map(|index| Lane {
                stack: std::ptr::null_mut(),
                simdgroup: std::ptr::null_mut(),
                next: std::ptr::null_mut(),
                index,
                parity: 0,
                thread_index: 0,
                simdgroup_index: 0,
            })
            .collect();
        for (i, lane) in lanes.iter_mut().enumerate() {
            // SAFETY: nothing runs on the stack yet.
            lane.stack = unsafe { stacks.prepare(i, body as *const u8, lane) };
        }
        for turn in 0..6 {
            // SAFETY: each fiber is resumed where it last switched away.
            unsafe { switch_stack(HOME.as_ptr(), lanes[turn % 2].stack) };
        }
        assert_eq!(*STEPS.lock().unwrap(), [0, 1, 0, 1, 0, 1]);
    }
}
