//! A simulated disk: it records every write in order. Writes that were never synced may be lost, kept or torn.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which file of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    Main,
    Log,
    /// The rollback journal, which exists only while the file is being created.
    Journal,
}

impl Part {
    pub(crate) const ALL: [Self; 3] = [Self::Main, Self::Log, Self::Journal];

    fn suffix(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Log => "-wal",
            Self::Journal => "-journal",
        }
    }

    pub(crate) fn path(self, main: &Path) -> PathBuf {
        let mut name = main.as_os_str().to_owned();
        name.push(self.suffix());
        PathBuf::from(name)
    }
}

/// One operation on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Write {
        part: Part,
        at: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        part: Part,
        len: usize,
    },
    /// Until the folder is synced, a power loss may restore the deleted file with its content.
    Delete {
        part: Part,
    },
    Sync {
        part: Part,
    },
    /// Makes all earlier deletions durable.
    SyncFolder,
    /// The system reports the failure once, and from then on treats the pending writes as written.
    SyncFailed {
        part: Part,
    },
    /// `count` promises have been made by now.
    Acknowledged {
        count: usize,
    },
}

/// An operation that SQLite requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Write { part: Part, at: usize, len: usize },
    Truncate { part: Part },
    Sync { part: Part },
}

/// How the disk answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// The disk is full: only the first `written` bytes are written.
    Full {
        written: usize,
    },
    /// The device reports an error.
    Fails,
}

pub(crate) type Faults = dyn FnMut(Request) -> Outcome + Send;

/// The disk of one store. It records every operation of SQLite on the files of the store.
#[derive(Default)]
pub(crate) struct Disk(Mutex<State>);

#[derive(Default)]
struct State {
    ops: Vec<Op>,
    faults: Option<Box<Faults>>,
}

/// The disks, by the path of the main file: SQLite passes only paths.
static DISKS: Mutex<BTreeMap<PathBuf, Arc<Disk>>> = Mutex::new(BTreeMap::new());

impl Disk {
    /// Creates a disk for the file with this path and registers it.
    pub(crate) fn under(main: &Path) -> Arc<Self> {
        crate::vfs::register();
        let disk = Arc::new(Self::default());
        // The store resolves symbolic links before it opens the file.
        let folder = main.parent().expect("a file is in a folder").canonicalize().expect("the folder exists");
        let main = folder.join(main.file_name().expect("a file has a name"));
        DISKS.lock().unwrap_or_else(PoisonError::into_inner).insert(main, disk.clone());
        disk
    }

    pub(crate) fn find(path: &Path) -> Option<(Arc<Self>, Part)> {
        let disks = DISKS.lock().unwrap_or_else(PoisonError::into_inner);
        let name = path.to_str()?;
        Part::ALL.into_iter().rev().find_map(|part| {
            let main = name.strip_suffix(part.suffix())?;
            Some((disks.get(Path::new(main))?.clone(), part))
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, op: Op) {
        self.state().ops.push(op);
    }

    /// Decides the outcome of the next request of SQLite.
    pub(crate) fn outcome(&self, request: Request) -> Outcome {
        self.state().faults.as_mut().map_or(Outcome::Done, |faults| faults(request))
    }

    pub(crate) fn fail(&self, faults: impl FnMut(Request) -> Outcome + Send + 'static) {
        self.state().faults = Some(Box::new(faults));
    }

    pub(crate) fn stop_failing(&self) {
        self.state().faults = None;
    }

    pub(crate) fn ops(&self) -> Vec<Op> {
        self.state().ops.clone()
    }

    /// Whether such an operation was recorded after the first `after` operations.
    pub(crate) fn has_seen(&self, after: usize, wanted: impl Fn(&Op) -> bool) -> bool {
        self.state().ops[after..].iter().any(wanted)
    }

    /// Continues the operations of another disk, after a process crash without power loss: the system still returns
    /// everything that the lost process wrote.
    pub(crate) fn continue_with(&self, ops: Vec<Op>) {
        self.state().ops = ops;
    }
}

/// What happens to the writes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsynced {
    Lost,
    Kept,
    /// Each sector is kept or lost at random, independently of the others.
    Torn {
        seed: u64,
    },
}

/// Bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// The content of the disk after some of its operations.
#[derive(Clone, Default)]
pub(crate) struct DiskState {
    synced: BTreeMap<Part, Vec<u8>>,
    pending: BTreeMap<Part, Vec<Op>>,
    /// Number of promises that were made by now.
    pub(crate) promised: usize,
}

/// The files of a store as a process finds them after a power loss.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Image(BTreeMap<Part, Vec<u8>>);

impl DiskState {
    pub(crate) fn record_op(&mut self, op: &Op) {
        match op {
            Op::Write { part, .. } | Op::Truncate { part, .. } | Op::Delete { part } => {
                self.pending.entry(*part).or_default().push(op.clone());
            }
            Op::Sync { part } => {
                let bytes = self.synced.entry(*part).or_default();
                for op in self.pending.remove(part).unwrap_or_default() {
                    apply(bytes, &op, |_| true);
                }
            }
            Op::SyncFolder => {
                for (part, pending) in &mut self.pending {
                    if let Some(last) = pending.iter().rposition(|op| matches!(op, Op::Delete { .. })) {
                        pending.drain(..=last);
                        self.synced.remove(part);
                    }
                }
            }
            Op::SyncFailed { part } => {
                self.pending.remove(part);
            }
            Op::Acknowledged { count } => self.promised = *count,
        }
    }

