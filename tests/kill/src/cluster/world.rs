//! One world of three nodes on one schema. Each command goes to a random node. One node is killed, paused or cut off
//! from its server, and the others continue. At the end the stored result is judged.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant as Moment};

use machine::id::RunId;

use super::ClusterSetup;
use super::disturbance::Disturbance;
use super::members::{Member, MemberState, Members};
use super::pausing::{OvertakenNode, PausedNode, Until};
use super::plan::{self, BEFORE_SENDING, ClusterCase, Instant, Trouble};
use super::reader;
use super::server_access::ServerAccess;
use crate::chance::Chance;
use crate::driven_process::KillPlace;
use crate::evidence::{Evidence, Holding, SharedStoreEvidence, Stored, Traces};
use crate::judge::{self, Rule, Violation, judge};
use crate::ledger;
use crate::node::Node;
use crate::people::People;
use crate::process::{Output, ProcessOutput};
use crate::proxy::Proxy;
use crate::server::Server;
use crate::stop::Stop;
use crate::store_at::{LEASE, LONG_LEASE, Schema, StoreAt};
use crate::tally::Tally;
use crate::wire::{Boundary, Line, Request};

const NODES: usize = 3;
/// No world needs this long; one that does is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// How often a node is asked for the current state: the node that knew it may be gone.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Everything that was due when the processes came back is done within this time.
const OUTAGE_EVERY: Duration = Duration::from_secs(3);
/// The result of one world.
#[derive(Debug)]
pub struct PlayedCluster {
    pub case: ClusterCase,
    pub kills: Vec<KillPlace>,
    /// What happened to it besides kills.
    pub disturbances: Vec<Disturbance>,
    pub violations: Vec<Violation>,
    pub people: People,
    pub evidence: Option<Evidence>,
    pub tally: Tally,
}

pub(super) struct ClusterWorld<'a> {
    pub(super) setup: &'a ClusterSetup,
    /// The store as the nodes reach it.
    store: StoreAt,
    /// The store as the test reads it: directly, without a proxy.
    pub(super) direct_store: StoreAt,
    pub(super) traces: Traces,
    pub(super) chance: Chance,
    pub(super) members: Members,
    lines: Receiver<ProcessOutput>,
    listener: Sender<ProcessOutput>,
    process_count: u32,
    /// How often time has passed while no process was running.
    outage_count: u32,
    /// Whether all nodes have come up, or are paused: from then on people send commands.
    is_open: bool,
    began: Moment,
    asked_at: Moment,
    /// When time last passed.
    passed_at: Option<Moment>,
    /// When the next trouble comes that does not wait for a boundary.
    due_at: Option<Moment>,
    pub(super) paused: Option<PausedNode>,
    pub(super) overtaken: Option<OvertakenNode>,
    /// The last known epoch of each run.
    pub(super) epochs: BTreeMap<RunId, u64>,
    server_access: ServerAccess,
    pub(super) shared_store: SharedStoreEvidence,
    pub(super) played: PlayedCluster,
}

