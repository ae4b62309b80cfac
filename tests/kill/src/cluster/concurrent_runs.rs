//! Many runs at once on three nodes, with each decision sent to a random node. Everything ends, nothing is lost or
//! done twice, and every node gets a share of the work.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use machine::tool::EffectClass;

use super::ClusterSetup;
use super::plan::{ClusterCase, Trouble};
use super::report;
use super::world::{PlayedCluster, play};
use crate::node::Failure;
use crate::scratch::Scratch;
use crate::stories;
use crate::support_processes::SupportProcesses;

/// A node with a smaller share has been left out.
const SHARE_MIN_PERCENT: u64 = 10;
/// The processes that a world begins with. None of them is killed.
const PROCESSES: [u32; 3] = [1, 2, 3];

/// How many runs each process drove. The driver is the process that did the run's write.
#[must_use]
pub fn drove(played: &PlayedCluster) -> BTreeMap<u32, u64> {
    let mut drove: BTreeMap<u32, u64> = PROCESSES.into_iter().map(|process| (process, 0)).collect();
    let acts = played.evidence.iter().flat_map(|evidence| &evidence.acts);
    for act in acts.filter(|act| act.effect == EffectClass::Write) {
        *drove.entry(act.process).or_default() += 1;
    }
    drove
}

#[must_use]
pub fn is_spread(drove: &BTreeMap<u32, u64>) -> bool {
    let all: u64 = drove.values().sum();
    drove.values().all(|count| count * 100 >= all * SHARE_MIN_PERCENT)
}

/// Plays the world, prints the result and returns whether it passed. `program` is this very program.
pub fn run_and_report(program: PathBuf, runs: u64, seed: u64) -> Result<bool, Failure> {
    let scratch = Scratch::new(false)?;
    let support_processes = SupportProcesses::start(&program, scratch.path())?;
    let setup = ClusterSetup::new(program, support_processes, scratch.path())?;
    let began = Instant::now();
    let case =
        ClusterCase { story: Arc::new(stories::concurrent_runs(runs)), trouble: Trouble::Nothing, seed };
    let played = play(&setup, 0, &case, false)?;
    if !played.violations.is_empty() {
        print!("{}", report::wrong(&played));
        return Ok(false);
    }
    let drove = drove(&played);
    for (process, count) in &drove {
        println!("  {count:>6}  runs were driven by node {process}");
    }
    let spread = is_spread(&drove);
    if !spread {
        println!("NOT SPREAD: a node had less than {SHARE_MIN_PERCENT} % of the runs");
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{runs} runs on three nodes, {seconds:.1} s, no violation (seed {seed})");
    Ok(spread)
}

#[test]
fn a_node_without_work_is_noticed() {
    let drove = |counts: [u64; 3]| PROCESSES.into_iter().zip(counts).collect();
    assert!(is_spread(&drove([60, 70, 70])));
    assert!(is_spread(&drove([20, 90, 90])));
    assert!(!is_spread(&drove([19, 91, 90])));
    assert!(!is_spread(&drove([0, 100, 100])));
}
