//! Reproducible random numbers: the same seed gives the same sequence.

/// SplitMix64: small, and good enough to choose moments.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    #[must_use]
    pub const fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `bound`. Zero if `bound` is zero.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.number() % bound }
    }

    pub const fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            list.swap(last, other);
        }
    }
}

#[test]
fn a_seed_draws_the_same_numbers_again_and_another_seed_others() {
    let drawn = |seed| {
        let mut chance = Chance::from_seed(seed);
        (0..8).map(|_| chance.below(1_000)).collect::<Vec<_>>()
    };
    assert_eq!(drawn(7), drawn(7));
    assert_ne!(drawn(7), drawn(8));
}
