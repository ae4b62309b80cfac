//! Runs: list and show them, their calls, their messages and their state, and interrupt one.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use engine::Engine;
use engine::store::{LogEntry, Page, RunFilter, RunView, StoreError, StoreFailure, Tenant};
use machine::id::{AgentName, RunId, ThreadId};
use machine::inbox::{Refusal, Verdict};
use machine::projection_rows::PublicRunStatus;
use machine::transcript::Messages;
use serde::Serialize;
use serde_json::Value;

use crate::body::Interrupt;
use crate::browser_token::Reach;
use crate::caller::Caller;
use crate::capacity::{LongJsonTurn, Permit};
use crate::error::{ApiError, Code};
use crate::extract::{QueryParams, RequestBody, RunPath};
use crate::idempotency::IdempotentRequest;
use crate::paging::PageBuilder;
use crate::response_budget::{over_budget, with_reservation};
use crate::routes::threads;
use crate::run_wait::{RunWait, WAIT_DESCRIPTION, is_settled, parse_wait};
use crate::server::Server;
use crate::wire::call::{CallFold, Calls};
use crate::wire::enums::RunStatus;
use crate::wire::message::{ModelSees, Transcript};
use crate::wire::page::{Runs, parse_page};
use crate::wire::run::Run;
use crate::wire::state::State as StateDocument;

/// Events per read when a whole log is read.
const READ_MAX: usize = 256;

/// Largest whole-run response that is built without a reservation. Only a few larger ones are built at the same time.
const UNRESERVED_BYTES_MAX: usize = 1024 * 1024;
/// Sizes to try after that, before the maximum.
const RESERVATION_STEPS: [usize; 2] = [4 * 1024 * 1024, 16 * 1024 * 1024];

/// Runs per read. Little is read of each.
const ROWS_MAX: usize = 100;

/// List runs, newest first
#[utoipa::path(get, path = "/v1/runs", tag = "runs", operation_id = "list_runs",
    params(("status" = Option<RunStatus>, Query), ("thread_id" = Option<String>, Query),
        ("agent" = Option<String>, Query), ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, description = "One page of runs", body = Runs)))]
pub(crate) async fn list(
    State(server): State<Arc<Server>>,
    caller: Caller,
    parts: Parts,
) -> Result<Json<Runs>, ApiError> {
    let query = QueryParams::parse(&parts, &["status", "thread_id", "agent", "limit", "cursor"])?;
    let filter = RunFilter {
        status: query.parse_value::<RunStatus>("status")?.map(Into::into),
        thread: query.text("thread_id").map(ThreadId::from),
        agent: query.text("agent").map(AgentName::from).or_else(|| only_agent(&caller)),
    };
    let page = parse_page(query.text("limit"), query.text("cursor"))?;
    let filter = match &caller.reach {
        Reach::Tenant => filter,
        Reach::Thread(thread) if filter.thread.as_ref().is_none_or(|named| named.as_str() == thread) => {
            RunFilter { thread: caller.reach.thread(), ..filter }
        }
        Reach::Thread(_) => return Ok(Json(Runs { runs: Vec::new(), next_cursor: None })),
        Reach::Run(_) => return Ok(Json(only_run(&server, &caller, &filter).await?)),
    };
    let mut builder = PageBuilder::new(page, ROWS_MAX);
    let mut runs = Vec::new();
    loop {
        let rows = builder.next_rows();
        let mut listed = server.engine.runs(&caller.tenant, &filter, &rows).await?;
        let mut read = 0;
        for view in &listed.items {
            read += 1;
            if !caller.may_see(&view.agent) {
                builder.skip_hidden();
                continue;
            }
            let run = Run::from_view(view);
            builder.add(&run);
            runs.push(run);
            if builder.is_full() {
                break;
            }
        }
        if read < listed.items.len() {
            let some = Page { limit: read, ..rows };
            listed.next = server.engine.runs(&caller.tenant, &filter, &some).await?.next;
        }
        if let ControlFlow::Break(next_cursor) = builder.advance(read, listed.next) {
            return Ok(Json(Runs { runs, next_cursor }));
        }
    }
}

