//! The tape: every choice of a world is drawn from it and recorded, and can be replayed.
//!
//! A choice of 0 is always the simplest one, and a tape that has run out answers 0. So a story shrinks by deleting
//! choices and by setting them to 0.

/// Where the choices come from, and what has been chosen so far.
#[derive(Clone, Debug)]
pub struct Tape {
    source: Source,
    drawn: Vec<u32>,
}

#[derive(Clone, Debug)]
enum Source {
    Seed(SplitMix),
    Recorded(Vec<u32>),
}

impl Tape {
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self { source: Source::Seed(SplitMix(seed)), drawn: Vec::new() }
    }

    #[must_use]
    pub const fn recorded(choices: Vec<u32>) -> Self {
        Self { source: Source::Recorded(choices), drawn: Vec::new() }
    }

    /// What has been drawn so far.
    #[must_use]
    pub fn drawn(&self) -> &[u32] {
        &self.drawn
    }

    /// One of `n` possibilities. The first is the simplest.
    pub fn pick(&mut self, n: usize) -> usize {
        let n = u32::try_from(n.max(1)).unwrap_or(u32::MAX);
        let choice = match &mut self.source {
            Source::Seed(generator) => generator.next_below(n),
            // Taken modulo n, a choice stays valid when the ones before it are deleted.
            Source::Recorded(choices) => choices.get(self.drawn.len()).copied().unwrap_or(0) % n,
        };
        self.drawn.push(choice);
        choice as usize
    }

    /// True in `percent` of all cases. Never for the choice 0, unless it is certain.
    pub fn chance(&mut self, percent: usize) -> bool {
        match percent {
            0 => false,
            100.. => true,
            percent => self.pick(100) >= 100 - percent,
        }
    }

    pub fn one_of<T: Copy>(&mut self, options: &[T]) -> Option<T> {
        if options.is_empty() {
            return None;
        }
        options.get(self.pick(options.len())).copied()
    }

    /// One of a few options that the caller lists.
    pub fn among<T: Copy, const N: usize>(&mut self, options: [T; N]) -> T {
        options[self.pick(N)]
    }
}

/// A small generator with a good spread (Steele, Lea, Flood 2014). Independent of library versions.
#[derive(Clone, Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn next_below(&mut self, n: u32) -> u32 {
        // The high half times n, shifted down: no division, and the bias is far below what a world notices.
        let high = self.next() >> 32;
        u32::try_from((high * u64::from(n)) >> 32).unwrap_or(0)
    }
}

/// A seed for a part of a world whose content must not depend on when it happens.
#[must_use]
pub fn seed_for(seed: u64, what: &str, number: u64) -> u64 {
    let mut hash = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in what.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
    }
    SplitMix(hash).next()
}
