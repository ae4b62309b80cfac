//! Error responses: each has a code, and a message that says what happened and what to do next.

mod callback_refused;
mod code;
mod decision_refused;
mod engine_refused;
mod not_found;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

pub use callback_refused::ReportRefusal;
pub use code::Code;
pub(crate) use engine_refused::bad_field;

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    pub code: Code,
    pub message: String,
    pub details: Map<String, Value>,
}

impl ApiError {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Map::new() }
    }

    /// Adds a detail that a program can read.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.code.status()
    }

    /// The body as it is sent.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorShown {
                code: self.code,
                message: self.message.clone(),
                details: self.details.clone(),
            },
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status(), Json(self.body())).into_response();
        // The middleware counts refusals by code.
        response.extensions_mut().insert(self.code);
        response
    }
}

/// The body of every error response.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorShown,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ErrorShown {
    /// Each code has a page in `docs/errors/`.
    pub code: Code,
    /// For people: what happened, and what to do next.
    pub message: String,
    /// For programs. The fields depend on the code.
    #[schema(value_type = Object)]
    pub details: Map<String, Value>,
}
