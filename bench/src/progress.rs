//! Progress of the measurements on stderr: a bar on a terminal, otherwise a line for each phase.

use std::io::{self, IsTerminal, Write};

const BAR_WIDTH: usize = 20;

pub(crate) struct Progress {
    shown: Shown,
    piece: String,
    piece_number: usize,
    piece_count: usize,
}

enum Shown {
    Bar,
    Lines,
    #[cfg(test)]
    Nothing,
}

impl Progress {
    pub(crate) fn to_stderr() -> Self {
        Self::new(if io::stderr().is_terminal() { Shown::Bar } else { Shown::Lines })
    }

    #[cfg(test)]
    pub(crate) const fn silent() -> Self {
        Self::new(Shown::Nothing)
    }

    const fn new(shown: Shown) -> Self {
        Self { shown, piece: String::new(), piece_number: 0, piece_count: 0 }
    }

    pub(crate) const fn expect_pieces(&mut self, count: usize) {
        self.piece_count = count;
    }

    /// Starts the next piece of work.
    pub(crate) fn begin(&mut self, piece: String) {
        self.piece_number += 1;
        self.piece = piece;
    }

    /// Reports the current phase.
    pub(crate) fn phase(&self, what: &str) {
        let (piece, number, count) = (&self.piece, self.piece_number, self.piece_count);
        match self.shown {
            Shown::Lines => eprintln!("bench: {piece}: {what}"),
            Shown::Bar => {
                let full = (BAR_WIDTH * number.saturating_sub(1)).checked_div(count).unwrap_or(0);
                let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR_WIDTH.saturating_sub(full)));
                // Returns to the first column and clears what the last phase wrote.
                eprint!("\r\x1b[2K[{bar}] {number}/{count} {piece}: {what}");
                // A failure to show the bar must not stop the measurement.
                let _ = io::stderr().flush();
            }
            #[cfg(test)]
            Shown::Nothing => {}
        }
    }

    pub(crate) fn finish(&self) {
        match self.shown {
            Shown::Bar => eprint!("\r\x1b[2K"),
            Shown::Lines => {}
            #[cfg(test)]
            Shown::Nothing => {}
        }
    }
}
