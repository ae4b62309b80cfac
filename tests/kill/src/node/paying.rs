//! The tool that charges at the till: the standard HTTP tool, with a boundary between the charge and its answer.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::store::BoxFuture;
use engine::tool::{Outcome, Tool, ToolDefinition, ToolRequest};
use machine::id::CallId;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tools::http::{HttpSettings, HttpTool, HttpToolError};

use super::say;
use super::stops::{Acting, Stops};
use crate::stories::tools::CHARGE;
use crate::till::{Caller, PATIENCE, Visited};
use crate::wire::{Line, Passage, Side};

/// An attempt of a call.
type Attempt = (CallId, u32);

/// The till's address, the caller's identity there, and the requests in flight.
#[derive(Clone)]
pub(super) struct Purse {
    till: u16,
    caller: Arc<Caller>,
    stops: Stops,
    on_the_way: Arc<Mutex<BTreeMap<Attempt, Acting>>>,
}

impl Purse {
    /// From here on the till may connect to the gate.
    pub(super) fn open(till: u16, caller: Caller, stops: &Stops) -> io::Result<Self> {
        let listener = UnixListener::bind(caller.gate())?;
        let purse = Self { till, caller: Arc::new(caller), stops: stops.clone(), on_the_way: Arc::default() };
        let at_the_gate = purse.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let purse = at_the_gate.clone();
                tokio::spawn(async move { purse.let_it_answer(stream).await });
            }
        });
        Ok(purse)
    }

    fn on_the_way(&self) -> MutexGuard<'_, BTreeMap<Attempt, Acting>> {
        self.on_the_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The till has recorded the visit, and answers when this connection is closed.
    async fn let_it_answer(&self, mut stream: UnixStream) {
        let mut line = String::new();
        let _ = BufReader::new(&mut stream).read_line(&mut line).await;
        if let Ok(Visited(call, attempt)) = serde_json::from_str(&line) {
            self.on_the_way().remove(&(call, attempt));
            self.stops.cross(Side::After, Passage::Act).await;
        }
    }
}

pub(super) struct PayingTool {
    http: HttpTool,
    purse: Purse,
}

impl PayingTool {
    pub(super) fn new(purse: &Purse) -> Result<Self, HttpToolError> {
        let definition = ToolDefinition::new(CHARGE, "Charges a card").timeout(PATIENCE);
        let settings = HttpSettings {
            bearer: Some(purse.caller.word()),
            ..HttpSettings::at(&format!("http://127.0.0.1:{}/charge", purse.till))
        };
        Ok(Self { http: HttpTool::new(definition, &settings)?, purse: purse.clone() })
    }
}

impl Tool for PayingTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        self.http.definition()
    }

    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let attempt = (request.call.clone(), request.attempt);
            self.purse.stops.cross(Side::Before, Passage::Act).await;
            let _on_its_way = OnItsWay::begin(&self.purse, attempt.clone());
            let outcome = self.http.call(request).await;
            say(&Line::Answered { call: attempt.0, attempt: attempt.1 });
            outcome
        })
    }
}

/// A request in flight. The process does not report that it has halted until the till has it or the tool stops
/// waiting.
struct OnItsWay<'a> {
    purse: &'a Purse,
    attempt: Attempt,
}

impl<'a> OnItsWay<'a> {
    fn begin(purse: &'a Purse, attempt: Attempt) -> Self {
        purse.on_the_way().insert(attempt.clone(), purse.stops.acting());
        Self { purse, attempt }
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.purse.on_the_way().remove(&self.attempt);
    }
}
