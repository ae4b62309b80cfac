//! The live configuration: the tools at this moment. They change and vanish while calls are held.

use machine::id::{Digest, ToolName};
use machine::tool::{Approval, EffectClass, OnExpiry, Performer, Tool, ToolLookup};

use crate::play::tape::Tape;
use crate::world::setup::CLERK_NAME;

pub const TOOL_NAMES: [&str; 8] =
    ["lookup", "upsert", "transfer", "post", "pick_file", "webhook", "researcher", "forbidden"];
/// A tool that no configuration has.
pub const UNKNOWN_TOOL: &str = "no_such_tool";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Offered,
    OutOfScope,
    Gone,
}

#[derive(Clone, Debug)]
pub struct LiveTool {
    pub name: ToolName,
    pub tool: Tool,
    pub presence: Presence,
    version: u8,
}

impl LiveTool {
    #[must_use]
    pub fn new(name: &str, tool: Tool) -> Self {
        Self { name: name.into(), tool, presence: Presence::Offered, version: 1 }
    }
}

#[derive(Clone, Debug)]
pub struct LiveTools(pub Vec<LiveTool>);

impl LiveTools {
    pub fn draw(tape: &mut Tape) -> Self {
        Self(TOOL_NAMES.iter().zip(0_u8..).map(|(name, ordinal)| draw_tool(tape, name, ordinal)).collect())
    }

    #[must_use]
    pub fn find(&self, name: &ToolName) -> Option<&LiveTool> {
        self.0.iter().find(|live| live.name == *name)
    }

    /// What the gate learns about a tool.
    #[must_use]
    pub fn now(&self, name: &ToolName) -> ToolLookup {
        match self.find(name) {
            Some(LiveTool { presence: Presence::Offered, tool, .. }) => ToolLookup::Known(tool.clone()),
            Some(LiveTool { presence: Presence::OutOfScope, .. }) => ToolLookup::OutOfScope,
            Some(LiveTool { presence: Presence::Gone, .. }) | None => ToolLookup::Unknown,
        }
    }

    /// The current definition, as used for a decision. `None` if the tool is gone.
    #[must_use]
    pub fn definition_now(&self, name: &ToolName) -> Option<Digest> {
        self.find(name).filter(|live| live.presence != Presence::Gone).map(|live| live.tool.definition)
    }

    /// An operator edits the configuration. Returns a description of the change.
    pub fn change(&mut self, tape: &mut Tape) -> String {
        let ordinal = tape.pick(self.0.len());
        let live = &mut self.0[ordinal];
        match tape.pick(6) {
            0 | 1 => {
                live.version += 1;
                live.tool.definition = definition(ordinal, live.version);
                format!("the definition of {} changes", live.name)
            }
            2 => {
                live.presence = Presence::Gone;
                format!("{} is removed", live.name)
            }
            3 => {
                live.presence = Presence::OutOfScope;
                format!("{} is taken from the agent", live.name)
            }
            4 => {
                live.tool.approval = tape.among([Approval::Never, Approval::Ask, Approval::Block]);
                format!("{} has approval {:?}", live.name, live.tool.approval)
            }
            _ => {
                live.presence = Presence::Offered;
                format!("{} is offered again", live.name)
            }
        }
    }
}

fn definition(ordinal: usize, version: u8) -> Digest {
    let mut bytes = [7; 32];
    bytes[0] = u8::try_from(ordinal).unwrap_or(u8::MAX);
    bytes[1] = version;
    Digest(bytes)
}

fn draw_tool(tape: &mut Tape, name: &str, ordinal: u8) -> LiveTool {
    let class = match name {
        "lookup" => EffectClass::Read,
        "upsert" => EffectClass::Idempotent,
        "researcher" | "pick_file" | "webhook" => {
            tape.among([EffectClass::Write, EffectClass::Read, EffectClass::Idempotent])
        }
        _ => EffectClass::Write,
    };
    let performer = match name {
        "pick_file" => Performer::Client,
        "webhook" => Performer::External,
        "researcher" => Performer::Agent {
            agent: CLERK_NAME.into(),
            budget_tokens_max: tape.among([None, Some(25), Some(60)]),
        },
        _ => Performer::Server,
    };
    let usual = match name {
        "transfer" => Approval::Ask,
        "forbidden" => Approval::Block,
        _ => Approval::Never,
    };
    LiveTool {
        name: name.into(),
        tool: Tool {
            definition: definition(usize::from(ordinal), 1),
            class,
            approval: if tape.chance(25) { Approval::Ask } else { usual },
            performer,
            expires_in_ms: tape.among([None, None, Some(300), Some(4_000)]),
            on_expiry: tape.among([OnExpiry::Deny, OnExpiry::Deny, OnExpiry::EndRun]),
        },
        presence: Presence::Offered,
        version: 1,
    }
}
