//! Chance from a seed: the same seed makes the same choices on every machine.

pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) const fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// Sebastiano Vigna's splitmix64.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// At least 0 and less than `end`.
    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) const fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    pub(crate) fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        let index = self.index(from.len());
        &from[index]
    }

    pub(crate) fn small(&mut self) -> u32 {
        u32::try_from(self.below(4)).unwrap()
    }

    /// Sometimes something, sometimes nothing.
    pub(crate) fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.one_in(2) { Some(make(self)) } else { None }
    }

    pub(crate) fn some<T>(&mut self, at_most: u64, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.below(at_most + 1);
        (0..count).map(|_| make(self)).collect()
    }
}
