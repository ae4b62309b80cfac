//! Shrinks a failing tape: deletes chunks of choices, then sets single choices to the simplest one.

/// How many shorter tapes may be tried.
pub const TRIES_MAX: usize = 12_000;

/// The shortest tape found that still fails. `fails` must be true for `choices`.
pub fn shrink(choices: &[u32], mut fails: impl FnMut(&[u32]) -> bool) -> Vec<u32> {
    let mut best = choices.to_vec();
    let mut tries = 0;
    loop {
        let before = best.clone();
        delete_chunks(&mut best, &mut tries, &mut fails);
        lower_choices(&mut best, &mut tries, &mut fails);
        drop_zeros_at_the_end(&mut best);
        if best == before || tries >= TRIES_MAX {
            return best;
        }
    }
}

fn delete_chunks(best: &mut Vec<u32>, tries: &mut usize, fails: &mut impl FnMut(&[u32]) -> bool) {
    let mut size = best.len().next_power_of_two() / 2;
    while size >= 1 {
        let mut start = best.len().saturating_sub(size);
        loop {
            let end = (start + size).min(best.len());
            if start < end && *tries < TRIES_MAX {
                let mut shorter = best.clone();
                shorter.drain(start..end);
                *tries += 1;
                if fails(&shorter) {
                    *best = shorter;
                }
            }
            if start == 0 {
                break;
            }
            start = start.saturating_sub(size);
        }
        size /= 2;
    }
}

fn lower_choices(best: &mut [u32], tries: &mut usize, fails: &mut impl FnMut(&[u32]) -> bool) {
    for place in 0..best.len() {
        if best[place] == 0 || *tries >= TRIES_MAX {
            continue;
        }
        let kept = best[place];
        best[place] = 0;
        *tries += 1;
        if !fails(best) {
            best[place] = kept;
        }
    }
}

/// A tape that has run out answers 0, so trailing zeros have no effect.
fn drop_zeros_at_the_end(best: &mut Vec<u32>) {
    while best.last() == Some(&0) {
        best.pop();
    }
}
