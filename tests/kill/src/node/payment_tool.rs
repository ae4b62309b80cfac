//! The tool that charges at the payment service: the standard HTTP tool, with a boundary between the charge and its answer.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::store::BoxFuture;
use engine::tool::{Outcome, Tool, ToolDefinition, ToolRequest};
use machine::id::CallId;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tools::http::{EndpointError, HttpSettings, HttpTool};

use super::print_line;
use super::stops::{Acting, Stops};
use crate::incoming_post::Caller;
use crate::payment_server::{CALLER_TIMEOUT, ChargeNotice};
use crate::stories::tools::CHARGE;
use crate::wire::{Line, Operation, Side};

/// An attempt of a call.
type InFlightAttempt = (CallId, u32);

/// The payment service's address, the caller's identity there, and the requests in flight.
#[derive(Clone)]
pub(super) struct PaymentClient {
    payment_port: u16,
    caller: Arc<Caller>,
    stops: Stops,
    in_flight: Arc<Mutex<BTreeMap<InFlightAttempt, Acting>>>,
}

impl PaymentClient {
    /// From here on the payment service may connect to the socket.
    pub(super) fn open(payment_port: u16, caller: Caller, stops: &Stops) -> io::Result<Self> {
        let listener = UnixListener::bind(caller.notify_socket())?;
        let payment_client =
            Self { payment_port, caller: Arc::new(caller), stops: stops.clone(), in_flight: Arc::default() };
        let listening = payment_client.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let payment_client = listening.clone();
                tokio::spawn(async move { payment_client.hold_answer_until_boundary(stream).await });
            }
        });
        Ok(payment_client)
    }

    fn in_flight(&self) -> MutexGuard<'_, BTreeMap<InFlightAttempt, Acting>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The payment service has recorded the charge, and answers when this connection is closed.
    async fn hold_answer_until_boundary(&self, mut stream: UnixStream) {
        let mut line = String::new();
        let _ = BufReader::new(&mut stream).read_line(&mut line).await;
        if let Ok(ChargeNotice(call, attempt)) = serde_json::from_str(&line) {
            self.in_flight().remove(&(call, attempt));
            self.stops.cross(Side::After, Operation::Act).await;
        }
    }
}

pub(super) struct PaymentTool {
    http: HttpTool,
    payment_client: PaymentClient,
}

impl PaymentTool {
    pub(super) fn new(payment_client: &PaymentClient) -> Result<Self, EndpointError> {
        let definition = ToolDefinition::new(CHARGE, "Charges a card").timeout(CALLER_TIMEOUT);
        let settings = HttpSettings {
            bearer: Some(payment_client.caller.header_value()),
            ..HttpSettings::at(&format!("http://127.0.0.1:{}/charge", payment_client.payment_port))
        };
        Ok(Self { http: HttpTool::new(definition, &settings)?, payment_client: payment_client.clone() })
    }
}

impl Tool for PaymentTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        self.http.definition()
    }

    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let attempt = (request.call.clone(), request.attempt);
            self.payment_client.stops.cross(Side::Before, Operation::Act).await;
            let _on_its_way = InFlightGuard::begin(&self.payment_client, attempt.clone());
            let outcome = self.http.call(request).await;
            print_line(&Line::Answered { call: attempt.0, attempt: attempt.1 });
            outcome
        })
    }
}

/// A request in flight. The process does not report that it has halted until the payment service has it or the tool stops
/// waiting.
struct InFlightGuard<'a> {
    payment_client: &'a PaymentClient,
    attempt: InFlightAttempt,
}

impl<'a> InFlightGuard<'a> {
    fn begin(payment_client: &'a PaymentClient, attempt: InFlightAttempt) -> Self {
        payment_client.in_flight().insert(attempt.clone(), payment_client.stops.acting());
        Self { payment_client, attempt }
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.payment_client.in_flight().remove(&self.attempt);
    }
}