    pub(crate) fn has_pending(&self, part: Part) -> bool {
        self.pending.get(&part).is_some_and(|ops| !ops.is_empty())
    }

    /// The files that remain after a power loss.
    pub(crate) fn image(&self, main: Unsynced, log: Unsynced) -> Image {
        let fates = [(Part::Main, main), (Part::Log, log), (Part::Journal, main)];
        Image(fates.into_iter().map(|(part, unsynced)| (part, self.part(part, unsynced))).collect())
    }

    fn part(&self, part: Part, unsynced: Unsynced) -> Vec<u8> {
        let mut bytes = self.synced.get(&part).cloned().unwrap_or_default();
        let mut chance = match unsynced {
            Unsynced::Torn { seed } => seed | 1,
            Unsynced::Lost | Unsynced::Kept => 1,
        };
        for op in self.pending.get(&part).into_iter().flatten() {
            apply(&mut bytes, op, |_| match unsynced {
                Unsynced::Lost => false,
                Unsynced::Kept => true,
                Unsynced::Torn { .. } => {
                    chance ^= chance << 13;
                    chance ^= chance >> 7;
                    chance ^= chance << 17;
                    chance & 3 != 0
                }
            });
        }
        bytes
    }
}

fn apply(bytes: &mut Vec<u8>, op: &Op, mut reaches_the_disk: impl FnMut(usize) -> bool) {
    match op {
        Op::Write { at, bytes: written, .. } => {
            let mut from = 0;
            while from < written.len() {
                let to = written.len().min((*at + from) / SECTOR * SECTOR + SECTOR - *at);
                if reaches_the_disk(*at + from) {
                    bytes.resize(bytes.len().max(*at + to), 0);
                    bytes[*at + from..*at + to].copy_from_slice(&written[from..to]);
                }
                from = to;
            }
        }
        Op::Truncate { len, .. } => {
            if reaches_the_disk(*len) {
                bytes.resize(*len, 0);
            }
        }
        Op::Delete { .. } => {
            if reaches_the_disk(0) {
                bytes.clear();
            }
        }
        Op::Sync { .. } | Op::SyncFolder | Op::SyncFailed { .. } | Op::Acknowledged { .. } => {}
    }
}

impl Image {
    pub(crate) fn of(main: &Path) -> Self {
        Self(
            Part::ALL.into_iter().map(|part| (part, fs::read(part.path(main)).unwrap_or_default())).collect(),
        )
    }

    pub(crate) fn part(&self, part: Part) -> &[u8] {
        &self.0[&part]
    }

    pub(crate) fn with(&self, part: Part, bytes: Vec<u8>) -> Self {
        let mut image = self.clone();
        image.0.insert(part, bytes);
        image
    }

    pub(crate) fn write_to(&self, main: &Path) {
        for (part, bytes) in &self.0 {
            if *part == Part::Main || !bytes.is_empty() {
                fs::write(part.path(main), bytes).expect("a scratch folder can be written");
            }
        }
    }
}
