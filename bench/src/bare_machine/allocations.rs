//! Counts allocations. A growing buffer counts each time it moves or grows.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);
/// A counter shared by all threads costs more than the allocation, so it stays off while time is measured over
/// several threads. This is the number of users that want it on.
static COUNTING: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Counting;

/// Counts until the value is dropped.
pub(crate) struct On;

pub(crate) fn on() -> On {
    COUNTING.fetch_add(1, Ordering::Relaxed);
    On
}

impl Drop for On {
    fn drop(&mut self) {
        COUNTING.fetch_sub(1, Ordering::Relaxed);
    }
}

fn one_more() {
    if COUNTING.load(Ordering::Relaxed) > 0 {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counted allocations of this process so far.
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

#[allow(unsafe_code, reason = "the trait is unsafe; every call goes unchanged to the system's allocator")]
// SAFETY: all four functions pass their arguments on to `System`, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        one_more();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        one_more();
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        one_more();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(block, layout, size) }
    }
}
