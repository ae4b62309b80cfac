//! The hook that the agent has in some stories: the standard HTTP hook, with a boundary on each side of a question.

use std::time::Duration;

use engine::plugin::{Action, HookContext, Phase, PhaseSet, Plugin};
use engine::store::BoxFuture;
use machine::id::PluginName;
use tools::http::{EndpointError, HookSettings, HttpHook, HttpSettings};

use super::stops::Stops;
use crate::incoming_post::Caller;
use crate::wire::{Operation, Side};

/// Longer than any pause, because a hook that is late ends the run.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct HookPlugin {
    http: HttpHook,
    stops: Stops,
}

impl HookPlugin {
    pub(super) fn new(port: u16, caller: &Caller, stops: &Stops) -> Result<Self, EndpointError> {
        let phases = [Phase::BeforeInference, Phase::BeforeToolExecute, Phase::RunEnd];
        let http = HttpHook::new(&HookSettings {
            name: PluginName::from("guide"),
            phases: phases.into_iter().collect(),
            timeout: TIMEOUT,
            http: HttpSettings {
                bearer: Some(caller.header_value()),
                ..HttpSettings::at(&format!("http://127.0.0.1:{port}/hook"))
            },
        })?;
        Ok(Self { http, stops: stops.clone() })
    }
}

impl Plugin for HookPlugin {
    fn name(&self) -> &PluginName {
        self.http.name()
    }

    fn phases(&self) -> PhaseSet {
        self.http.phases()
    }

    fn hook(&self, context: HookContext) -> BoxFuture<'_, Result<Vec<Action>, String>> {
        Box::pin(async move {
            self.stops.cross(Side::Before, Operation::Ask).await;
            let answer = self.http.hook(context).await;
            self.stops.cross(Side::After, Operation::Ask).await;
            answer
        })
    }
}
