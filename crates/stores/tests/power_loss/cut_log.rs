//! The log is cut: at every frame, within frames, with garbage after the cut, and with a flipped byte.

use crate::disk::{Image, Part};
use crate::recording::Recording;
use crate::recovery_check::{Trial, assert_recovers};

const LOG_HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

struct Cuts {
    image: Image,
    frame_bytes: usize,
}

impl Cuts {
    fn of(recording: &Recording) -> Self {
        let image = Image::of(&recording.folder.file());
        let log = image.part(Part::Log);
        let page: [u8; 4] = log[8..12].try_into().expect("four bytes");
        Self { frame_bytes: FRAME_HEADER_BYTES + u32::from_be_bytes(page) as usize, image }
    }

    fn log(&self) -> &[u8] {
        self.image.part(Part::Log)
    }

    /// The end of every frame, and the beginning of the first.
    fn ends(&self) -> impl Iterator<Item = usize> + use<> {
        (LOG_HEADER_BYTES..=self.log().len()).step_by(self.frame_bytes)
    }

    fn with_log(&self, log: Vec<u8>) -> Image {
        self.image.with(Part::Log, log)
    }
}

/// A recording whose log was never copied into the file.
async fn recorded() -> Recording {
    let recording = Recording::begin();
    recording.approved_run("first").await;
    recording.run_with_a_child("parent").await;
    recording.concurrent_runs("crowd", 3, 1).await;
    recording.ends_of("crowd_01", "crowd_02").await;
    recording
}

#[tokio::test]
async fn a_log_that_ends_after_any_frame_holds_what_was_acknowledged_by_then() {
    let recording = recorded().await;
    let (account, cuts) = (recording.account().await, Cuts::of(&recording));
    let mut most = 0;
    for (index, end) in cuts.ends().enumerate() {
        let promised = recording.ledger.promised_by(end);
        let trial = if index % 4 == 0 { Trial::Resume } else { Trial::Read };
        let image = cuts.with_log(cuts.log()[..end].to_vec());
        assert_recovers(&format!("cut at {end}"), &image, &account, promised, trial).await;
        most = promised;
    }
    assert_eq!(most, recording.ledger.promise_count(), "the last cut comes after every promise");
}

#[tokio::test]
async fn a_frame_that_is_torn_or_followed_by_garbage_costs_nothing_that_was_acknowledged() {
    let recording = recorded().await;
    let (account, cuts) = (recording.account().await, Cuts::of(&recording));
    for (index, end) in cuts.ends().enumerate() {
        let promised = recording.ledger.promised_by(end);
        let log = &cuts.log()[..end];
        let next = &cuts.log()[end..cuts.log().len().min(end + cuts.frame_bytes)];
        let torn = [log, &next[..next.len() * (index % 5 + 1) / 6]].concat();
        let garbage: Vec<u8> = (0..2 * cuts.frame_bytes).map(|at| (at * 31 + index) as u8).collect();
        let variants = [("torn", torn), ("garbage", [log, &garbage].concat())];
        let (what, bytes) = variants.into_iter().nth(index % 2).expect("one of two");
        let context = format!("{what} after {end}");
        assert_recovers(&context, &cuts.with_log(bytes), &account, promised, Trial::Read).await;
    }
}

#[tokio::test]
async fn a_byte_that_flipped_in_the_log_ends_it_there_and_leaves_no_half_of_a_commit() {
    let recording = recorded().await;
    let (account, cuts) = (recording.account().await, Cuts::of(&recording));
    for (index, end) in cuts.ends().enumerate().skip(1) {
        let mut log = cuts.log().to_vec();
        log[end - cuts.frame_bytes + (index * 911) % cuts.frame_bytes] ^= 0x10;
        // A disk that reported a sync and still corrupted data: everything before the flipped frame is intact.
        let promised = recording.ledger.promised_by(end - cuts.frame_bytes);
        let context = format!("a flipped byte before {end}");
        assert_recovers(&context, &cuts.with_log(log), &account, promised, Trial::Read).await;
    }
}
