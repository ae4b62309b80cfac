//! The boundary at which a process halts, as a command-line argument.

use std::fmt;
use std::str::FromStr;

use crate::wire::{Boundary, Operation, Side};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its nth boundary of any kind.
    At(u64),
    /// Its nth boundary of this kind, counted from 1.
    Nth { boundary: Boundary, nth: u64 },
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(number) => write!(f, "{number}"),
            Self::Nth { boundary: Boundary { side, operation }, nth } => {
                write!(f, "{}-{}-{nth}", side.as_str(), operation.as_str())
            }
        }
    }
}

impl FromStr for Stop {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        let parts: Vec<&str> = text.split('-').collect();
        match parts[..] {
            [count] => Ok(Self::At(number(count)?)),
            [side, operation, nth] => {
                let sides = [Side::Before, Side::After];
                let side = sides.into_iter().find(|known| known.as_str() == side);
                let operation = Operation::ALL.into_iter().find(|known| known.as_str() == operation);
                let (Some(side), Some(operation)) = (side, operation) else {
                    return Err(format!("{text} is no boundary"));
                };
                Ok(Self::Nth { boundary: Boundary { side, operation }, nth: number(nth)? })
            }
            _ => Err(format!("{text} is neither a number nor SIDE-PASSAGE-NTH")),
        }
    }
}

#[test]
fn a_stop_that_is_written_is_read_again() {
    for text in ["17", "after-append-2", "before-put_revision-1", "after-start-1"] {
        assert_eq!(text.parse::<Stop>().map(|stop| stop.to_string()).as_deref(), Ok(text));
    }
    for bad in ["", "x", "after-append", "beside-append-1", "after-gone-1", "after-append-x"] {
        assert!(bad.parse::<Stop>().is_err(), "{bad}");
    }
}
