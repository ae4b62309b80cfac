//! A SQLite VFS that reports every operation on a store's files to their [`Disk`], and fails an operation if the disk
//! refuses it.
//!
//! The shim wraps the system's own files and is the default VFS of this process, so that the store opens its file as
//! usual. Nothing is really synced: the [`Disk`] decides what a machine would keep.
#![allow(unsafe_code, reason = "SQLite takes a VFS only as tables of C functions")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::slice;
use std::sync::{Arc, Once};

use rusqlite::ffi::{
    SQLITE_FULL, SQLITE_IOERR_FSYNC, SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_WRITE, SQLITE_OK, sqlite3_file,
    sqlite3_int64, sqlite3_io_methods, sqlite3_vfs, sqlite3_vfs_find, sqlite3_vfs_register,
};

use crate::disk::{Disk, Op, Outcome, Part, Request};

/// Wraps the system's own file, which follows it in the same block of memory.
#[repr(C)]
struct Shim {
    base: sqlite3_file,
    /// Null for a file that belongs to no store, such as one without a name.
    recorded: *mut Recorded,
}

struct Recorded {
    disk: Arc<Disk>,
    part: Part,
    /// The first sync of a log or a journal also syncs its folder, so that the file's name is durable, as the system's
    /// own VFS does it.
    folder_synced: Cell<bool>,
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 3,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: Some(fetch),
    xUnfetch: Some(unfetch),
};

/// Registers the VFS, once per process.
pub(crate) fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the system's own table lives as long as the process, and so does the leaked copy. The functions
        // that are not replaced in the copy are the system's; they use only those fields of the table that are copied.
        unsafe {
            let system = sqlite3_vfs_find(std::ptr::null());
            let mut vfs = *system;
            vfs.zName = c"recorded".as_ptr();
            vfs.szOsFile += c_int::try_from(size_of::<Shim>()).expect("a small struct");
            vfs.xOpen = Some(open);
            vfs.xDelete = Some(delete);
            assert_eq!(sqlite3_vfs_register(Box::leak(Box::new(vfs)), 1), SQLITE_OK);
        }
    });
}

// SAFETY for all that follows: SQLite calls each function with a file that `open` has made, from one thread at a time,
// and never after `close`.

/// The system's own VFS, which ours wraps.
unsafe fn system() -> *mut sqlite3_vfs {
    let name = if cfg!(windows) { c"win32" } else { c"unix" };
    unsafe { sqlite3_vfs_find(name.as_ptr()) }
}

unsafe fn path<'p>(name: *const c_char) -> Option<&'p Path> {
    if name.is_null() {
        return None;
    }
    unsafe { CStr::from_ptr(name) }.to_str().ok().map(Path::new)
}

unsafe fn inner(file: *mut sqlite3_file) -> *mut sqlite3_file {
    unsafe { file.cast::<Shim>().add(1).cast() }
}

unsafe fn recorded<'f>(file: *mut sqlite3_file) -> Option<&'f Recorded> {
    unsafe { (*file.cast::<Shim>()).recorded.as_ref() }
}

unsafe extern "C" fn open(
    _vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    unsafe {
        let shim = file.cast::<Shim>();
        (*shim).base.pMethods = std::ptr::null();
        (*shim).recorded = std::ptr::null_mut();
        let behind = inner(file);
        let system = system();
        let result = (*system).xOpen.expect("a file can be opened")(system, name, behind, flags, out_flags);
        if result == SQLITE_OK {
            if let Some((disk, part)) = path(name).and_then(Disk::find) {
                let folder_synced = Cell::new(part == Part::Main);
                (*shim).recorded = Box::into_raw(Box::new(Recorded { disk, part, folder_synced }));
            }
            (*shim).base.pMethods = &METHODS;
        }
        result
    }
}

