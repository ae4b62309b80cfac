//! `costly`: one tenant sends the requests that cost the most for their length, while another tenant posts messages.

use std::path::Path;
use std::time::Instant;

use crate::effort::Effort;
use crate::environment::{Setting, many_threads, on};
use crate::failure::Failure;
use crate::pace::milliseconds;
use crate::progress::Progress;
use crate::report::{Figure, Sheet, Target, Unit};
use crate::statistics::percentile;

use super::beside_this_program;
use super::costly_client::CostlyClient;
use super::pool::{message, new_thread};
use super::server::{HttpServer, Site};
use super::wire::Client;

const OTHER: usize = 1;
/// The other tenant's slowest requests may take this many times longer than without the first tenant.
const SLOWER_MAX: f64 = 3.0;
const P99: usize = 99;

/// Milliseconds from each post of a tool round to its 202, one after the other.
async fn posts(client: &Client, count: usize) -> Result<Vec<f64>, Failure> {
    let mut taken = Vec::new();
    for _ in 0..count {
        let path = new_thread(client).await?;
        let begin = Instant::now();
        client.post(&path, Some(&message("round"))).await?;
        taken.push(milliseconds(begin.elapsed()));
    }
    Ok(taken)
}

struct Measured {
    quiet_ms: f64,
    beside_ms: f64,
    costly_count: usize,
}

async fn measured(site: Site, count: usize) -> Result<Measured, Failure> {
    let other = Client::new(site.clone(), OTHER);
    let p99 = |taken: &[f64]| percentile(taken, P99).ok_or_else(|| Failure::new("nothing was posted"));
    // Warm-up: what the server sets up with the first requests is not measured.
    posts(&other, count / 10).await?;
    let quiet_ms = p99(&posts(&other, count).await?)?;
    let costly = CostlyClient::start(&site)?;
    let beside_ms = p99(&posts(&other, count).await?)?;
    Ok(Measured { quiet_ms, beside_ms, costly_count: costly.stop()? })
}

pub(crate) fn run(
    setting: &Setting,
    effort: Effort,
    program: Option<&Path>,
    progress: &Progress,
) -> Result<Vec<Figure>, Failure> {
    let program = program.map_or_else(beside_this_program, |path| Ok(path.to_owned()))?;
    let runtime = many_threads()?;
    let (mut quiet, mut beside, mut ratios, mut counts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 1..=effort.repetition_count {
        progress.phase(&format!(
            "{} posts beside costly requests, {number} of {}",
            effort.costly_posts, effort.repetition_count
        ));
        let server = HttpServer::start(&program, &setting.folder)?;
        let measured = on(&runtime, measured(server.site(), effort.costly_posts))?;
        server.stop()?;
        quiet.push(measured.quiet_ms);
        beside.push(measured.beside_ms);
        ratios.push(measured.beside_ms / measured.quiet_ms);
        counts.push(measured.costly_count as f64);
    }
    let mut sheet = Sheet::of("costly", setting.kind);
    sheet.add("quiet_p99_ms", "post → 202 without costly requests, p99", Unit::Milliseconds, &quiet);
    sheet.add(
        "beside_p99_ms",
        "post → 202 beside another tenant's costly requests, p99",
        Unit::Milliseconds,
        &beside,
    );
    let target = Some(Target::AtMost(SLOWER_MAX));
    sheet.add_aimed("slower", "beside costly requests / without", Unit::Ratio, &ratios, target);
    sheet.add("costly_requests", "costly requests that were answered meanwhile", Unit::Count, &counts);
    Ok(sheet.into_figures())
}
