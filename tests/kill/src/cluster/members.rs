//! The three nodes of a world: which are alive, which are paused, and which one gets a command.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::mpsc::Sender;

use crate::chance::Chance;
use crate::node::Node;
use crate::process::{Process, ProcessOutput};
use crate::wire::{Command, Request};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberState {
    Lives,
    /// Stopped by a signal until the matrix lets it continue.
    Paused,
    /// Killed, but what it printed before has not been processed yet.
    Dying,
}

pub(super) struct Member {
    process: Process,
    pub(super) number: u32,
    pub(super) state: MemberState,
    /// Whether it has shown its state at least once.
    pub(super) is_up: bool,
    /// How many runs it had in memory when it last showed its state.
    pub(super) held_count: Option<usize>,
    /// The numbers of the commands it was sent.
    pub(super) told: BTreeSet<u64>,
}

impl Member {
    pub(super) fn start(
        program: &Path,
        node: &Node,
        complaints: &Path,
        listener: Sender<ProcessOutput>,
    ) -> io::Result<Self> {
        let process = Process::start(program, node, complaints, listener)?;
        Ok(Self {
            process,
            number: node.process,
            state: MemberState::Lives,
            is_up: false,
            held_count: None,
            told: BTreeSet::new(),
        })
    }

    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.state = MemberState::Dying;
        self.process.kill()
    }

    pub(super) fn pause(&mut self) -> io::Result<()> {
        self.state = MemberState::Paused;
        self.process.pause()
    }

    pub(super) fn resume(&mut self) -> io::Result<()> {
        self.state = MemberState::Lives;
        // Queued first, so that the process continues at its boundary before it notices how late it is.
        self.request(Request::Resume);
        self.process.resume()
    }

    /// Sends a command whose answer does not matter.
    pub(super) fn request(&mut self, request: Request) {
        self.process.send_command(&Command { number: 0, request });
    }

    pub(super) fn send_command(&mut self, command: &Command) {
        self.told.insert(command.number);
        self.process.send_command(command);
    }

    pub(super) fn exit_status(&mut self) -> String {
        self.process.wait()
    }
}

/// The seats of a world's nodes. When a process is gone, another takes its seat.
#[derive(Default)]
pub(super) struct Members(pub(super) Vec<Member>);

impl Members {
    pub(super) fn by_number(&mut self, number: u32) -> Option<(usize, &mut Member)> {
        self.0.iter_mut().enumerate().find(|(_, member)| member.number == number)
    }

    pub(super) fn living(&mut self) -> impl Iterator<Item = &mut Member> {
        self.0.iter_mut().filter(|member| member.state == MemberState::Lives)
    }

    pub(super) fn all_live(&self) -> bool {
        self.0.iter().all(|member| member.state == MemberState::Lives)
    }

    pub(super) fn all_are_up_or_paused(&self) -> bool {
        let is_there = |member: &Member| match member.state {
            MemberState::Lives => member.is_up,
            MemberState::Paused => true,
            MemberState::Dying => false,
        };
        self.0.iter().all(is_there)
    }

    pub(super) fn all_are_up(&self) -> bool {
        self.all_live() && self.0.iter().all(|member| member.is_up)
    }

    /// A random living node.
    pub(super) fn any(&mut self, chance: &mut Chance) -> Option<&mut Member> {
        let count = self.living().count() as u64;
        let chosen = usize::try_from(chance.below(count)).ok()?;
        self.living().nth(chosen)
    }
}