unsafe extern "C" fn delete(_vfs: *mut sqlite3_vfs, name: *const c_char, sync_folder: c_int) -> c_int {
    unsafe {
        let system = system();
        let result = (*system).xDelete.expect("a file can be deleted")(system, name, sync_folder);
        if result == SQLITE_OK
            && let Some((disk, part)) = path(name).and_then(Disk::find)
        {
            disk.record(Op::Delete { part });
            if sync_folder != 0 {
                disk.record(Op::SyncFolder);
            }
        }
        result
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    unsafe {
        let recorded = (*file.cast::<Shim>()).recorded;
        if !recorded.is_null() {
            drop(Box::from_raw(recorded));
        }
        let behind = inner(file);
        (*(*behind).pMethods).xClose.expect("a file can be closed")(behind)
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    amount: c_int,
    at: sqlite3_int64,
) -> c_int {
    unsafe {
        let behind = inner(file);
        let system_write = (*(*behind).pMethods).xWrite.expect("a file can be written");
        let Some(Recorded { disk, part, .. }) = recorded(file) else {
            return system_write(behind, from, amount, at);
        };
        let len = usize::try_from(amount).expect("an amount is not negative");
        let offset = usize::try_from(at).expect("an offset is not negative");
        let (written, answer) = match disk.outcome(Request::Write { part: *part, at: offset, len }) {
            Outcome::Done => (len, SQLITE_OK),
            Outcome::Full { written } => (written.min(len), SQLITE_FULL),
            Outcome::Fails => (0, SQLITE_IOERR_WRITE),
        };
        if written > 0 {
            let result =
                system_write(behind, from, c_int::try_from(written).expect("no more than asked"), at);
            if result != SQLITE_OK {
                return result;
            }
            let bytes = slice::from_raw_parts(from.cast::<u8>(), written).to_vec();
            disk.record(Op::Write { part: *part, at: offset, bytes });
        }
        answer
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, len: sqlite3_int64) -> c_int {
    unsafe {
        let behind = inner(file);
        let system_truncate = (*(*behind).pMethods).xTruncate.expect("a file can be truncated");
        let Some(Recorded { disk, part, .. }) = recorded(file) else { return system_truncate(behind, len) };
        match disk.outcome(Request::Truncate { part: *part }) {
            Outcome::Done => {}
            Outcome::Full { .. } | Outcome::Fails => return SQLITE_IOERR_TRUNCATE,
        }
        let result = system_truncate(behind, len);
        if result == SQLITE_OK {
            let len = usize::try_from(len).expect("a length is not negative");
            disk.record(Op::Truncate { part: *part, len });
        }
        result
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, _flags: c_int) -> c_int {
    let Some(Recorded { disk, part, folder_synced }) = (unsafe { recorded(file) }) else { return SQLITE_OK };
    match disk.outcome(Request::Sync { part: *part }) {
        Outcome::Done => {
            disk.record(Op::Sync { part: *part });
            if !folder_synced.replace(true) {
                disk.record(Op::SyncFolder);
            }
            SQLITE_OK
        }
        Outcome::Full { .. } | Outcome::Fails => {
            disk.record(Op::SyncFailed { part: *part });
            SQLITE_IOERR_FSYNC
        }
    }
}

/// Forwards a call unchanged to the system's own file.
macro_rules! pass_on {
    ($($name:ident = $method:ident($($argument:ident: $type:ty),*);)*) => {
        $(unsafe extern "C" fn $name(file: *mut sqlite3_file $(, $argument: $type)*) -> c_int {
            unsafe {
                let behind = inner(file);
                (*(*behind).pMethods).$method.expect("the system's files have every method")(
                    behind $(, $argument)*
                )
            }
        })*
    };
}

pass_on! {
    read = xRead(to: *mut c_void, amount: c_int, at: sqlite3_int64);
    file_size = xFileSize(size: *mut sqlite3_int64);
    lock = xLock(level: c_int);
    unlock = xUnlock(level: c_int);
    check_reserved_lock = xCheckReservedLock(held: *mut c_int);
    file_control = xFileControl(op: c_int, argument: *mut c_void);
    sector_size = xSectorSize();
    device_characteristics = xDeviceCharacteristics();
    shm_map = xShmMap(page: c_int, size: c_int, extend: c_int, to: *mut *mut c_void);
    shm_lock = xShmLock(offset: c_int, count: c_int, flags: c_int);
    shm_unmap = xShmUnmap(delete: c_int);
    fetch = xFetch(at: sqlite3_int64, amount: c_int, to: *mut *mut c_void);
    unfetch = xUnfetch(at: sqlite3_int64, from: *mut c_void);
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    unsafe {
        let behind = inner(file);
        (*(*behind).pMethods).xShmBarrier.expect("the system's files have every method")(behind);
    }
}