/// Plays a world in its own folder, with the tables of this thread (`thread`). The folder is deleted afterwards unless
/// `keep` is set.
pub fn play(
    setup: &ClusterSetup,
    thread: usize,
    case: &ClusterCase,
    keep: bool,
) -> io::Result<PlayedCluster> {
    let number = setup.world_count.fetch_add(1, Ordering::Relaxed) + 1;
    let folder = setup.folder.join(format!("{number}-{}", case.story.name));
    std::fs::create_dir_all(&folder)?;
    let mut chance = Chance::from_seed(case.seed);
    // A crash affects every world on the server.
    let _alone = (case.trouble == Trouble::Crash).then(|| setup.crashing.lock());
    let server_access = ServerAccess::for_trouble(setup, case.trouble, &folder, &mut chance)?;
    let is_undisturbed = case.trouble == Trouble::Nothing && case.story.outage.is_zero();
    let lease = if is_undisturbed { LONG_LEASE } else { LEASE };
    let name = format!("thread_{thread}");
    server_access.server.clear(&name)?;
    let schema = |address: &str| {
        let address = format!("{address} application_name={name}");
        StoreAt::Schema(Schema { name: name.clone(), lease, address })
    };
    let (listener, lines) = mpsc::channel();
    let now = Moment::now();
    let people = People::for_story(&case.story).reading(ledger::in_folder(&folder));
    let mut world = ClusterWorld {
        setup,
        store: schema(&server_access.address),
        direct_store: schema(&server_access.direct_address),
        traces: Traces::in_folder(&folder),
        chance,
        members: Members::default(),
        lines,
        listener,
        process_count: 0,
        outage_count: 0,
        is_open: false,
        began: now,
        asked_at: now,
        passed_at: None,
        due_at: None,
        paused: None,
        overtaken: None,
        epochs: BTreeMap::new(),
        server_access,
        shared_store: SharedStoreEvidence {
            was_cut_off: case.trouble.cuts_off(),
            is_undisturbed,
            ..SharedStoreEvidence::default()
        },
        played: PlayedCluster {
            case: case.clone(),
            kills: Vec::new(),
            disturbances: Vec::new(),
            violations: Vec::new(),
            people,
            evidence: None,
            tally: Tally::default(),
        },
    };
    world.play()?;
    let ClusterWorld { played, server_access, .. } = world;
    // Servers in the folder stop with `server_access`, and write nothing afterwards.
    drop(server_access);
    if !keep {
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(played)
}

impl ClusterWorld<'_> {
    fn play(&mut self) -> io::Result<()> {
        self.begin()?;
        let end = self.until_it_is_over()?;
        let whole = end.is_none();
        self.played.violations.extend(end);
        for member in &mut self.members.0 {
            member.kill()?;
        }
        ledger::catch_up(&self.setup.support_processes.ledger)?;
        self.judge_stored_data(whole)
    }

    /// Starts three processes. All of them get the stop of the first strike, because any of them may reach it first.
    fn begin(&mut self) -> io::Result<()> {
        let when = match self.played.case.trouble {
            Trouble::Kill(when) | Trouble::Pause(when) | Trouble::Stale(when) => Some(when),
            Trouble::Nothing | Trouble::Crash | Trouble::Cut | Trouble::Promotion => None,
        };
        let stop = match when {
            Some(Instant::At(boundary, nth)) => Some(Stop::Nth { boundary, nth }),
            Some(Instant::Any) | None => None,
        };
        for _ in 0..NODES {
            let member = self.start(stop)?;
            self.members.0.push(member);
        }
        Ok(())
    }

    fn start(&mut self, stop: Option<Stop>) -> io::Result<Member> {
        self.process_count += 1;
        let outage = self.played.case.story.outage;
        let ahead = outage.saturating_mul(self.outage_count).as_millis();
        let ahead_ms = u64::try_from(ahead).unwrap_or(u64::MAX);
        let node = Node {
            process: self.process_count,
            store: self.store.clone(),
            socket: self.setup.support_processes.ledger.clone(),
            folder: self.traces.folder().to_owned(),
            payment_port: self.setup.support_processes.payment_port,
            hook_port: self.played.case.story.hook.then_some(self.setup.support_processes.hook_port),
            ahead_ms: (!outage.is_zero()).then_some(ahead_ms),
            stop,
        };
        let complaints = self.traces.complaints(self.process_count);
        Member::start(&self.setup.program, &node, &complaints, self.listener.clone())
    }

    /// Returns `None` if everything ended as it should.
    fn until_it_is_over(&mut self) -> io::Result<Option<Violation>> {
        loop {
            match self.lines.recv_timeout(ASK_EVERY) {
                Ok(output) => {
                    if let Some(wrong) = self.process_output(output)? {
                        return Ok(Some(wrong));
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            self.request_snapshots();
            self.open_when_all_are_up();
            self.disturb_when_due()?;
            let over = self.played.people.is_over();
            self.resume_when_due(over)?;
            self.resume_followers_when_due();
            if over && self.due_at.is_none() && self.is_calm() {
                return Ok(None);
            }
            self.send_commands();
            let may_pass = self.passed_at.is_none_or(|at| at.elapsed() > OUTAGE_EVERY);
            if may_pass && self.members.all_are_up() && self.played.people.waits_for_an_expiry() {
                self.let_time_pass()?;
            }
            if self.began.elapsed() > STUCK_AFTER {
                return Ok(Some(self.why_stuck()));
            }
        }
    }

    fn process_output(
        &mut self,
        ProcessOutput { process, output }: ProcessOutput,
    ) -> io::Result<Option<Violation>> {
        let wrong = |what: String| Ok(Some(Violation { rule: Rule::NoErrorIsReported, what }));
        let Some((seat, member)) = self.members.by_number(process) else { return Ok(None) };
        let (state, is_up) = (member.state, member.is_up);
        match output {
            Output::Line(line) => self.process_line(seat, process, line)?,
            Output::Malformed(_) if state == MemberState::Dying => {}
            Output::Malformed(error) => return wrong(format!("process {process}, malformed line: {error}")),
            Output::Closed if state == MemberState::Dying => self.replace(seat)?,
            // The supervisor restarts it.
            Output::Closed if !is_up && self.found_no_server(process)? => {
                self.played.disturbances.push(Disturbance::StartedWithoutServer);
                self.replace(seat)?;
            }
            Output::Closed => {
                let how = self.members.0[seat].exit_status();
                return wrong(format!("process {process} ended by itself: {how}"));
            }
        }
        Ok(None)
    }

    fn process_line(&mut self, seat: usize, process: u32, line: Line) -> io::Result<()> {
        match line {
            Line::RunsSnapshot(snapshot) => {
                let member = &mut self.members.0[seat];
                (member.held_count, member.is_up) = (Some(snapshot.held_count), true);
                self.played.people.observe_newer(snapshot);
            }
            Line::Responded { number, response } => self.played.people.process_response(number, response),
            Line::Answered { .. } => {}
            Line::Stopped(boundary) => self.disturb_at(seat, boundary)?,
            Line::Claimed { run, epoch } => {
                let latest = self.epochs.entry(run).or_default();
                *latest = (*latest).max(epoch);
            }
            Line::Stored { run, epoch, seq } => {
                self.note_an_answer(process, &run, epoch);
                let overtaken_by = self
                    .overtaken
                    .as_ref()
                    .and_then(|overtaken| overtaken.overtaken_by(process, &run, epoch));
                let holding = Holding { run, epoch };
                self.shared_store.stored.push(Stored { process, holding, seq, overtaken_by });
            }
            Line::NotStored { run, epoch } => self.note_an_answer(process, &run, epoch),
        }
        Ok(())
    }

    /// Whether a process that did not come up had lost its server, or was paused until the server closed the
    /// connection. The last line that it logged must report this.
    fn found_no_server(&self, process: u32) -> io::Result<bool> {
        let said = std::fs::read_to_string(self.traces.complaints(process))?;
        let last = said.lines().next_back().unwrap_or_default();
        let was_away = self.shared_store.pauses.iter().any(|pause| pause.process == process);
        let has_cause = self.shared_store.was_cut_off || was_away;
        Ok(has_cause && last.starts_with("ERROR: the store cannot be reached: "))
    }

    /// All output of a killed process has been processed. Another process takes its seat.
    fn replace(&mut self, seat: usize) -> io::Result<()> {
        let stop = match self.played.case.trouble {
            Trouble::Kill(_) => plan::stop_again(self.played.kills.len(), &mut self.chance),
            Trouble::Nothing
            | Trouble::Pause(_)
            | Trouble::Stale(_)
            | Trouble::Crash
            | Trouble::Cut
            | Trouble::Promotion => None,
        };
        let member = self.start(stop)?;
        let gone = std::mem::replace(&mut self.members.0[seat], member);
        self.played.people.lose(gone.told.iter().copied());
        self.played.people.forget_snapshot();
        Ok(())
    }

    /// Trouble that does not wait for a boundary comes soon after people have begun to send commands.
    fn open_when_all_are_up(&mut self) {
        if self.is_open || !self.members.all_are_up_or_paused() {
            return;
        }
        self.is_open = true;
        let now = Moment::now();
        self.due_at = match self.played.case.trouble {
            Trouble::Kill(Instant::Any)
            | Trouble::Pause(Instant::Any)
            | Trouble::Crash
            | Trouble::Promotion => Some(now + plan::any_moment(&mut self.chance)),
            Trouble::Cut => Some(now),
            Trouble::Nothing
            | Trouble::Kill(Instant::At(..))
            | Trouble::Pause(Instant::At(..))
            | Trouble::Stale(_) => None,
        };
    }

    fn disturb_when_due(&mut self) -> io::Result<()> {
        if self.due_at.is_none_or(|at| Moment::now() < at) {
            return Ok(());
        }
        self.due_at = None;
        match self.played.case.trouble {
            Trouble::Kill(_) => {
                self.note_a_loss();
                if let Some(member) = self.members.any(&mut self.chance) {
                    member.kill()?;
                    self.played.kills.push(KillPlace::AnyInstant);
                }
            }
            Trouble::Pause(_) => {
                if let Some(number) = self.members.any(&mut self.chance).map(|member| member.number) {
                    let until = self.any_until();
                    self.pause(number, false, until)?;
                }
            }
            Trouble::Crash => {
                self.server_access.server.crash()?;
                self.played.disturbances.push(Disturbance::ServerCrashed);
            }
            Trouble::Cut => self.server_access.proxy.iter().for_each(Proxy::begin_to_cut),
            Trouble::Promotion => {
                self.server_access.server.die()?;
                self.server_access.standby.iter().try_for_each(Server::promote)?;
                self.played.disturbances.push(Disturbance::StandbyPromoted);
            }
            Trouble::Nothing | Trouble::Stale(_) => {}
        }
        Ok(())
    }

    /// A process has halted at a boundary. The first one is struck, and so is one that was to be killed again.
    fn disturb_at(&mut self, seat: usize, boundary: Boundary) -> io::Result<()> {
        let struck = self.members.0[seat].number;
        let is_first = self.paused.is_none() && self.shared_store.pauses.is_empty();
        match self.played.case.trouble {
            Trouble::Stale(_) if is_first => {
                self.pause(struck, false, Until::Overtaken)?;
                for member in self.members.living() {
                    member.request(Request::Resume);
                    member.request(Request::HaltBeforeStoring);
                }
            }
            // The node that takes the run over has halted before its commit, as the request above asks.
            Trouble::Stale(_) => self.paused.iter_mut().for_each(|paused| paused.is_followed = true),
            Trouble::Pause(_) if is_first => {
                self.resume_others(struck);
                let until = self.any_until();
                self.pause(struck, boundary == BEFORE_SENDING, until)?;
            }
            Trouble::Pause(_) => self.members.0[seat].request(Request::Resume),
            Trouble::Kill(_) | Trouble::Nothing | Trouble::Crash | Trouble::Cut | Trouble::Promotion => {
                self.resume_others(struck);
                self.members.0[seat].kill()?;
                self.played.kills.push(KillPlace::At(boundary));
                self.note_a_loss();
            }
        }
        Ok(())
    }

    fn resume_others(&mut self, struck: u32) {
        self.members.living().filter(|member| member.number != struck).for_each(|member| {
            member.request(Request::Resume);
        });
    }

    /// Asks again, because the node that knew of a change may be gone and a failing store may work again.
    fn request_snapshots(&mut self) {
        if self.asked_at.elapsed() < ASK_EVERY {
            return;
        }
        self.asked_at = Moment::now();
        self.played.people.resend_after_store_failure();
        if self.played.people.is_over() {
            self.members.living().for_each(|member| member.request(Request::Show));
        } else if let Some(member) = self.members.any(&mut self.chance) {
            member.request(Request::Show);
        }
    }

    fn send_commands(&mut self) {
        if !self.is_open {
            return;
        }
        for command in self.played.people.next_commands() {
            match command.request {
                // Goes to every node, because only one of them runs the tool.
                Request::ReleaseTool { .. } => {
                    self.members.living().for_each(|member| member.send_command(&command))
                }
                Request::Post(_)
                | Request::Decide(_)
                | Request::ApproveUnnamed { .. }
                | Request::Interrupt { .. }
                | Request::AutoApprove { .. }
                | Request::DeleteThread { .. }
                | Request::LateAnswer { .. }
                | Request::CountBoundaries
                | Request::Resume
                | Request::HaltBeforeStoring
                | Request::Show => {
                    if let Some(member) = self.members.any(&mut self.chance) {
                        member.send_command(&command);
                    }
                }
            }
        }
    }

    /// All nodes are up and none has a run in memory: everything that was going to be sent has been sent.
    fn is_calm(&self) -> bool {
        self.members.all_live() && self.members.0.iter().all(|member| member.held_count == Some(0))
    }

    /// Ends all processes and starts them again with a later clock.
    fn let_time_pass(&mut self) -> io::Result<()> {
        self.outage_count += 1;
        self.passed_at = Some(Moment::now());
        for member in &mut self.members.0 {
            member.kill()?;
        }
        Ok(())
    }

    fn why_stuck(&self) -> Violation {
        let people = &self.played.people;
        let held: Vec<_> =
            self.members.0.iter().map(|member| (member.number, member.state, member.held_count)).collect();
        let what =
            format!("{:?}, people wait for {}, nodes {held:?}", people.snapshot, people.open_requests());
        Violation { rule: Rule::NothingIsStuck, what }
    }

    /// Reads the stored data and judges it.
    fn judge_stored_data(&mut self, whole: bool) -> io::Result<()> {
        let cut_count = self.server_access.proxy.as_ref().map_or(0, Proxy::cut_count);
        self.played.disturbances.extend((0..cut_count).map(|_| Disturbance::ConnectionCut));
        let read = reader::evidence(&self.direct_store, &self.traces, &self.played.people);
        match read {
            Ok(mut evidence) => {
                evidence.shared_store = Some(self.shared_store.clone());
                let moment = if whole { judge::Moment::End } else { judge::Moment::Between };
                self.played.violations.extend(judge(&evidence, &self.played.people, moment));
                if whole && (!self.played.kills.is_empty() || !self.played.disturbances.is_empty()) {
                    let kills = self.played.kills.len();
                    self.played.tally.note(&evidence, &self.played.people, moment, kills);
                }
                self.played.evidence = Some(evidence);
            }
            Err(error) => {
                let what = format!("what is left cannot be read: {error}");
                self.played.violations.push(Violation { rule: Rule::NoErrorIsReported, what });
            }
        }
        Ok(())
    }
}