/// The only run that the caller can reach, if the filter selects it.
async fn only_run(server: &Server, caller: &Caller, filter: &RunFilter) -> Result<Runs, ApiError> {
    let view = match caller.reach.run() {
        Some(run) => server.engine.view(&caller.tenant, &run).await?,
        None => None,
    };
    let is_selected = |view: &RunView| {
        caller.may_see(&view.agent)
            && filter.status.is_none_or(|status| status == view.shown_status())
            && filter.thread.as_ref().is_none_or(|thread| *thread == view.thread)
            && filter.agent.as_ref().is_none_or(|agent| *agent == view.agent)
    };
    let runs = view.filter(is_selected).iter().map(Run::from_view).collect();
    Ok(Runs { runs, next_cursor: None })
}

/// If a key is for one agent only, the store can filter by it.
fn only_agent(caller: &Caller) -> Option<AgentName> {
    let agents = caller.agents().filter(|agents| agents.len() == 1)?;
    agents.first().cloned()
}

/// Get a run
///
/// With `wait`, the response is held back until the run has ended or waits, but for no longer than that.
#[utoipa::path(get, path = "/v1/runs/{id}", tag = "runs", operation_id = "show_run",
    params(("id" = String, Path), ("wait" = Option<String>, Query, description = WAIT_DESCRIPTION)),
    responses((status = 200, description = "The run", body = Run)))]
pub(crate) async fn show(
    State(server): State<Arc<Server>>,
    caller: Caller,
    RunPath(run): RunPath,
    parts: Parts,
) -> Result<Json<Run>, ApiError> {
    let wait = parse_wait(&QueryParams::parse(&parts, &["wait"])?)?;
    let mut view = find_run(&server, &caller, &run).await?;
    if let Some(duration) = wait.filter(|_| !is_settled(view.shown_status())) {
        view = RunWait::reserve(&server, &caller, duration)?.until_settled(view).await?;
    }
    Ok(Json(run_with_answer(&server, &caller, &view).await?))
}

/// List the tool calls of a run, in the order in which the model requested them
#[utoipa::path(get, path = "/v1/runs/{id}/calls", tag = "runs", operation_id = "list_calls", params(("id" = String, Path)),
    responses((status = 200, description = "All tool calls of the run", body = Calls)))]
pub(crate) async fn calls(
    State(server): State<Arc<Server>>,
    caller: Caller,
    RunPath(run): RunPath,
) -> Result<Response, ApiError> {
    find_run(&server, &caller, &run).await?;
    let calls = fold_calls(&server, &caller, &run).await?;
    Ok(calls.encoded(&server, CallFold::finish).await)
}

/// A response built from a whole log.
struct Whole<T> {
    shown: T,
    /// Memory for the response; none if it is small.
    reservation: Option<Permit>,
    /// Held until the response is encoded.
    turn: LongJsonTurn,
}

/// Builds a response from the whole log of a run. `load` returns none if it needs more than the bytes that it is
/// given. A tenant's requests take turns, so that they do not use every processor.
async fn load_whole<T, F: Future<Output = Result<Option<T>, ApiError>>>(
    server: &Server,
    caller: &Caller,
    run: &RunId,
    load: impl Fn(usize) -> F,
) -> Result<Whole<T>, ApiError> {
    let mut turn = caller.permit.long_json_turn().await;
    let unreserved = UNRESERVED_BYTES_MAX.min(server.limits.whole_run_bytes_max);
    if let Some(shown) = load(unreserved).await? {
        return Ok(Whole { shown, reservation: None, turn });
    }
    for bytes in larger_sizes(server) {
        drop(turn);
        let reservation = caller.permit.reserve_response(bytes).await.ok_or_else(over_budget)?;
        turn = caller.permit.long_json_turn().await;
        if let Some(shown) = load(bytes).await? {
            return Ok(Whole { shown, reservation: Some(reservation), turn });
        }
    }
    Err(run_too_large(server, run))
}

impl<T: Send + 'static> Whole<T> {
    /// Encodes the response. A large one is encoded on the threads for long JSON texts, so that no other request waits.
    async fn encoded<S: Serialize>(
        self,
        server: &Server,
        view: impl FnOnce(T) -> S + Send + 'static,
    ) -> Response {
        let Self { shown, reservation, turn } = self;
        let bytes = reservation.as_ref().map_or(0, Permit::bytes);
        let response = server.json_threads.run(bytes, move || Json(view(shown)).into_response()).await;
        drop(turn);
        with_reservation(response, reservation)
    }
}

