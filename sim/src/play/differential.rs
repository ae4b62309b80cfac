//! Compares both values of `decisions`, immediate and at the boundary: calm worlds with the same script must end in the
//! same transcript.
//!
//! Calm means without expiry, interrupt, further messages, `end_run`, `eager`, time limits, child runs, tools that
//! change, crashes, hooks other than those of AfterInference, and decisions with `apply_to_future` or `expect_digest`.
//! What models, tools, hooks and people answer is drawn by its subject and not by its time, so only the schedule
//! differs.

use std::sync::Arc;

use machine::inbox::Verdict;
use machine::phase::{Phase, PhaseSet};
use machine::policy::{Continuation, DecisionTiming, OnBlock, OnReject, PolicyRequest};
use machine::revision::StopCondition;
use machine::suspension::SuspensionKind;
use machine::tool::Performer;
use machine::transcript::Messages;

use crate::judge::invariant::{Checked, Invariant, breach, ensure};
use crate::play::tape::{Tape, seed_for};
use crate::world::World;
use crate::world::people;
use crate::world::setup::{Agent, DESK, WorldTrouble};
use crate::world::store::RunIndex;
use crate::world::submit::Form;
use crate::world::thread_rows::Posted;

const ROUNDS_MAX: usize = 6_000;

/// Plays the same script under both values of `decisions`, each with its own schedule.
pub fn check(seed: u64) -> Checked {
    let immediate = transcript(seed, DecisionTiming::Immediate)?;
    let at_boundary = transcript(seed, DecisionTiming::AtBoundary)?;
    ensure(immediate == at_boundary, Invariant::ScheduleDoesNotMatter, || {
        let differs = immediate.iter().zip(at_boundary.iter()).find(|(one, other)| one != other);
        format!("{} and {} messages, the first difference is {differs:?}", immediate.len(), at_boundary.len())
    })
}

fn transcript(seed: u64, decisions: DecisionTiming) -> Checked<Messages> {
    let mut world = calm_world(seed, decisions);
    let posted = Posted {
        by: "ana".into(),
        may_approve: true,
        asked: None,
        request: PolicyRequest::default(),
        text: "please",
    };
    let agent = world.agents[DESK].clone();
    world.store.post(0, DESK, &agent, &posted, world.now)?;
    for _ in 0..ROUNDS_MAX {
        if world.store.unended().is_empty() {
            return Ok(world.store.threads[0].transcript.model_input());
        }
        world.calm_round()?;
    }
    breach(Invariant::NothingWedges, "a calm world does not come to its end")
}

/// The content comes from the seed only. The schedule also depends on the policy that is compared.
fn calm_world(seed: u64, decisions: DecisionTiming) -> World {
    let mut world = World::new(Tape::seeded(seed), false);
    world.script_seed = Some(seed);
    let schedule = match decisions {
        DecisionTiming::Immediate => 1,
        DecisionTiming::AtBoundary => 2,
    };
    world.tape = Tape::seeded(seed_for(seed, "schedule", schedule));
    world.trouble = WorldTrouble {
        tool_trouble: world.trouble.tool_trouble,
        model_trouble: world.trouble.model_trouble,
        hooks: world.trouble.hooks,
        ..WorldTrouble::default()
    };
    for agent in &mut world.agents {
        *agent = calm_agent(agent, decisions);
    }
    world.store.clerk = world.agents[world.agents.len() - 1].clone();
    for live in &mut world.live.0 {
        live.tool.expires_in_ms = None;
        // A child starts with whatever its parent has left, and that depends on what ended before it.
        if matches!(live.tool.performer, Performer::Agent { .. }) {
            live.tool.performer = Performer::Server;
        }
    }
    world
}

fn calm_agent(agent: &Agent, decisions: DecisionTiming) -> Agent {
    let mut revision = (*agent.revision).clone();
    revision.policy.decisions = decisions;
    revision.policy.continuation = Continuation::AllSettled;
    revision.policy.on_reject = Some(OnReject::Continue);
    revision.policy.on_block = OnBlock::FailCall;
    revision.stop.retain(|condition| !matches!(condition, StopCondition::Timeout { .. }));
    // A hook that is called again after a retry may answer differently, and hooks before a call depend on the schedule.
    revision.phases = Phase::ALL
        .into_iter()
        .filter(|phase| *phase == Phase::AfterInference && revision.phases.has(*phase))
        .collect::<PhaseSet>();
    Agent { revision: Arc::new(revision), ..agent.clone() }
}

impl World {
    fn calm_round(&mut self) -> Checked {
        match self.tape.pick(4) {
            0 => self.calm_decision(),
            1 => {
                if let Some(next) = self.moments().first() {
                    self.now = *next;
                }
                Ok(())
            }
            _ => self.work(),
        }
    }

    /// A person answers an open suspension as the script says for this call.
    fn calm_decision(&mut self) -> Checked {
        let run: RunIndex = 0;
        let Some(stored) = self.store.runs.get(run) else { return Ok(()) };
        let open: Vec<usize> = (0..stored.ledger.calls.len())
            .filter(|place| {
                stored.ledger.calls[*place]
                    .open
                    .as_ref()
                    .is_some_and(|open| open.answered_by.is_none() && open.kind != SuspensionKind::ChildRun)
            })
            .collect();
        let Some(place) = self.tape.one_of(&open) else { return Ok(()) };
        let call = self.store.runs[run].ledger.calls[place].clone();
        let Some(suspension) = call.open.clone() else { return Ok(()) };
        let definition = self.live.definition_now(&call.tool);
        let now = self.now;
        // The same answer to the same question, whenever a person gets to it. A malformed decision is drawn again.
        let key = format!("{} {}", call.id, suspension.kind);
        let rounds = u64::from(call.attempt) * 100 + call.asked.len() as u64;
        let mut written = None;
        for try_number in 0..20 {
            let drawn = self.with_script(&key, rounds * 1_000 + try_number, |tape| {
                people::draw_decision(tape, &call, &suspension, definition, now, 0)
            });
            if drawn.form == Form::Good && is_calm(&drawn.decision) {
                written = Some(drawn);
                break;
            }
        }
        let decision = match written {
            Some(written) => written.decision,
            None => people::plain_answer(&call, &suspension, definition, now, false),
        };
        let decision = machine::decision::Decision { id: None, ..decision };
        let verdict = self.store.submit_decision(run, &decision, Form::Good)?;
        ensure(verdict == Verdict::Accepted, Invariant::VerdictIsRight, || {
            format!("{decision:?}: {verdict:?}")
        })
    }
}

/// Whether the decision neither ends the run nor affects later calls.
fn is_calm(decision: &machine::decision::Decision) -> bool {
    match &decision.action {
        machine::decision::DecisionAction::Resume(resume) => {
            !resume.apply_to_future && resume.expect_digest.is_none()
        }
        machine::decision::DecisionAction::Cancel { then, .. } => *then != Some(OnReject::EndRun),
    }
}
