//! Texts and bytes that are almost right: something good out of a corpus, changed in a few places.

use super::chance::Chance;

/// One of the corpus, changed up to six times; sometimes not at all.
pub(crate) fn mutated(chance: &mut Chance, corpus: &[&[u8]], pieces: &[&str]) -> Vec<u8> {
    let mut bytes = chance.pick(corpus).to_vec();
    for _ in 0..chance.below(7) {
        mutate(chance, &mut bytes, corpus, pieces);
    }
    bytes
}

fn mutate(chance: &mut Chance, bytes: &mut Vec<u8>, corpus: &[&[u8]], pieces: &[&str]) {
    let at = chance.index(bytes.len() + 1);
    let to = at + chance.index(bytes.len() - at + 1);
    match chance.below(8) {
        0 => bytes.truncate(at),
        1 => {
            let byte = u8::try_from(chance.below(256)).expect("a byte");
            bytes.insert(at, byte);
        }
        2 if !bytes.is_empty() => {
            let place = chance.index(bytes.len());
            bytes[place] ^= 1 << chance.below(8);
        }
        // Something of another case in the middle of this one.
        3 => {
            let other = chance.pick(corpus);
            let from = chance.index(other.len() + 1);
            let until = from + chance.index(other.len() - from + 1);
            bytes.splice(at..at, other[from..until].iter().copied());
        }
        4 => drop(bytes.drain(at..to)),
        5 => {
            let again = bytes[at..to].to_vec();
            bytes.splice(at..at, again);
        }
        _ => {
            let piece = chance.pick(pieces).as_bytes();
            let end = if chance.one_in(2) { at } else { to };
            bytes.splice(at..end, piece.iter().copied());
        }
    }
}