/// Folds the calls of a run. Reserves more memory as the log turns out to be longer, so no event is read twice.
async fn fold_calls(server: &Server, caller: &Caller, run: &RunId) -> Result<Whole<CallFold>, ApiError> {
    let mut turn = caller.permit.long_json_turn().await;
    let (mut fold, mut after, mut bytes) = (CallFold::default(), 0, 0);
    let (mut reservation, mut reserved_bytes) =
        (None, UNRESERVED_BYTES_MAX.min(server.limits.whole_run_bytes_max));
    loop {
        let events = server
            .engine
            .store()
            .events(&caller.tenant, run, after, READ_MAX)
            .await
            .map_err(|refused| run_refused(run, refused))?;
        let Some(last) = events.last() else { return Ok(Whole { shown: fold, reservation, turn }) };
        after = last.seq();
        bytes += events.iter().map(LogEntry::weight).sum::<usize>();
        if bytes > reserved_bytes {
            let larger = larger_sizes(server).find(|larger| bytes <= *larger);
            reserved_bytes = larger.ok_or_else(|| run_too_large(server, run))?;
            // Release first: requests that keep what they have while they wait for more would deadlock.
            drop((reservation, turn));
            reservation = Some(caller.permit.reserve_response(reserved_bytes).await.ok_or_else(over_budget)?);
            turn = caller.permit.long_json_turn().await;
        }
        events.iter().for_each(|logged| fold.add_logged(logged));
    }
}

/// The sizes above the unreserved one, smallest first, so that a response of a few megabytes does not wait for the
/// largest reservation.
fn larger_sizes(server: &Server) -> impl Iterator<Item = usize> {
    let bytes_max = server.limits.whole_run_bytes_max;
    let larger = RESERVATION_STEPS.into_iter().filter(move |bytes| *bytes < bytes_max);
    larger.chain((bytes_max > UNRESERVED_BYTES_MAX).then_some(bytes_max))
}

/// The refusal for a run that is too large to show as a whole. Its events can be read in pages.
fn run_too_large(server: &Server, run: &RunId) -> ApiError {
    let (bytes_max, instead) = (server.limits.whole_run_bytes_max, format!("/v1/runs/{run}/events"));
    ApiError::new(
        Code::TooLarge,
        format!(
            "this run has more than the {bytes_max} bytes that fit in one response; read {instead} page by page"
        ),
    )
    .with("bytes_max", bytes_max)
    .with("instead", instead)
}

/// Get the messages of a run as the model sees them now
#[utoipa::path(get, path = "/v1/runs/{id}/transcript", tag = "runs", operation_id = "show_transcript",
    params(("id" = String, Path)),
    responses((status = 200, description = "All messages that the model sees", body = Transcript)))]
pub(crate) async fn transcript(
    State(server): State<Arc<Server>>,
    caller: Caller,
    RunPath(run): RunPath,
) -> Result<Response, ApiError> {
    find_run_with_thread(&server, &caller, &run).await?;
    let within = |bytes_max| model_messages(&server, &caller, &run, bytes_max);
    let messages = load_whole(&server, &caller, &run, within).await?;
    let view = |messages: Messages| Transcript {
        messages: messages.iter().map(ModelSees::from_model_message).collect(),
    };
    Ok(messages.encoded(&server, view).await)
}

/// The run, for a caller who may see its whole thread: what the model reads, and what plugins store for a thread, comes
/// from all runs of the thread.
async fn find_run_with_thread(server: &Server, caller: &Caller, run: &RunId) -> Result<RunView, ApiError> {
    let view = find_run(server, caller, run).await?;
    if threads::may_see_all_of(server, caller, &view).await? {
        Ok(view)
    } else {
        Err(ApiError::no_thread(view.thread.as_str()))
    }
}

/// None if the messages have more than `bytes_max` bytes.
async fn model_messages(
    server: &Server,
    caller: &Caller,
    run: &RunId,
    bytes_max: usize,
) -> Result<Option<Messages>, ApiError> {
    let messages = server.engine.transcript_within(&caller.tenant, run, bytes_max).await;
    messages.map_err(|refused| run_refused(run, refused))
}

/// Get the durable state of a run
#[utoipa::path(get, path = "/v1/runs/{id}/state", tag = "runs", operation_id = "show_state", params(("id" = String, Path)),
    responses((status = 200, description = "The state, keyed by path", body = StateDocument)))]
pub(crate) async fn state(
    State(server): State<Arc<Server>>,
    caller: Caller,
    RunPath(run): RunPath,
) -> Result<Response, ApiError> {
    let view = find_run_with_thread(&server, &caller, &run).await?;
    let rows = server
        .engine
        .store()
        .state(&caller.tenant, &run)
        .await
        .map_err(|refused| run_refused(&run, refused))?;
    let calls = fold_calls(&server, &caller, &run).await?;
    Ok(calls.encoded(&server, move |calls| StateDocument::new(&view, calls, &rows)).await)
}

