//! The three nodes of a world: who is there, who stands still, and to whom people speak.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::mpsc::Sender;

use crate::chance::Chance;
use crate::node::Node;
use crate::process::{Heard, Process};
use crate::wire::{Command, Wish};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Lives,
    /// It does nothing until it is told to go on.
    Paused,
    /// It was killed, and what it said before is not heard yet.
    Dying,
}

pub(super) struct Member {
    process: Process,
    pub(super) number: u32,
    pub(super) state: State,
    /// It has shown something.
    pub(super) is_up: bool,
    /// How many runs it had in memory when it last showed something.
    pub(super) held_count: Option<usize>,
    /// What it was told, by number.
    pub(super) told: BTreeSet<u64>,
}

impl Member {
    pub(super) fn start(
        program: &Path,
        node: &Node,
        complaints: &Path,
        listener: Sender<Heard>,
    ) -> io::Result<Self> {
        let process = Process::start(program, node, complaints, listener)?;
        Ok(Self {
            process,
            number: node.process,
            state: State::Lives,
            is_up: false,
            held_count: None,
            told: BTreeSet::new(),
        })
    }

    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.state = State::Dying;
        self.process.kill()
    }

    pub(super) fn pause(&mut self) -> io::Result<()> {
        self.state = State::Paused;
        self.process.pause()
    }

    pub(super) fn go_on(&mut self) -> io::Result<()> {
        self.state = State::Lives;
        // The first thing that it finds: it goes on where it stood before it notices how late it is.
        self.wish(Wish::GoOn);
        self.process.go_on()
    }

    /// Something whose answer nobody waits for.
    pub(super) fn wish(&mut self, wish: Wish) {
        self.process.say(&Command { number: 0, wish });
    }

    pub(super) fn say(&mut self, command: &Command) {
        self.told.insert(command.number);
        self.process.say(command);
    }

    pub(super) fn how_it_ended(&mut self) -> String {
        self.process.wait()
    }
}

/// The places of all nodes of a world; a process that is gone is followed by another in its place.
#[derive(Default)]
pub(super) struct Members(pub(super) Vec<Member>);

impl Members {
    pub(super) fn by_number(&mut self, number: u32) -> Option<(usize, &mut Member)> {
        self.0.iter_mut().enumerate().find(|(_, member)| member.number == number)
    }

    pub(super) fn living(&mut self) -> impl Iterator<Item = &mut Member> {
        self.0.iter_mut().filter(|member| member.state == State::Lives)
    }

    pub(super) fn all_live(&self) -> bool {
        self.0.iter().all(|member| member.state == State::Lives)
    }

    pub(super) fn all_are_up_or_paused(&self) -> bool {
        let is_there = |member: &Member| match member.state {
            State::Lives => member.is_up,
            State::Paused => true,
            State::Dying => false,
        };
        self.0.iter().all(is_there)
    }

    pub(super) fn all_are_up(&self) -> bool {
        self.all_live() && self.0.iter().all(|member| member.is_up)
    }

    /// Any that lives.
    pub(super) fn any(&mut self, chance: &mut Chance) -> Option<&mut Member> {
        let count = self.living().count() as u64;
        let chosen = usize::try_from(chance.below(count)).ok()?;
        self.living().nth(chosen)
    }
}