/// Interrupt a run
///
/// The run ends without waiting for its calls.
#[utoipa::path(post, path = "/v1/runs/{id}/interrupt", tag = "runs", operation_id = "interrupt_run",
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)), request_body = Interrupt,
    responses((status = 202, description = "The run is being interrupted, or is already interrupted", body = Run),
        (status = 200, description = "The run had already ended", body = Run)))]
pub(crate) async fn interrupt(
    State(server): State<Arc<Server>>,
    caller: Caller,
    RunPath(run): RunPath,
    received: RequestBody,
) -> Result<Response, ApiError> {
    let Interrupt {} = received.parse_or_empty().await?;
    let before = find_run(&server, &caller, &run).await?;
    let store = server.engine.store().clone();
    let idempotent = IdempotentRequest::new(&*store, &caller, &received, &run).await;
    if let Some(answer) = idempotent.stored_response().await? {
        return Ok(answer);
    }
    let was_asked = idempotent.was_started().await?;
    if before.status.ended() && !was_asked {
        // Nothing changes, and a repeat gets the same response, so there is nothing to store.
        return Ok((StatusCode::OK, Json(run_with_answer(&server, &caller, &before).await?)).into_response());
    }
    idempotent.mark_started().await;
    let verdict = server
        .engine
        .interrupt(&caller.tenant, &run, &caller.principal)
        .await
        .map_err(|refused| run_refused(&run, refused))?;
    let after = find_run(&server, &caller, &run).await?;
    let status = match verdict {
        // This same request interrupted the run earlier, and its response was lost.
        Verdict::Refused(Refusal::RunOver) if was_asked && after.status == PublicRunStatus::Interrupted => {
            StatusCode::ACCEPTED
        }
        Verdict::Refused(Refusal::RunOver) => StatusCode::OK,
        Verdict::Accepted | Verdict::AlreadyApplied | Verdict::ToolChanged | Verdict::Refused(_) => {
            StatusCode::ACCEPTED
        }
    };
    idempotent.store_and_respond(status, &run_with_answer(&server, &caller, &after).await?).await
}

/// The run with this id, if it belongs to the caller's tenant and the caller may see its agent's runs.
pub(crate) async fn find_run(server: &Server, caller: &Caller, run: &RunId) -> Result<RunView, ApiError> {
    let view = server.engine.view(&caller.tenant, run).await?;
    match view.filter(|view| caller.may_see(&view.agent)) {
        Some(view) if caller.reaches_run(server, &view).await? => Ok(view),
        Some(_) | None => Err(ApiError::no_run(run.as_str())),
    }
}

/// The run with its final answer and its output, which are read from its log.
async fn run_with_answer(server: &Server, caller: &Caller, view: &RunView) -> Result<Run, ApiError> {
    let run = Run::from_view(view);
    match read_answer(&server.engine, &caller.tenant, view).await {
        Ok((text, output)) => Ok(Run { text, output, ..run }),
        Err(StoreError::Failed(StoreFailure::Corrupt(_))) => Ok(Run { unreadable: true, ..run }),
        Err(refused) => Err(run_refused(&view.id, refused)),
    }
}

async fn read_answer(
    engine: &Engine,
    tenant: &Tenant,
    view: &RunView,
) -> Result<(Option<String>, Option<Value>), StoreError> {
    let text = engine.final_text(tenant, view).await?;
    let wants_output = view.control.as_ref().is_some_and(|control| control.output.is_some());
    let output = if wants_output { engine.output(tenant, &view.id).await? } else { None };
    Ok((text, output))
}

/// The status of a run that blocks a request.
pub(crate) async fn run_status(
    server: &Server,
    tenant: &Tenant,
    run: &RunId,
) -> Result<Option<RunStatus>, ApiError> {
    Ok(server.engine.view(tenant, run).await?.map(|view| Run::from_view(&view).status))
}

/// The refusal for a store error; `NotFound` means that the run does not exist, or no longer exists.
pub(crate) fn run_refused(run: &RunId, refused: StoreError) -> ApiError {
    match refused {
        StoreError::NotFound => ApiError::no_run(run.as_str()),
        StoreError::Fenced
        | StoreError::Behind
        | StoreError::Stale
        | StoreError::Busy(_)
        | StoreError::Impossible(_)
        | StoreError::Failed(_) => refused.into(),
    }
}
